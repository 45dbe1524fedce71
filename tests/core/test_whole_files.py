"""Files that are whole or absent: what their errors say, and links."""

from __future__ import annotations

import errno
import os
import resource
import signal
from pathlib import Path

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
