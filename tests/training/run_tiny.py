"""A run of the tiny model in a process of its own, alone or one of several."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

sys.path.insert(0, str(Path(__file__).parent))


def main() -> None:
    """Trains; prints one JSON line: how it ended, and the rows of this process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--mesh", type=json.loads, default={"data": -1})
    parser.add_argument("--process", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before each batch")
    parser.add_argument("--sigterm_at", type=int, default=-1, help="send it to itself at this step")
    flags = parser.parse_args()
    if flags.processes > 1:
        jax.distributed.initialize(f"localhost:{flags.port}", flags.processes, flags.process)

    import tiny_model as tiny

    from t5x_like.core import global_batches, partitioning
    from t5x_like.training import loop
    from t5x_like.training.checkpointing import checkpoints
    from t5x_like.training.health.safeguards import Safeguards
    from t5x_like.training.health.watch import Watch
    from t5x_like.training.logs import run_log
    from t5x_like.training.periods import Periods

    where = partitioning.make_layout(flags.mesh)
    program = tiny.build(None, where, microbatches=2)

    def batches(start: int) -> Iterator[Any]:
        for n, batch in enumerate(tiny.batches(where, start), start):
            time.sleep(flags.delay)
            if n == flags.sigterm_at:
                os.kill(os.getpid(), signal.SIGTERM)
            yield batch

    outcome = loop.train(
        [tiny.Phase(program=program, batches=batches)],
        key=jax.random.key(7),
        checkpoints=checkpoints.Checkpoints(flags.directory / "checkpoints"),
        metadata={},
        watch=Watch(
            run_log.RunLog(flags.directory, total_steps=flags.steps, tensorboard=False),
            Periods(train_steps=flags.steps, checkpoint_period=3, log_period=1),
            safeguards=Safeguards(),
        ),
    )
    rows = global_batches.process_rows(where, tiny.BATCH).tolist()
    print(json.dumps({"status": outcome.status, "step": outcome.step, "rows": rows}))


if __name__ == "__main__":
    main()
