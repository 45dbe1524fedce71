"""An export is whole or is not opened, wherever it ends."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from t5x_like.api.exporting import whole_export
from t5x_like.core import whole_files

NEW = {
    "config.json": b"new",
    "model.safetensors": b"new",
    "tokenizer.json": b"new",
    "vocabulary/vocabulary.json": b"new",
}
OLD = {
    "config.json": b"old",
    "model.safetensors.index.json": b"old",
    "model-00001-of-00002.safetensors": b"old",
    "model-00002-of-00002.safetensors": b"old",
    "tokenizer.json": b"old",
    "notes.txt": b"the user's",
}


def write(folder, files):
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def found(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_new_folder_appears_whole_or_not_at_all(tmp_path):
    with contextlib.suppress(InterruptedError), whole_export.appearing(tmp_path / "out") as made:
        write(made, NEW)
        raise InterruptedError
    assert found(tmp_path) == {}
    with whole_export.appearing(tmp_path / "out") as made:
        write(made, NEW)
        assert not (tmp_path / "out").exists()
    assert found(tmp_path / "out") == NEW


@pytest.mark.parametrize("allowed", range(12))
def test_a_folder_that_is_replaced_is_never_opened_half(tmp_path, monkeypatch, allowed):
    """Ends before each change of the folder in turn."""
    out = tmp_path / "out"
    write(out, OLD)
    changes = 0

    def counted(change):
        def run(*args, **kwargs):
            nonlocal changes
            changes += out == pathlib.Path(args[-1]).parent
            if changes > allowed:
                raise InterruptedError
            return change(*args, **kwargs)

        return run

    with (
        monkeypatch.context() as patched,
        contextlib.suppress(InterruptedError),
        whole_export.appearing(out) as made,
    ):
        write(made, NEW)
        patched.setattr(os, "replace", counted(os.replace))
        patched.setattr(pathlib.Path, "unlink", counted(pathlib.Path.unlink))
    there = found(out)
    assert there["notes.txt"] == OLD["notes.txt"]
    if "config.json" in there:
        assert there in (OLD, {**NEW, "notes.txt": OLD["notes.txt"]})
    with whole_export.appearing(out) as made:
        write(made, NEW)
    assert found(out) == {**NEW, "notes.txt": OLD["notes.txt"]}


KILLED = """
import os, signal, sys
from pathlib import Path
from t5x_like.core import whole_files

with whole_files.writing_folder(Path(sys.argv[1])) as folder:
    (folder / "half").write_text("")
    print(folder, flush=True)
    sys.stdin.read()
"""


def test_what_a_killed_writer_leaves_is_removed_and_what_a_living_one_writes_is_not(tmp_path):
    out, other = tmp_path / "out", tmp_path / "out.1-of-2.tmp"
    other.mkdir()  # a folder of the user
    writer = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(out)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with writer:
        left = pathlib.Path(writer.stdout.readline().strip())
        with whole_files.writing_folder(tmp_path / "mine"), whole_files.temporary_folder(out):
            assert (left / "half").exists()
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    assert not out.exists()
    assert (left / "half").exists()
    with whole_files.writing_folder(out):
        assert not left.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "out", other.name]
