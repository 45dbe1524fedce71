"""A table is made once, whole or not at all, and is the same in every process."""

from __future__ import annotations

import errno
import importlib
import linecache
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from t5x_like.data.samples import plans
from t5x_like.data.samples.plans import load_or_make
from t5x_like.data.samples.samples import make_samples
from t5x_like.objectives.lm import PRESETS

ROWS = np.arange(30).reshape(-1, 3)


class Here:
    """A split whose tables are kept in a directory, or in memory."""

    name = "train"

    def __init__(self, directory: Path | None, content: str = "text") -> None:
        self.directory = directory
        self.content = content


def blocks() -> Iterator[np.ndarray]:
    yield ROWS[:4]
    yield ROWS[4:4]
    yield ROWS[4:]


def never() -> Iterator[np.ndarray]:
    raise AssertionError("made again")


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_table_is_made_once_and_pickles_as_its_address(tmp_path: Path):
    made = load_or_make(Here(tmp_path), "rows", blocks, columns=3)
    again = load_or_make(Here(tmp_path), "rows", never, columns=3)
    data = pickle.dumps(made)
    assert len(data) < 400
    for table in (made, again, pickle.loads(data)):
        np.testing.assert_array_equal(table.values, ROWS)
        assert table.values.dtype == np.int64
        assert not table.values.flags.writeable
    assert len(files(tmp_path)) == 1


def test_whatever_decides_a_table_gives_it_another_file(tmp_path: Path):
    load_or_make(Here(tmp_path), "rows", blocks)
    load_or_make(Here(tmp_path), "other rows", blocks)
    load_or_make(Here(tmp_path, "other text"), "rows", blocks)
    assert len(files(tmp_path)) == 3


def test_a_table_without_rows_is_kept_too(tmp_path: Path):
    for make in (lambda: iter(()), never):
        assert load_or_make(Here(tmp_path), "nothing", make, columns=2).values.shape == (0, 2)


@pytest.mark.parametrize("where", ["memory", "unwritable"])
def test_without_a_directory_to_write_it_stays_in_memory(where, tmp_path: Path, monkeypatch):
    split = Here(None)
    if where == "unwritable":
        split = Here(tmp_path / "no such directory")
    table = load_or_make(split, "rows", blocks, columns=3)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(table)).values, ROWS)


def test_why_a_table_cannot_be_kept_is_said_once(tmp_path: Path, monkeypatch, capsys):
    def full(path, blocks):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(plans, "_write", full)
    for what in ("rows", "other rows"):
        load_or_make(Here(tmp_path), what, blocks, columns=3)
    said = capsys.readouterr().err
    assert said.count(str(tmp_path)) == 1
    assert "No space left on device" in said


def write_module(path: Path, name: str, *, start: int = 0) -> type:
    """A module's `Shape`, a geometry whose plan begins at `start`."""
    (path / f"{name}.py").write_text(
        f"""
import dataclasses

@dataclasses.dataclass(frozen=True)
class Shape:
    columns = ("targets_start", "targets_end")
    separators = False
    segments_of = None

    def plan(self, sentences, rng, documents):
        yield [({start}, {start} + 2)]
"""
    )
    linecache.checkcache()
    importlib.invalidate_caches()
    sys.modules.pop(name, None)
    return importlib.import_module(name).Shape


def test_edited_geometries_and_those_of_one_name_have_plans_of_their_own(
    tmp_path: Path, monkeypatch, make_cache
):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    split = make_cache(["some text"]).split("train")

    def first(shape: object) -> list[int]:
        return make_samples(shape, split).plan.values.ravel().tolist()

    assert first(write_module(tmp_path, "one_shape")()) == [0, 2]
    assert first(write_module(tmp_path, "other_shape", start=1)()) == [1, 3]
    assert first(write_module(tmp_path, "one_shape", start=3)()) == [3, 5]


def test_what_decides_a_table_is_the_same_in_every_process():
    code = """
from t5x_like.data.samples import plans
from t5x_like.objectives.lm import PRESETS
print(plans.identity(PRESETS["lm"]), end="")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == plans.identity(PRESETS["lm"])


def flipped(data: bytes) -> Iterator[bytes]:
    """The data with one bit changed, in each of some places."""
    for place in range(0, len(data), 9):
        changed = bytearray(data)
        changed[place] ^= 1
        yield bytes(changed)


def test_a_failure_leaves_nothing_and_a_damaged_file_is_made_again(tmp_path: Path, capsys):
    def failing() -> Iterator[np.ndarray]:
        yield ROWS
        raise ValueError("the corpus is too short")

    with pytest.raises(ValueError, match="too short"):
        load_or_make(Here(tmp_path), "rows", failing, columns=3)
    assert files(tmp_path) == []
    load_or_make(Here(tmp_path), "rows", blocks, columns=3)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    for data in (whole[:-8], b"", *flipped(whole)):
        path.write_bytes(data)
        np.testing.assert_array_equal(
            load_or_make(Here(tmp_path), "rows", blocks, columns=3).values, ROWS
        )
        assert path.read_bytes() == whole
    assert "is damaged" in capsys.readouterr().err


SLOWLY = """
import sys, time, types
from pathlib import Path
import numpy as np
from t5x_like.data.samples.plans import load_or_make

def blocks():
    print("made")
    for i in range(5):
        time.sleep(0.05)
        yield np.arange(i, 2 * i + 1)

split = types.SimpleNamespace(name="train", directory=Path(sys.argv[1]), content="text")
print("ready", flush=True)
sys.stdin.readline()
print(load_or_make(split, "rows", blocks).values.ravel().tolist())
"""


def test_processes_that_plan_at_once_get_the_same(tmp_path: Path):
    command = [sys.executable, "-c", SLOWLY, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, **pipes) for _ in range(2)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    found = [process.communicate(timeout=60)[0].splitlines() for process in processes]
    rows = [0, 1, 2, 2, 3, 4, 3, 4, 5, 6, 4, 5, 6, 7, 8]
    assert [lines[-1] for lines in found] == [str(rows)] * 2
    assert sum(line == "made" for lines in found for line in lines) == 1
    assert len(files(tmp_path)) == 1


def test_long_planning_shows_how_far_it_is(tmp_path: Path, monkeypatch, capsys):
    load_or_make(Here(tmp_path), "quick", blocks)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(plans, "_SILENT_SECONDS", 0)
    load_or_make(Here(tmp_path), "in a file", blocks)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    load_or_make(Here(tmp_path), "rows", blocks)
    assert "planning samples of train" in capsys.readouterr().err
