"""Minimal pairs: their files, what is preferred, and the floors beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from t5x_like.evaluation.language import minimal_pairs
from t5x_like.evaluation.language.minimal_pairs import MinimalPair
from t5x_like.evaluation.language.results import Settings
from t5x_like.vocabularies.characters import CharacterVocabulary


def written(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_blimp_clams_and_tables_are_read(tmp_path: Path) -> None:
    blimp = {"sentence_good": "I am.", "sentence_bad": "I is.", "UID": "u", "linguistics_term": "t"}
    file = written(tmp_path, "a.jsonl", json.dumps(blimp) + "\n")
    assert minimal_pairs.read(file) == [MinimalPair("I am.", "I is.", "u", "t")]
    clams = "True\tthe author laughs\nFalse\tthe author laugh\nFalse\tthe author laughing\n"
    for name in ("simple.txt", "simple.tsv"):
        pairs = minimal_pairs.read(written(tmp_path, name, clams))
        assert [pair.bad for pair in pairs] == ["the author laugh", "the author laughing"]
        assert {pair.good for pair in pairs} == {"the author laughs"}
        assert {pair.paradigm for pair in pairs} == {"simple"}
    for name, text in (("n.tsv", "good\tbad\na b\ta c\n"), ("b.tsv", "a b\ta c\n")):
        (pair,) = minimal_pairs.read(written(tmp_path, name, text))
        assert (pair.good, pair.bad) == ("a b", "a c")


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("a.txt", "False\ta b\n", r"a\.txt:1: .*lines True<tab>sentence"),
        ("a.tsv", "x\ty\tz\n1\t2\t3\n", "has the columns x, y, z: pairs are read from"),
        ("a.tsv", "correct\twrong\na b\ta c\n", "looks like names of columns"),
        (
            "a.jsonl",
            '{"sentence_good": "a", "sentence_bad": 3}\n',
            "row 1: the field 'sentence_bad'",
        ),
        ("a.txt", "True\ta b\n", "has no pairs"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, name: str, text: str, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        minimal_pairs.read(written(tmp_path, name, text))


def test_a_tie_counts_as_half() -> None:
    assert minimal_pairs.preferences([3.0, 1.0, 2.0], [2.0, 1.0, 5.0]).tolist() == [1, 0.5, 0]


class Letters:
    """A model to which a sentence is the likelier, the more letters x it has."""

    vocabulary = CharacterVocabulary(" abx")
    batch_size = 4
    model = None

    def predictor(self, ask: Any, **options: Any) -> Any:
        assert (ask, options) == ("score", {"batch_size": 32})
        return self

    def check(self, record: Any) -> None: ...

    def __call__(self, records: Any) -> Any:
        return [{"log_likelihood": record["inputs"].count("x")} for record in records]


def test_a_table_has_phenomena_paradigms_and_floors(tmp_path: Path) -> None:
    rows = [("xx", "xa", "p", "one"), ("x", "xb", "q", "one"), ("ab", "xx", "r", "two")]
    names = ("sentence_good", "sentence_bad", "UID", "linguistics_term")
    lines = (json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows)
    file = written(tmp_path, "a.jsonl", "".join(lines))
    vocabulary = Letters.vocabulary
    counts = np.zeros(vocabulary.vocab_size)
    counts[vocabulary.encode("abx")] = [7, 3, 1]
    results = minimal_pairs.evaluate(Letters(), file, Settings(counts=counts))
    values = {row.name: (row.size, *row.values.values()) for row in results.rows}
    # Unigram: a is likelier than x, and any token less makes a sentence likelier.
    assert values["one/p"] == (1, 1.0, 0.0, 0.5)
    assert values["one/q"] == (1, 0.5, 1.0, 1.0)
    assert values["one"] == (2, 0.75, 0.5, 0.75)
    assert values["two"] == (1, 0.0, 1.0, 0.5)
    assert values["all"] == pytest.approx((3, 0.5, 2 / 3, 2 / 3))
    assert list(values) == ["one", "one/p", "one/q", "two", "all"]
    without = minimal_pairs.evaluate(Letters(), file, Settings(examples=2))
    assert without.rows[-1].size == 2
    assert any("no unigram" in note for note in without.notes)
    assert "2 of 3 pairs, drawn with seed 0" in without.notes
