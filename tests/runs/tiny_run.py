"""A run of the tiny model by the command line, in this process or in other ones."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import random
import socket
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from t5x_like.runs.trained import trained_run
from t5x_like.training.checkpointing.checkpoints import Checkpoints
from t5x_like.training.logs.metrics_file import read_metrics

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
WORDS = "the of a module returns file text if not list value true python class raise".split()


def write_text(path: Path, documents: int) -> Path:
    draw = random.Random(documents)
    path.write_text("".join(" ".join(draw.choices(WORDS, k=12)) + ".\n" for _ in range(documents)))
    return path


@dataclasses.dataclass(frozen=True)
class Result:
    """The result of a command: its exit status and its output."""

    status: int
    out: str
    err: str


@dataclasses.dataclass(frozen=True)
class Tiny:
    """Makes and starts command lines that train in `root`, on the text of `macros`."""

    root: Path
    cli: Callable[..., Result]
    macros: Mapping[str, Any]

    def flags(self, name: str, *flags: str, **macros: Any) -> list[str]:
        """The command line of run `name`."""
        given = {
            "MODEL_DIR": str(self.root / name),
            "CACHE_DIR": str(self.root / "cache"),
            **self.macros,
            **macros,
        }
        bindings = [f"--gin.{k}={v!r}" for k, v in given.items()]
        return ["train", f"--gin_file={HERE / 'tiny.gin'}", *bindings, *flags]

    def train(self, name: str, *flags: str, **macros: Any) -> Result:
        """Trains in this process, on its 8 simulated devices."""
        return self.cli(*self.flags(name, *flags, **macros))

    def trained(self, name: str, *flags: str, **macros: Any) -> Path:
        """The directory of a run that must end well."""
        result = self.train(name, *flags, **macros)
        assert result.status == 0, result.err
        return self.root / name

    def start(
        self,
        argv: Sequence[str],
        *,
        devices: int = 1,
        driver: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
    ) -> subprocess.Popen[str]:
        """Starts a process of its own, with `driver` arguments for `driver.py`, after `prefix`."""
        paths = [str(ROOT), *filter(None, [(env or os.environ).get("PYTHONPATH")])]
        return subprocess.Popen(
            [*prefix, sys.executable, str(HERE / "driver.py"), *driver, "--", *argv],
            env={
                **os.environ,
                **(env or {}),
                "PYTHONPATH": os.pathsep.join(paths),
                "XLA_FLAGS": os.environ["XLA_FLAGS"].replace("count=8", f"count={devices}"),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def start_many(
        self,
        argv: Sequence[str],
        *,
        count: int = 2,
        driver: Sequence[str] = (),
        env: Sequence[Mapping[str, str]] = (),
    ) -> list[subprocess.Popen[str]]:
        """Starts processes that find each other, with four devices in all, and `env` of each."""
        with contextlib.ExitStack() as probes:
            ports = [probes.enter_context(socket.socket()) for _ in range(2)]
            for one in ports:
                one.bind(("127.0.0.1", 0))
            coordinator, watch = (one.getsockname()[1] for one in ports)
        joining = [
            "--distributed",
            f"--coordinator_address=127.0.0.1:{coordinator}",
            f"--watch_port={watch}",
            f"--num_processes={count}",
        ]
        return [
            self.start(
                [*argv, *joining, f"--process_id={n}"],
                devices=4 // count,
                driver=driver,
                env=env[n] if env else None,
            )
            for n in range(count)
        ]


def finish(*processes: subprocess.Popen[str], status: int = 0) -> list[Result]:
    """Waits for processes that must end with `status`; leaves none behind."""
    results = []
    try:
        for process in processes:
            out, err = process.communicate(timeout=400)
            assert process.returncode == status, f"{process.returncode}\n{out}\n{err}"
            results.append(Result(process.returncode, out, err))
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return results


def losses(run: Path) -> dict[int, float]:
    """The training loss of each step."""
    lines = read_metrics(run / "metrics.jsonl")
    return {line["step"]: line["train/loss"] for line in lines if "train/loss" in line}


def saved_steps(run: Path) -> list[int]:
    return Checkpoints(run / "checkpoints").steps()


def state(
    run: Path, rows: int | None = None, modules: Collection[str] = ()
) -> dict[str, np.ndarray]:
    """Parameters, optimizer state, step and carry (of so many rows) of the newest checkpoint."""
    model = trained_run.load(str(run), rows=rows, modules=modules)
    found = Checkpoints(run / "checkpoints").restore_latest(lambda _: model.program.abstract_state)
    assert found is not None
    leaves = jax.tree_util.tree_leaves_with_path(found.state)
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def assert_same_state(
    one: Path, other: Path, rows: int | None = None, modules: Collection[str] = ()
) -> None:
    """Compares states to the last bit; `rows` of a batch matter if a carry is saved."""
    ours, theirs = state(one, rows, modules), state(other, rows, modules)
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        np.testing.assert_array_equal(value, theirs[name], err_msg=name)


def recorded_rows(run: Path) -> dict[int, dict[int, str]]:
    """{step: {row: digest}} as recorded by `driver.py --record` in all processes and restarts."""
    seen: dict[int, dict[int, str]] = {}
    for file in sorted(run.glob("rows*.jsonl")):
        for line in file.read_text().splitlines():
            record = json.loads(line)
            for row, digest in zip(record["rows"], record["digests"], strict=True):
                assert seen.setdefault(record["step"], {}).setdefault(row, digest) == digest
    return seen


def files(directory: Path) -> dict[str, bytes]:
    """The contents of all files below a folder."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def assert_evaluated(run: Path, cli: Callable[..., Result], *, rows: int) -> None:
    """Asserts that `eval`, without a seed, has the same metrics of the last step as the log.

    It also names simple baselines. The run is evaluated on two batches.
    """
    output = run / "eval.json"
    done = cli("eval", str(run), f"--batch_size={rows}", "--batches=2", f"--output={output}")
    assert done.status == 0, done.err
    (columns,) = json.loads(output.read_text())["tasks"].values()
    logged = {
        name.rpartition("/")[2]: value
        for line in read_metrics(run / "metrics.jsonl")
        for name, value in line.items()
        if name.startswith("eval/")
    }
    assert logged
    assert {name: columns["trained"][name] for name in logged} == pytest.approx(logged, rel=1e-5)
    assert columns["untrained"].keys() == columns["trained"].keys() >= columns["unigram"].keys()
    assert any(name.endswith("perplexity") for name in columns["unigram"])
    assert any(name.endswith("accuracy") for name in columns["unigram"])
