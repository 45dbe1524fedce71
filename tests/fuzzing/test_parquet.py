"""Parquet: a row a document."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from mutations import of_bytes, one_of

from t5x_like.data.corpora.text_files import TextFiles

pa = pytest.importorskip("pyarrow", reason="pip install 't5x_like[data]'")

TEXTS = [f"text {i % 7} é" if i % 5 else None for i in range(150)]


def make(folder):
    import pyarrow.parquet as pq

    table = pa.table({"text": TEXTS, "n": list(range(len(TEXTS)))})
    ways = {
        "plain": {"compression": "none", "use_dictionary": False},
        "snappy": {"compression": "snappy"},
        "zstd": {"compression": "zstd", "row_group_size": 40, "data_page_version": "2.0"},
        "checked": {"compression": "none", "write_page_checksum": True},
        "small": {
            "compression": "gzip",
            "data_page_size": 64,
            "column_encoding": "DELTA_BYTE_ARRAY",
        },
    }
    for name, options in ways.items():
        (folder / name).mkdir()
        if "column_encoding" in options:
            options["use_dictionary"] = False
            options["column_encoding"] = {"text": "DELTA_BYTE_ARRAY"}
        pq.write_table(table, folder / name / "a.parquet", **options)


def read(folder):
    corpus = TextFiles(folder / "*.parquet", validation=0)
    for _ in corpus.documents("train"):
        pass
    corpus.fingerprint()


def damage(draw, files):
    def footer(draw, content):
        size = 8 + int.from_bytes(content[-8:-4], "little")
        changed = of_bytes(draw, content[-size:-8])
        return content[:-size] + changed + len(changed).to_bytes(4, "little") + b"PAR1"

    return one_of(draw, files, draw(st.sampled_from([of_bytes, footer])), [*files])


def test_damaged_tables(fuzz):
    fuzz(__file__, damage)
