"""The value of CORPUS becomes files or a TFDS data set, with the given options."""

from __future__ import annotations

from pathlib import Path

import pytest

from t5x_like.data.corpora.text_files import TextFiles
from t5x_like.data.corpora.tfds_text import TfdsText
from t5x_like.data.corpora.user_corpus import user_corpus


def test_files_are_read_with_the_options(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n")
    (tmp_path / "b.jsonl").write_text('{"body": "four"}\n')
    lines = user_corpus(str(tmp_path / "a.txt"), separator="line", validation=0.0)
    assert isinstance(lines, TextFiles)
    assert [d["targets"] for d in lines.documents("train")] == ["one", "two", "three"]
    rows = user_corpus([str(tmp_path / "b.jsonl")], field="body", validation=0.0)
    assert [d["targets"] for d in rows.documents("train")] == ["four"]


def test_tfds_is_named_by_its_prefix() -> None:
    corpus = user_corpus("tfds:wiki40b/en", field="text", validation=0.5)
    assert isinstance(corpus, TfdsText)
    assert "wiki40b/en" in corpus.description()


@pytest.mark.parametrize("options", [{"separator": "word"}, {"validation": 1.5}])
def test_option_that_cannot_be_meant(options: dict) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        user_corpus("a.txt", **options)
