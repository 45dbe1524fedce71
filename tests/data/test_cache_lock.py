from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from t5x_like.data.cache_format import CacheError
from t5x_like.data.cache_lock import sole_writer

HOLD = """
import sys
from t5x_like.data.cache_lock import sole_writer
with sole_writer(__import__("pathlib").Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_second_writer_is_refused_until_the_first_is_killed(tmp_path: Path):
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with (
            pytest.raises(CacheError, match=f"process {holder.pid} on .* is writing the cache"),
            sole_writer(tmp_path),
        ):
            pass
        holder.kill()
        holder.wait()
    with sole_writer(tmp_path):
        pass


def test_directory_that_cannot_be_made_is_refused(tmp_path: Path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(CacheError, match="cannot write the cache directory"),
        sole_writer(tmp_path / "file" / "cache"),
    ):
        pass
