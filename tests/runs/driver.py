"""The command line in a process of its own, which records the rows it trains on or kills itself.

driver.py [--record] [--fail_save] [--kill_at STEP --delay SECONDS] -- train ...
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


def main() -> int:
    """Runs the command line after `--`."""
    own, argv = sys.argv[1 : sys.argv.index("--")], sys.argv[sys.argv.index("--") + 1 :]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true", help="rows-*.jsonl in the run's directory")
    parser.add_argument("--fail_save", action="store_true", help="where a checkpoint is committed")
    parser.add_argument("--kill_at", type=int, help="SIGKILL once so many steps are logged")
    parser.add_argument("--signal", type=int, default=signal.SIGKILL)
    parser.add_argument("--delay", type=float, default=0.0, help="and so many seconds later")
    args = parser.parse_args(own)
    (run,) = (Path(a.split("=", 1)[1].strip("'")) for a in argv if a.startswith("--gin.MODEL_DIR="))
    if args.kill_at is not None:
        watch = threading.Thread(target=_kill, args=(run, args), daemon=True)
        watch.start()
    if args.record:
        _record(run)
    if args.fail_save:
        _fail_save()
    from t5x_like.cli import main as command_line

    return command_line.main(argv)


def _kill(run: Path, args: argparse.Namespace) -> None:
    metrics = run / "metrics.jsonl"
    while args.kill_at and not (metrics.exists() and len(_lines(metrics)) >= args.kill_at):
        time.sleep(0.002)
    time.sleep(args.delay)
    os.kill(os.getpid(), args.signal)


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def _fail_save() -> None:
    from orbax.checkpoint._src.metadata import array_metadata_store

    async def read(*args: Any, **kwargs: Any) -> Any:
        raise OSError("the disk does not answer")

    array_metadata_store.Store.read = read


def _record(run: Path) -> None:
    """Records the rows between the stream and the devices."""
    from t5x_like.data.streams import stream

    original = stream.train_stream

    def train_stream(*args: Any, start_step: int, **options: Any) -> Iterator[Any]:
        import jax

        batches = original(*args, start_step=start_step, **options)
        name = f"rows-{jax.process_index()}of{jax.process_count()}.jsonl"
        for step, batch in enumerate(batches, start_step + 1):
            record = {
                "step": step,
                "rows": options["rows"].tolist(),
                "digests": [_digest(batch, i) for i in range(len(options["rows"]))],
            }
            with (run / name).open("a") as file:
                file.write(json.dumps(record) + "\n")
            yield batch

    stream.train_stream = train_stream


def _digest(batch: Mapping[str, Any], row: int) -> str:
    digest = hashlib.sha256()
    for name in sorted(batch):
        digest.update(name.encode() + batch[name][row].tobytes())
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main())
