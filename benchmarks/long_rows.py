"""Prints the bytes of a step of ModernBERT base on one row, by its length.

    JAX_PLATFORMS=cpu python benchmarks/long_rows.py
    JAX_PLATFORMS=cpu python benchmarks/long_rows.py 8192 --step

`arguments` are parameters, the state of the optimizer and the row; `temporaries` what XLA's memory
analysis of the compiled step says that it needs besides. With `--step` a step is taken, and the
peak of the process is printed, with all that is not the step's.
"""

from __future__ import annotations

import argparse
import json
import resource
from typing import Any

import jax
import jax.numpy as jnp

from t5x_like.config import gin_files
from t5x_like.runs.memory import rows
from t5x_like.runs.program import build_program
from t5x_like.runs.settings import gin_run

LENGTHS = (2048, 4096, 8192)


def measured(length: int, *, takes_step: bool) -> dict[str, Any]:
    """The bytes of a step on a row of this length, in float32; each layer keeps its input alone."""
    bindings = [
        f"TASK_FEATURE_LENGTHS={{'inputs': {length}}}",
        "BATCH_SIZE=1",
        "DTYPE='float32'",
        "REMAT='nothing'",
        "MIXTURE_OR_TASK_NAME='stdlib_docs'",
    ]
    run, _ = gin_run.load([str(gin_files.find_recipe("modernbert_base"))], bindings)
    program = build_program(run)
    row = rows.whole_row(run, rows.full_row(run))
    compiled = program.lower(row).compile()
    analysis = compiled.memory_analysis()
    line: dict[str, Any] = {
        "length": length,
        "arguments": analysis.argument_size_in_bytes,
        "temporaries": analysis.temp_size_in_bytes,
        "gigabytes": (analysis.argument_size_in_bytes + analysis.temp_size_in_bytes) / 1e9,
    }
    if takes_step:
        given = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), compiled.args_info[0])
        jax.block_until_ready(compiled(*given))
        line["peak_gigabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    return line


def main() -> None:
    """Prints a line for each length."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lengths", nargs="*", type=int, default=LENGTHS, metavar="TOKENS")
    parser.add_argument("--step", action="store_true", help="take a step, too")
    arguments = parser.parse_args()
    for length in arguments.lengths:
        print(json.dumps(measured(length, takes_step=arguments.step)), flush=True)


if __name__ == "__main__":
    main()
