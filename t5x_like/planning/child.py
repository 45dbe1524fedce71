"""A process that compiles the step of one phase for absent TPUs, and writes what it learns.

`compilation` starts it, with the variables of `Topology.environment`. It reads a JSON request from
its standard input and writes files into the folder that the request names:

- program.json: what is known before the compiler runs;
- memory.json: the compiler's error, if the step does not fit;
- step.hlo: the optimized program;
- estimate.json: the estimate, if it is too large for the compiler to be asked;
- error.json: why there is nothing else.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import jax

from t5x_like.core import whole_files
from t5x_like.core.devices.chosen import on_devices
from t5x_like.core.partitioning import device_bytes
from t5x_like.planning.topologies import topology
from t5x_like.runs.memory import rows
from t5x_like.runs.memory.advice import remedy
from t5x_like.runs.memory.estimate import estimate
from t5x_like.runs.phases import run_phases
from t5x_like.runs.program import build_program
from t5x_like.runs.run import Run
from t5x_like.runs.settings import gin_run

STAND_IN = "stdlib_docs"
"""A corpus by name, for a recipe that names no text: the rows of all text have the same shapes."""


def main() -> None:
    """Compiles what standard input asks for. An error that users can mend goes to error.json."""
    request = json.load(sys.stdin)
    folder = Path(request["folder"])
    try:
        _compile(request, folder)
    except (ValueError, OSError) as error:
        _write(folder / "error.json", json.dumps(str(error)))


def _compile(request: dict[str, Any], folder: Path) -> None:
    where = topology(request["topology"], request["slices"])
    with on_devices(where.devices()):
        run, notes = load(request["files"], request["bindings"], request["folders"])
    phases = run_phases(run)
    phase = phases[request["phase"]]
    row = rows.full_row(phase.run)
    program = build_program(phase.run)
    shapes = rows.whole_row(phase.run, row)
    steps = [*(later.start for later in phases[1:]), run.options.train_steps]
    guess = estimate(phase.run, program, shapes)
    known: dict[str, Any] = {
        "phases": len(phases),
        "steps": steps[phase.number] - phase.start,
        "batch_size": phase.run.options.batch_size,
        "microbatches": phase.run.options.microbatches,
        "lengths": dict(phase.run.data.with_lengths().lengths or {}),
        "tokens": rows.tokens(row) * phase.run.options.batch_size,
        "flops": rows.step_flops(phase.run, row),
        "mesh": dict(run.layout.mesh.shape),
        "parameter_count": program.parameter_count,
        "bytes": _bytes(program.abstract_state),
        "estimate": guess.total,
        "notes": notes,
        "remedy": remedy(phase.run, guess, where.chip.hbm_bytes),
    }
    _write(folder / "program.json", json.dumps(known))
    most = request["largest_estimate"]
    if most is not None and guess.total > most:
        _write(folder / "estimate.json", json.dumps(guess.total))
        return
    lowered = program.lower(shapes)
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        _write(folder / "memory.json", json.dumps(str(error)))
        return
    text = compiled.as_text()
    assert text is not None, "the TPU's compiler knows it"
    _write(folder / "step.hlo", text)


def _write(path: Path, text: str) -> None:
    whole_files.write(path, text.encode())


def load(files: list[str], bindings: list[str], folders: list[str]) -> tuple[Run, list[str]]:
    """The run that gin describes; one that names no text gets `STAND_IN`."""
    from t5x_like.config import gin_config

    gin_config.load(files, bindings, folders)
    named = [gin_config.macro(name) for name in ("CORPUS", "MIXTURE_OR_TASK_NAME")]
    more = [] if any(named) else [f"MIXTURE_OR_TASK_NAME={STAND_IN!r}"]
    return gin_run.load(files, [*bindings, *more], folders)


def _bytes(state: Any) -> dict[str, int]:
    """Bytes of each part of the state on one device."""
    parts = {
        "parameters": state.params,
        "optimizer": state.opt_state,
        "average": state.ema,
        "memory of the model": state.carry,
    }
    return {name: device_bytes(part) for name, part in parts.items()}


if __name__ == "__main__":
    main()
