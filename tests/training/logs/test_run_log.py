"""The logs of a run, for people and for programs."""

from __future__ import annotations

import fcntl
import io
import json
import os
import struct
import termios
from pathlib import Path

import pytest

from t5x_like.training.logs import metrics_file, run_log


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def log(directory: Path, stream: io.StringIO | None = None, *, step: int = 0) -> run_log.RunLog:
    made = run_log.RunLog(
        directory, total_steps=100, stream=stream or io.StringIO(), tensorboard=False
    )
    made.start(step)
    return made


RATES = {"loss": 2.5, "steps_per_second": 4.0, "tokens_per_second": 12_345.0, "mfu": 0.4321}


def test_lines_are_json_and_append(tmp_path: Path) -> None:
    made = log(tmp_path)
    made.train(10, RATES)
    made.evaluation(10, {"docs/loss": 2.25, "docs/accuracy": float("nan")})
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[0]) == {"step": 10, **{f"train/{k}": v for k, v in RATES.items()}}
    assert json.loads(lines[1]) == {"step": 10, "eval/docs/loss": 2.25, "eval/docs/accuracy": None}


def test_starting_at_a_step_drops_what_comes_after_it(tmp_path: Path) -> None:
    made = log(tmp_path)
    for n in (10, 20, 30):
        made.train(n, RATES)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 40, "tra')
    made = log(tmp_path, step=20)
    made.train(30, {**RATES, "loss": 1.0})
    found = metrics_file.read_metrics(tmp_path / "metrics.jsonl")
    assert [(line["step"], line["train/loss"]) for line in found] == [(10, 2.5), (20, 2.5), (30, 1)]


def test_baselines_are_logged_once_a_phase(tmp_path: Path) -> None:
    asked = []

    def compute() -> dict[str, float]:
        asked.append(1)
        return {"docs/loss": 3.0} if len(asked) > 1 else {}

    made = log(tmp_path)
    for phase in (0, 15, 0, 15):
        made.baselines(phase, compute)
    assert len(asked) == 2
    assert metrics_file.read_metrics(tmp_path / "metrics.jsonl") == [
        {"step": 15, "baseline/docs/loss": 3.0}
    ]
    log(tmp_path, step=20).baselines(15, compute)
    assert len(asked) == 2
    log(tmp_path, step=10).baselines(15, compute)  # the phase has not begun: its line is dropped
    assert len(asked) == 3


DAMAGED = [
    b'{"step": 20, "tra\xb0n/loss": 2.5}',
    b"7",
    b"[1, 2]",
    b'{"train/loss": 2.5}',
    b'{"step": "20", "train/loss": 2.5}',
    b'{"step": 20, "train/loss": "low"}',
    b"[" * 100_000,
    b"\x00\xff",
]


def test_damaged_lines_are_left_out_and_said(tmp_path: Path) -> None:
    made = log(tmp_path)
    made.evaluation(10, {"docs/loss": 2.25})
    file = tmp_path / "metrics.jsonl"
    file.write_bytes(file.read_bytes() + b"\n".join([*DAMAGED, b""]))
    made.train(30, RATES)
    out = io.StringIO()
    made = log(tmp_path, out, step=30)
    assert [line["step"] for line in metrics_file.read_metrics(file)] == [10, 30]
    assert f"{len(DAMAGED)} damaged lines are left out" in out.getvalue()
    assert made.evaluations(30) == [(10, {"docs/loss": 2.25})]


def test_a_log_that_cannot_be_written_stops_nothing_and_loses_nothing(tmp_path: Path) -> None:
    out = io.StringIO()
    made = run_log.RunLog(tmp_path, total_steps=100, stream=out)
    (tmp_path / "tensorboard").write_text("no folder")
    made.start(0)
    file = tmp_path / "metrics.jsonl"
    made.train(10, RATES)
    whole = file.read_bytes()
    file.unlink()
    file.symlink_to("/dev/full")
    made.train(20, RATES)
    made.train(30, RATES)
    file.unlink()
    file.write_bytes(whole + b'{"step": 20, "tra')
    (tmp_path / "tensorboard").unlink()
    made.train(40, RATES)
    made.close()
    assert [line["step"] for line in metrics_file.read_metrics(file)] == [10, 20, 30, 40]
    assert out.getvalue().count("Cannot write the log") == 1
    assert "No space left on device" in out.getvalue()
    assert out.getvalue().count("Cannot write TensorBoard's file") == 1
    assert any((tmp_path / "tensorboard").iterdir())


