"""Two processes train for an hour, in pieces: memory, open files and threads stay flat."""

from __future__ import annotations

import json
import signal
import statistics
import time
from pathlib import Path

from cases import Cases
from tiny_run import Tiny, write_text

from t5x_like.core import exit_status

PIECES, MINUTES, SAMPLE_SECONDS = 4, 15, 10.0


def run(cases: Cases) -> None:
    for n in range(PIECES):
        cases.run(f"quarter {n + 1}", lambda n=n: _piece(cases.folder, n))


def _piece(folder: Path, n: int) -> str:
    tiny = Tiny(folder, None, {"CORPUS": str(write_text(folder / "text.txt", 300))})
    argv = tiny.flags("run", TRAIN_STEPS=10**8, CHECKPOINT_PERIOD=50, EVAL_PERIOD=50, LOG_PERIOD=10)
    processes = tiny.start_many(argv)
    samples: list[list[dict[str, int]]] = []
    try:
        end = time.monotonic() + 60 * MINUTES
        while time.monotonic() < end:
            time.sleep(SAMPLE_SECONDS)
            assert all(one.poll() is None for one in processes), "a process ended"
            samples.append([_usage(one.pid) for one in processes])
        for one in processes:
            one.send_signal(signal.SIGTERM)
        for one in processes:
            _, err = one.communicate(timeout=120)
            assert one.returncode == exit_status.SAVED, err[-2000:]
    finally:
        for one in processes:
            one.kill()
            one.communicate()
    (folder / f"usage_{n + 1}.json").write_text(json.dumps(samples))
    # Compilation and the first checkpoints take their memory in the first third.
    third = len(samples) // 3
    early, late = samples[third : 2 * third], samples[2 * third :]
    parts = []
    for name, most in (("kilobytes", 1.03), ("files", 1.1), ("threads", 1.1)):
        # Process 0 has more files open than others: a median of all would jump between the two.
        before, after = (
            sum(
                statistics.median(one[name] for one in samples)
                for samples in zip(*part, strict=True)
            )
            for part in (early, late)
        )
        assert after <= most * before, f"{name} grow: {before:g}, then {after:g}"
        parts.append(f"{name} {before:g} -> {after:g}")
    return ", ".join(parts)


def _usage(pid: int) -> dict[str, int]:
    status = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    return {
        "kilobytes": int(status["VmRSS"].split()[0]),
        "threads": int(status["Threads"]),
        "files": len([*Path(f"/proc/{pid}/fd").iterdir()]),
    }
