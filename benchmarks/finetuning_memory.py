"""Prints the bytes of a fine-tuned run: checkpoint, gradients, optimizer and the compiled step.

    python benchmarks/finetuning_memory.py RUN

Parameters and the state of the optimizer are those of the program's abstract state. Gradients are
those of the parameters that train, of all layers at once. `step_bytes` is what XLA's memory
analysis of the compiled step says that it needs besides its arguments: activations, gradients and
updates.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from t5x_like.core.partitioning import device_bytes
from t5x_like.runs.memory import rows
from t5x_like.runs.phases import run_phases
from t5x_like.runs.program import build_program
from t5x_like.runs.run import Run
from t5x_like.runs.trained import trained_run


def measured(directory: str) -> Mapping[str, Any]:
    """The bytes of a run, of the phase in which most trains.

    Args:
      directory: that of the run.

    Returns:
      parameters and trained_parameters (counts), checkpoint_bytes, gradient_bytes, optimizer_bytes
      and step_bytes.

    Raises:
      ValueError, OSError: it cannot be opened.
    """
    run = trained_run.load(directory).run
    phases = [_of_phase(phase.run) for phase in run_phases(run)]
    most = max(phases, key=lambda phase: phase["trained_parameters"])
    return {**most, "checkpoint_bytes": checkpoint_bytes(Path(directory))}


def _of_phase(run: Run) -> dict[str, Any]:
    program = build_program(run)
    state = program.abstract_state
    row = rows.whole_row(run, rows.full_row(run))
    analysis = program.lower(row).compile().memory_analysis()
    leaves = jax.tree.leaves(state.params)
    masks = jax.tree.leaves(program.trained)
    trained = sum(
        round(math.prod(leaf.shape) * float(np.mean(mask)))
        for leaf, mask in zip(leaves, masks, strict=True)
    )
    size = sum(math.prod(leaf.shape) for leaf in leaves)
    return {
        "parameters": size,
        "trained_parameters": trained,
        "gradient_bytes": trained * np.dtype(np.float32).itemsize,
        "optimizer_bytes": device_bytes(state.opt_state),
        "step_bytes": analysis.temp_size_in_bytes,
    }


def checkpoint_bytes(directory: Path) -> int:
    """The bytes on disk of the newest checkpoint of a run, without its vocabulary."""
    newest = max(
        (folder for folder in (directory / "checkpoints").iterdir() if folder.name.isdigit()),
        key=lambda folder: int(folder.name),
    )
    return sum(file.stat().st_size for file in newest.rglob("*") if file.is_file())


def main() -> None:
    """Prints them as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", help="the directory of a fine-tuned run")
    print(json.dumps(measured(parser.parse_args().run)))


if __name__ == "__main__":
    main()
