from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from t5x_like.data.cache.format import CacheError
from t5x_like.data.cache.lock import sole_writer

HOLD = """
import sys
from t5x_like.data.cache.lock import sole_writer
with sole_writer(__import__("pathlib").Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def hold(directory: Path) -> subprocess.Popen[str]:
    """A process that holds the directory until its input ends."""
    return subprocess.Popen(
        [sys.executable, "-c", HOLD, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def says(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_second_writer_waits_until_the_first_is_killed(tmp_path: Path):
    with hold(tmp_path) as first:
        assert says(first) == "held\n"
        with hold(tmp_path) as second:
            assert says(second).startswith(f"waiting for process {first.pid} on ")
            first.kill()
            assert says(second) == "held\n"
            second.communicate()
    with sole_writer(tmp_path):
        pass


def test_two_locks_of_a_folder_are_held_at_once(tmp_path: Path):
    with sole_writer(tmp_path, lock=".a"), sole_writer(tmp_path, lock=".b"):
        assert {path.name for path in tmp_path.iterdir()} == {".a", ".b"}


def test_directory_that_cannot_be_made_is_refused(tmp_path: Path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(CacheError, match="cannot write the cache directory"),
        sole_writer(tmp_path / "file" / "cache"),
    ):
        pass


def test_a_link_in_place_of_a_lock_is_refused(tmp_path):
    """Who holds a lock writes its name into it: a link would lose another file's content."""
    victim = tmp_path / "rc"
    victim.write_text("mine")
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / ".writing").symlink_to(victim)
    with pytest.raises(CacheError, match="is a link"), sole_writer(tmp_path / "cache"):
        pass
    assert victim.read_text() == "mine"
