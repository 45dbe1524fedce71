"""Text that is compressed, by gzip or zstandard."""

from __future__ import annotations

import gzip
import json

import zstandard
from hypothesis import strategies as st
from mutations import of_bytes, one_of

from t5x_like.data.corpora.text_files import TextFiles

TEXT = "".join(f"document {i} é\n\n" for i in range(300)).encode()
ROWS = "".join(json.dumps({"text": f"document {i}"}) + "\n" for i in range(300)).encode()
LARGE = 32 << 20
ALLOWANCE = 256 << 20
"""Less than what the streams become: they are read a part at a time."""


def make(folder):
    ways = {"gz": gzip.compress, "zst": zstandard.ZstdCompressor(write_checksum=True).compress}
    for suffix, compress in ways.items():
        for name, content in (("txt", TEXT), ("jsonl", ROWS)):
            (folder / f"{name}-{suffix}").mkdir()
            parts = compress(content[:900]) + compress(content[900:])
            (folder / f"{name}-{suffix}" / f"a.{name}.{suffix}").write_bytes(parts)
    # Little that becomes a lot, and a line without an end.
    for suffix, compress in ways.items():
        (folder / f"large-{suffix}").mkdir()
        content = compress(bytes(LARGE))
        (folder / f"large-{suffix}" / f"a.txt.{suffix}").write_bytes(content)


def read(folder):
    corpus = TextFiles(folder / "a.*", validation=0)
    for _ in corpus.documents("train"):
        pass
    corpus.fingerprint()


def damage(draw, files):
    def again(draw, content):
        return content * draw(st.integers(2, 12))

    return one_of(draw, files, draw(st.sampled_from([of_bytes, of_bytes, again])), [*files])


def test_damaged_streams(fuzz):
    fuzz(__file__, damage)
