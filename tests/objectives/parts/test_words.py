"""Where words begin, against the rule written out, token by token."""

from __future__ import annotations

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from t5x_like.core.protocols.data import TokenIds
from t5x_like.objectives.parts.words import whole_words, word_bounds, word_starts
from tests.objectives.texts import FIRST, IDS, VOCABULARIES, texts

PIECE, REST = FIRST, FIRST + 20


@hypothesis.given(tokens=texts(), ids=VOCABULARIES)
def test_words_begin_where_the_rule_says(tokens: np.ndarray, ids: TokenIds):
    starts = word_starts(tokens, ids)
    assert starts.dtype == np.bool_
    assert starts.tolist() == [
        i == 0 or bool(ids.word_starts[t]) or t in ids.special or tokens[i - 1] in ids.special
        for i, t in enumerate(tokens.tolist())
    ]
    bounds = word_bounds(starts)
    assert bounds.dtype == np.int64
    assert bounds.tolist() == [*(i for i, start in enumerate(starts) if start), len(tokens)]


def test_an_example():
    tokens = np.array([REST, PIECE, REST, REST, IDS.sep, REST, REST, PIECE], np.uint16)
    assert word_bounds(word_starts(tokens, IDS)).tolist() == [0, 1, 4, 5, 7, 8]


def test_without_words_there_is_nothing_to_mask_by():
    with pytest.raises(ValueError, match="word_starts"):
        word_starts(np.array([1]), TokenIds(vocab_size=9))


@hypothesis.given(
    tokens=st.lists(st.integers(0, 8), max_size=30).map(lambda ids: np.array(ids, np.int32)),
    length=st.integers(0, 30),
)
def test_a_text_is_cut_before_a_word(tokens, length):
    kept = whole_words(tokens, length, IDS)
    assert kept.tolist() == tokens[: len(kept)].tolist()
    starts = [
        i for i in range(1, len(tokens)) if IDS.word_starts[tokens[i]] or tokens[i] in IDS.special
    ]
    allowed = [i for i in [*starts, len(tokens)] if i <= length]
    assert len(kept) == (max(allowed) if allowed else length)