def test_plain_lines_where_there_is_no_terminal(tmp_path: Path) -> None:
    out = io.StringIO()
    made = log(tmp_path, out)
    made.train(10, RATES)
    made.evaluation(10, {"docs/loss": 2.25})
    made.close()
    first, second = out.getvalue().splitlines()
    for part in ("step 10/100", "loss 2.5000", "12,345 tokens/s", "MFU 43.2%", "ETA "):
        assert part in first
    assert second == "step 10/100  evaluation: docs/loss 2.25"


def test_an_evaluation_of_several_tasks_is_a_line_for_each(tmp_path: Path) -> None:
    """Whatever the tasks log: the loss, then what they measure themselves, in 80 columns."""
    made = log(tmp_path, out := io.StringIO())
    logged = ("perplexity", "token_loss", "z_loss", "token_accuracy", "bits_per_byte", "content_x")
    made.baselines(0, lambda: {f"{t}/{m}": 1.0 for t in ("trec", "cs/a") for m in logged})
    values = {f"{task}/{name}": 1.25 for task in ("trec", "cs/a") for name in logged}
    made.evaluation(10, values | {"trec/exact_match": 45.2, "cs/a/bleu": 7})
    made.close()
    first, *lines = out.getvalue().splitlines()
    assert first == "step 10/100  evaluation of 2 tasks (metrics.jsonl has all metrics)"
    assert lines[0].startswith("  trec  token_loss 1.25  exact_match 45.2  perplexity 1.25")
    assert lines[1].startswith("  cs/a  token_loss 1.25  bleu 7  perplexity 1.25")
    assert len(lines) == 2
    assert max(map(len, lines)) <= 80


def test_a_bar_leaves_room_for_itself_and_has_one_rate(tmp_path: Path) -> None:
    seen, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    with open(terminal, "w") as out, open(seen, "rb", buffering=0) as screen:
        made = run_log.RunLog(tmp_path, total_steps=1_000_000, stream=out, tensorboard=False)
        made.start(500_000)
        for step in (600_000, 700_000):
            made._bar.last_print_t = 0.0  # else it is drawn ten times a second at most
            made.train(step, RATES | {"tokens_per_second": 1_234_567.0})
        out.write("\rEND")
        out.flush()
        drawn = b""
        while not drawn.endswith(b"\rEND"):  # a terminal gives what it has so far
            drawn += screen.read(1 << 16)
        made.close()
    shown = drawn.decode().split("\r")[-2]
    assert len(shown) <= 80
    assert len(shown.split("|")[1]) > 1
    for part in ("700000/1000000 |", "loss 2.5000", "1,234,567 tokens/s", "MFU 43.2%", "ETA "):
        assert part in shown
    assert shown.count("/s") == 1


def test_a_bar_in_a_terminal_with_messages_above_it(tmp_path: Path) -> None:
    out = Terminal()
    made = log(tmp_path, out, step=50)
    made.train(60, RATES)
    made.message("told aside")
    made.close()
    assert "60/100" in out.getvalue()
    assert "loss 2.5000" in out.getvalue()
    assert "told aside\n" in out.getvalue()


def test_tensorboard_files_hold_the_values(tmp_path: Path) -> None:
    made = run_log.RunLog(tmp_path, total_steps=5, stream=io.StringIO())
    made.start(0)
    made.train(1, RATES)
    made.close()
    (events,) = (tmp_path / "tensorboard").iterdir()
    assert b"train/tokens_per_second" in events.read_bytes()


def test_other_processes_write_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_log.jax, "process_index", lambda: 1)
    out = io.StringIO()
    made = log(tmp_path / "run", out)
    made.train(1, RATES)
    made.evaluation(1, {"docs/loss": 1.0})
    made.message("hello")
    made.close()
    assert out.getvalue() == ""
    assert not (tmp_path / "run").exists()


def test_time_left_is_of_the_last_lines_and_not_of_compilation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(run_log.time, "monotonic", lambda: now[0])
    out = io.StringIO()
    made = run_log.RunLog(tmp_path, total_steps=1000, stream=out, tensorboard=False)
    made.start(0)
    now[0] += 500  # at most a minute of it was training
    made.train(1, {**RATES, "steps_per_second": 1 / 500})
    made.train(10, {**RATES, "steps_per_second": 2.0})
    for step in range(20, 220, 10):
        now[0] += 10 if step < 100 else 5
        made.train(step, {**RATES, "steps_per_second": 7.0})
    left = [line.rpartition("ETA ")[2] for line in out.getvalue().splitlines()]
    assert left[:2] == ["unknown yet", "08:15"]
    assert left[2] == "16:20"  # 980 steps at one a second
    assert left[-1] == "06:35"  # 790 at two
