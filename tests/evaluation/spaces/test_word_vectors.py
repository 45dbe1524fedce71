"""Files of word vectors: they come back as they were, and damaged ones are refused by name."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from t5x_like.evaluation.spaces import word_vectors
from t5x_like.evaluation.spaces.word_vectors import WordVectors
from t5x_like.vocabularies.learning.subword_training import train_words
from t5x_like.vocabularies.passthrough import PassThroughVocabulary

WORDS = ["the", "Straße", "7", "日本", "don't"]
VECTORS = np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32)
MADE = WordVectors(WORDS, VECTORS)


@pytest.mark.parametrize(("name", "header"), [("a.vec", True), ("a.txt", False), ("a.bin", True)])
def test_what_is_written_comes_back(name: str, header: bool, tmp_path: Path) -> None:
    path = tmp_path / name
    word_vectors.write(path, MADE, header=header)
    for limit in (None, 3):
        found = word_vectors.read(path, limit=limit)
        assert [*found.words] == WORDS[:limit]
        np.testing.assert_array_equal(found.vectors, VECTORS[:limit])


def test_the_forms_are_those_of_word2vec_and_glove(tmp_path: Path) -> None:
    """As their authors' programs write them: with and without ends of lines, words with spaces."""
    numbers = np.array([[1.5, -2], [0.25, 3]], "<f4")
    (tmp_path / "no_ends.bin").write_bytes(
        b"2 2\nin " + numbers[0].tobytes() + b"of " + numbers[1].tobytes() + b"\n\n"
    )
    (tmp_path / "a.vec").write_text("2 2\nin 1.5 -2 \nof 0.25 3 \n")
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"in 1.5 -2\n. . . 0.25 3\n"))
    for name in ("no_ends.bin", "a.vec", "b.txt.gz"):
        found = word_vectors.read(tmp_path / name)
        assert [*found.words] == (["in", ". . ."] if "gz" in name else ["in", "of"])
        np.testing.assert_array_equal(found.vectors, numbers)


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("a.vec", b"3 2\nin 1 2\nof 3 4\n", "says that it has 3 words, and has 2"),
        ("a.vec", b"2 2\nin 1 2\nof 3\n", "a.vec:3: not a word and 2 numbers"),
        ("a.txt", b"in 1 2\nof 3 four\n", "a.txt:2: could not convert.*'four'"),
        ("a.txt", b"in 1 nan\n", "the vector of 'in' has numbers that are not finite"),
        ("a.txt", b"", "no word vectors in its first line"),
        ("a.txt", b"word\n", "a.txt:1: not a word and 0 numbers"),
        ("a.bin", b"2 2\nin 12345678", "too short for 2 words"),
        ("a.bin", b"1000000000 300\nin 1", "too short for 1,000,000,000 words"),
        ("a.bin", b"in 1 2\n", "does not begin with its numbers"),
        ("a.bin", b"1 2\n" + b"x" * 20, "ends in the middle of its word 1"),
    ],
)
def test_damaged_files_are_refused(name: str, content: bytes, why: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=why):
        word_vectors.read(tmp_path / name)


def test_a_word_with_a_space_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'of the' is empty or has white space"):
        word_vectors.write(tmp_path / "a.vec", WordVectors(["of the"], VECTORS[:1]))
    assert not [*tmp_path.iterdir()]


def test_tokens_that_begin_words_are_the_words_of_a_table() -> None:
    vocabulary = train_words(["to be or not to be"] * 2, size=20, extra_ids=3, lowercase=False)
    table = np.arange(2.0 * vocabulary.vocab_size).reshape(-1, 2)
    found = word_vectors.of_table(table, vocabulary)
    assert {*found.words} == {"to", "be", "or", "not"}
    for word, vector in zip(found.words, found.vectors, strict=True):
        np.testing.assert_array_equal(vector, table[vocabulary.encode(word)[0]])
    with pytest.raises(ValueError, match="no tokens that are words"):
        word_vectors.of_table(table, PassThroughVocabulary(9))
