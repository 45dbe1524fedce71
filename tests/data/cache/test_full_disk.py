"""A disk that becomes full while the index of a cache is written."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest
from disks import disk

INDEXING = """
import os, sys
from pathlib import Path
from t5x_like.data.cache import shards
from t5x_like.data.cache.writer import write_cache
from t5x_like.data.corpora.text_files import TextFiles
from t5x_like.vocabularies.byte import ByteVocabulary

where = Path(sys.argv[1])
index = shards._index_split

def on_a_full_disk(*args, **options):
    with open(where / "filling", "wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            os.truncate(file.fileno(), file.tell() - 3 * 4096)
    return index(*args, **options)

shards._index_split = on_a_full_disk
corpus = TextFiles(sys.argv[2], separator="line")
try:
    write_cache(where / "cache", corpus, ByteVocabulary(), workers=1, progress=False)
except OSError as error:
    print(error.errno, error.filename)
"""


@pytest.mark.slow
def test_the_index_of_a_cache_is_not_written_through_memory(tmp_path: Path) -> None:
    """A process that writes to a map of a file is killed by SIGBUS where there is no room."""
    text = tmp_path / "text.txt"
    text.write_text("".join(f"{n}\n" for n in range(5000)))
    with disk(tmp_path / "disk", options="size=2m") as where:
        done = subprocess.run(
            [sys.executable, "-c", INDEXING, str(where), str(text)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{done.returncode}: {done.stderr}"
        assert done.stdout.split()[0] == str(errno.ENOSPC)
        assert done.stdout.split()[1].startswith(str(where / "cache"))
        assert not [*where.rglob("*.tmp")]
