"""Files that are whole or absent: what their errors say, and links."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from t5x_like.core import whole_files
from t5x_like.core.partial_files import PartialFile


def test_an_error_of_writing_names_the_path(tmp_path: Path) -> None:
    """A limit of the size of files stands for a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
        with pytest.raises(OSError, match=r"too large: '.*model\.json'") as caught:
            whole_files.write(tmp_path / "model.json", bytes(5000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert caught.value.errno == errno.EFBIG
    assert [*tmp_path.iterdir()] == []


def test_a_path_that_an_error_names_stays(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="other"), whole_files.naming(tmp_path / "path"):
        os.stat("other")


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").mkdir()
    victim = tmp_path / "elsewhere" / "rc"
    victim.write_text("mine")
    (tmp_path / "run" / "predictions").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "linked").symlink_to(tmp_path / "run")
    for place in ("predictions", "predictions/rc"):
        with pytest.raises(whole_files.LinkError, match=r"predictions is a link to .*elsewhere"):
            whole_files.check_no_link(tmp_path / "run" / place, inside=tmp_path / "run")
    # The directory itself may be one.
    inside = tmp_path / "linked"
    whole_files.check_no_link(inside / "report.html", inside=inside)
    whole_files.check_no_link("gs://bucket/run/report.html", inside="gs://bucket/run")
    partial = PartialFile(tmp_path / "run" / "file.jsonl", {})
    partial.path.symlink_to(victim)
    with pytest.raises(whole_files.LinkError, match="nothing is written through it"):
        partial.add([1])
    assert victim.read_text() == "mine"


def test_errors_name_what_is_to_be_there(tmp_path: Path) -> None:
    """Also those of names that a file has for a moment only."""
    (tmp_path / "model" / "in the way").mkdir(parents=True)
    with pytest.raises(IsADirectoryError) as caught:
        whole_files.write(tmp_path / "model", b"content")
    assert caught.value.filename == str(tmp_path / "model")
    with (
        pytest.raises(FileNotFoundError) as missing,
        whole_files.writing_folder(tmp_path / "folder") as folder,
    ):
        (folder / "part" / "file").write_bytes(b"")
    assert missing.value.filename == str(tmp_path / "folder" / "part" / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_folder_is_tried_with_a_file_in_it(tmp_path: Path) -> None:
    whole_files.check_writable(tmp_path / "new")
    assert [*(tmp_path / "new").iterdir()] == []
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        whole_files.check_writable(tmp_path / "file")


def test_links_and_devices_that_a_user_names_are_written_in_place(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    link.symlink_to(file)
    for path in (file, link, file):
        with whole_files.output(path) as out:
            out.write(str(path).encode())
        assert file.read_text() == str(path)
    assert link.is_symlink()
    os.mkfifo(tmp_path / "pipe")
    reading = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with whole_files.output(tmp_path / "pipe") as out:
        out.write(b"through")
    assert os.read(reading, 100) == b"through"
    os.close(reading)
    with pytest.raises(OSError, match=r"No space left on device: '/dev/full'"):
        _write_to("/dev/full")


def _write_to(device: str) -> None:
    with whole_files.output(Path(device)) as out:
        out.write(b"content")


def test_the_number_of_an_error_is_found_in_words_and_behind_others() -> None:
    full, denied = OSError(errno.ENOSPC, "No space left on device"), PermissionError(13, "denied")
    one, other = RuntimeError("one"), RuntimeError("other")
    one.__cause__, other.__cause__ = other, one
    assert whole_files.error_number(one) is None  # threads make such circles
    other.__cause__ = full
    assert whole_files.error_number(one) == errno.ENOSPC
    assert whole_files.error_number(RuntimeError("write() failed: Disk quota exceeded")) == 122
    assert whole_files.error_number(whole_files.LinkError("Permission denied")) is None
    assert whole_files.error_number(FileNotFoundError(2, "missing")) is None
    hidden = ValueError("own words")
    hidden.__context__, hidden.__suppress_context__ = denied, True
    assert whole_files.error_number(hidden) is None


def test_arrays_are_written_as_numpy_writes_them(tmp_path: Path) -> None:
    for array in (np.arange(6).reshape(2, 3), np.zeros(0, bool), np.ones([2, 2]).T[:1]):
        with whole_files.writing(tmp_path / "a.npy") as file:
            whole_files.write_array(file, array)
        np.save(tmp_path / "b.npy", np.ascontiguousarray(array))
        assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()


def test_what_killed_writers_left_is_removed(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys; from pathlib import Path; from t5x_like.core import whole_files\n"
        "with whole_files.writing(Path(sys.argv[1])) as file:\n"
        "    file.write(b'half'); file.flush(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    path, other = tmp_path / "config.gin", tmp_path / "config.gin.1-0123abcd.tmpx"
    other.touch()
    subprocess.run([sys.executable, "-c", script, str(path)], check=False)
    (left,) = tmp_path.glob("*.tmp")
    assert left.read_bytes() == b"half"
    with whole_files.writing(path) as living:
        living.write(b"mine")
        assert not left.exists()
        whole_files.write(path, b"another's")
        assert len([*tmp_path.glob("*.tmp")]) == 1
    assert path.read_bytes() == b"mine"
    assert sorted(tmp_path.iterdir()) == [path, other]
