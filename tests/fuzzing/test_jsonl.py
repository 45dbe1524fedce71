"""JSON lines: a row a document."""

from __future__ import annotations

import json

from hypothesis import strategies as st
from mutations import of_bytes, of_json, of_text, one_of

from t5x_like.data.corpora.text_files import TextFiles

ROWS = [{"text": f"a text {i} é", "n": i, "inside": {"list": [1, None, "x"]}} for i in range(6)]
PAIRS = [{"inputs": f"question {i}", "targets": f"answer {i}"} for i in range(6)]


def make(folder):
    for name, rows in (("text", ROWS), ("pairs", PAIRS)):
        (folder / name).mkdir()
        lines = [json.dumps(row, ensure_ascii=False) for row in rows]
        (folder / name / "a.jsonl").write_text("\n".join(lines))


def read(folder):
    corpus = TextFiles(folder / "*.jsonl", validation=0)
    for _ in corpus.documents("train"):
        pass
    corpus.fingerprint()


def damage(draw, files):
    def rows(draw, content):
        lines = content.split(b"\n")
        at = draw(st.integers(0, len(lines) - 1))
        lines[at] = of_json(draw, lines[at])
        return b"\n".join(lines)

    change = draw(st.sampled_from([of_bytes, of_text, rows, rows]))
    return one_of(draw, files, change, ["a.jsonl"])


def test_damaged_rows(fuzz):
    fuzz(__file__, damage)
