"""The last words of passages among their tokens, and the floors beside a model."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from t5x_like.evaluation.language import last_words
from t5x_like.evaluation.language.reading import shared
from t5x_like.inference.likelihoods.likelihood import Span
from t5x_like.vocabularies.characters import CharacterVocabulary
from t5x_like.vocabularies.learning.subword_training import train_byte_bpe, train_wordpiece

WORDPIECE = functools.partial(train_wordpiece, character_coverage=1.0, lowercase=True)

TEXT = "the man walked to the old house and saw the house"


def test_passages_are_lines_or_texts(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one two \nthree four five\n")
    (tmp_path / "a.jsonl").write_text('{"text": "six seven"}\n')
    assert last_words.read(str(tmp_path / "a.txt")) == ["one two", "three four five"]
    assert last_words.read(str(tmp_path / "a.jsonl")) == ["six seven"]
    (tmp_path / "a.txt").write_text("one\n")
    with pytest.raises(ValueError, match="a passage has a last word and a text before it"):
        last_words.read(str(tmp_path / "a.txt"))


@pytest.mark.parametrize("train", [WORDPIECE, train_byte_bpe])
@pytest.mark.parametrize("stop", [False, True])
def test_a_last_word_is_found_among_the_tokens(train, stop: bool) -> None:
    vocabulary = train([TEXT + "."] * 3, size=300, extra_ids=0)
    tokens, begin, end = last_words.span(TEXT, vocabulary, stop=stop)
    assert vocabulary.decode(tokens[begin:end]).strip() == "house"
    assert tokens == list(vocabulary.encode(TEXT + "." * stop))
    assert len(tokens) - end == stop


def test_the_guess_is_the_most_frequent_word_but_for_the_commonest(monkeypatch) -> None:
    monkeypatch.setattr(last_words, "_COMMON", 1)
    passages = ["The dog saw the man, the dog ran to", "the cat saw the dog the house", "the the"]
    assert last_words._guesses(passages) == ["dog", "dog", ""]


def test_unigrams_are_counted_before_last_words() -> None:
    a, b = CharacterVocabulary("ab").encode("ab")
    spans = [Span([a, a, b], 2, 3), Span([a, b], 1, 2)]
    # a occurs 3 times before last words, b never: 1 of 3 + 2.
    assert last_words._unigram(spans) == pytest.approx([-1.6094379] * 2)
    assert last_words._perplexity([-1.6094379] * 2) == pytest.approx(5.0)


def test_sequences_share_their_first_elements() -> None:
    assert shared([1, 2, 3], [1, 2, 4, 5]) == 2
    assert shared([1], [1, 2]) == 1
