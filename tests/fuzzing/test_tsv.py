"""TSV and CSV: a row a document."""

from __future__ import annotations

from hypothesis import strategies as st
from mutations import of_bytes, of_text, one_of

from t5x_like.data.corpora.text_files import TextFiles

ROWS = [f"question {i}, é\tanswer {i}" for i in range(8)]


def make(folder):
    for name in ("tsv", "csv"):
        (folder / name).mkdir()
    (folder / "tsv" / "a.tsv").write_text("\n".join(["inputs\ttargets", *ROWS]))
    rows = ['"' + row.replace("\t", '","') + '"' for row in ROWS]
    (folder / "csv" / "a.csv").write_text("\n".join(["n,text", *rows, '9,"two\nlines"']))


def read(folder):
    corpus = TextFiles(folder / "a.*", validation=0)
    for _ in corpus.documents("train"):
        pass
    corpus.fingerprint()


def damage(draw, files):
    def quotes(draw, content):
        for _ in range(draw(st.integers(1, 4))):
            at = draw(st.integers(0, len(content)))
            new = draw(st.sampled_from([b'"', b"\t", b"\n", b",", b"\r", b"\0", b'""']))
            content = content[:at] + new + content[at:]
        return content

    return one_of(draw, files, draw(st.sampled_from([of_bytes, of_text, quotes])), [*files])


def test_damaged_rows(fuzz):
    fuzz(__file__, damage)
