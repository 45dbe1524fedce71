"""Text files of several formats, whose cache has everything that is hard to divide."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from t5x_like.data.corpora.text_files import TextFiles


def write_texts(folder: Path) -> None:
    folder.mkdir()
    words = "alpha beta gamma delta epsilon zeta eta theta iota kappa".split()
    lines = [" ".join(words[: 1 + (i * 7) % 10]) + f" {i}." for i in range(300)]
    (folder / "a.txt").write_text("\n\n \n".join(lines[:60]) + "\n\n\n")
    rows = [json.dumps({"text": line, "other": i}) for i, line in enumerate(lines)]
    rows[7] = '{"text": "broken \\udc80 text"}'
    rows[9] = '{"text": ""}'
    with gzip.open(folder / "b.jsonl.gz", "wt") as file:
        file.write("\n".join(rows))
    (folder / "c.tsv").write_text(
        "id\ttext\n" + "".join(f"{i}\t{t}\n" for i, t in enumerate(lines))
    )
    # Two documents that come in pieces, the second with a piece that is no UTF-8.
    long = ("a line of a long document. " * 20 + "\n").encode() * 2500
    broken = long[: len(long) // 2] + b"\xff" + long[len(long) // 2 :]
    (folder / "d.txt").write_bytes(long + b"\n\nshort one\n\n" + broken + "\n\nthe end é".encode())
    (folder / "e.txt").write_bytes(b"bad \xff bytes\n\n" + "\n\n".join(lines[60:]).encode())
    (folder / "f.txt").write_text("")
    (folder / "g.jsonl").write_text(json.dumps({"text": lines[0]}) + "\n")


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts") / "text"
    write_texts(folder)
    return folder


@pytest.fixture
def corpora(texts: Path, tmp_path: Path) -> dict[str, Callable[[], TextFiles]]:
    """Corpora by name; each is made anew, because a corpus remembers its files."""
    pairs = "".join(f"question {i % 13}\tanswer {i}\n" for i in range(200))
    (tmp_path / "pairs.tsv").write_text("inputs\ttargets\n" + pairs)
    (tmp_path / "one.txt").write_text("only one document")
    (tmp_path / "same.txt").write_text("twice\n\ntwice\n\n")
    (tmp_path / "two.txt").write_text("twice\n\nanother\n\n")
    every = [texts / "*"]
    return {
        "mixed": lambda: TextFiles(every, validation=0.05),
        "nothing held out": lambda: TextFiles(every, validation=0.0),
        "validation files": lambda: TextFiles(every, validation_files=[texts / "[ce].*"]),
        "lines": lambda: TextFiles([texts / "[ae].txt"], separator="line", validation=0.5),
        "pairs": lambda: TextFiles([tmp_path / "pairs.tsv"], validation=0.2),
        "one document": lambda: TextFiles([tmp_path / "one.txt"]),
        "second document in another file": lambda: TextFiles(
            [tmp_path / "one.txt", tmp_path / "same.txt", tmp_path / "two.txt"], validation=0.01
        ),
    }
