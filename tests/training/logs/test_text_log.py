"""What a run says is in `log.txt`, warnings included."""

from __future__ import annotations

import contextlib
import io
import logging
import re
import warnings
from pathlib import Path

from t5x_like.training.callbacks import Outcome
from t5x_like.training.logs.run_log import RunLog

LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC  start (\d)  \d+\.\d s  (.*)")


def made(directory: Path) -> RunLog:
    return RunLog(directory, total_steps=10, stream=io.StringIO(), tensorboard=False)


def lines(directory: Path) -> list[tuple[str, ...]]:
    found = [LINE.fullmatch(line) for line in (directory / "log.txt").read_text().splitlines()]
    return [one.groups() for one in found if one is not None]


def test_lines_of_all_starts_are_kept_with_their_time(tmp_path: Path) -> None:
    for number in ("1", "2"):
        with made(tmp_path) as log:
            log.message(f"before training {number}")
            assert not (tmp_path / "log.txt").exists() or number == "2"
            log.start(0)
            log.message("two\nlines")
            with (tmp_path / "log.txt").open("a") as file:
                file.write("a part")  # as a killed process leaves it
    assert lines(tmp_path) == [(n, said) for n in "12" for said in (f"before training {n}", "two")]
    assert "\n    lines\n" in (tmp_path / "log.txt").read_text()


def test_warnings_are_shown_and_written_down(tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        before = warnings.showwarning
        handlers = [*logging.root.handlers]
        with made(tmp_path) as log:
            log.start(0)
            warnings.warn("take care", stacklevel=1)
            logging.getLogger("somewhere").warning("step %d is damaged", 3)
            logging.getLogger("somewhere").info("not for users")
        assert warnings.showwarning is before
        assert logging.root.handlers == handlers
        assert [str(one.message) for one in shown] == ["take care"]
        warnings.warn("too late", stacklevel=1)
    text = (tmp_path / "log.txt").read_text()
    assert "UserWarning: take care" in text
    assert "WARNING: somewhere: step 3 is damaged" in text
    assert "not for users" not in text
    assert "too late" not in text


def test_the_error_that_ends_a_run_is_its_last_line(tmp_path: Path) -> None:
    with contextlib.suppress(ValueError), made(tmp_path) as log:
        log.start(0)
        raise ValueError("no more")
    assert lines(tmp_path)[-1] == ("1", "error: ValueError: no more")


def test_a_run_that_did_not_start_leaves_nothing(tmp_path: Path) -> None:
    with made(tmp_path) as log:
        log.message("already finished")
        log.close(Outcome("already_finished", 3))
    assert [*tmp_path.iterdir()] == []


def test_files_that_cannot_be_written_stop_nothing(tmp_path: Path) -> None:
    out = io.StringIO()
    log = RunLog(tmp_path, total_steps=10, stream=out, tensorboard=False)
    log.start(0)
    for name in ("log.txt", "starts.jsonl", "summary.json"):
        (tmp_path / name).unlink(missing_ok=True)
        (tmp_path / name).mkdir()
    log.keep()
    log.message("goes on")
    for name in ("log.txt", "starts.jsonl", "summary.json"):
        (tmp_path / name).rmdir()
    log.close(Outcome("finished", 0))
    for name in ("log.txt", "starts.jsonl", "summary.json"):
        assert out.getvalue().count(f"Cannot write {name} in") == 1
        assert (tmp_path / name).is_file()
    assert "goes on" in (tmp_path / "log.txt").read_text()
