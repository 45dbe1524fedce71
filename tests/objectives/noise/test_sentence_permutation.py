"""Sentence permutation: where sentences end, and every order of them as likely."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from t5x_like.core.protocols.data import TokenIds
from t5x_like.objectives.noise.sentence_permutation import SentencePermutation, sentence_ends

STOP = 1
STOPS = np.zeros(100, np.bool_)
STOPS[[STOP, 2]] = True
IDS = TokenIds(vocab_size=100, full_stops=STOPS)


def generator(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=seed))


def tokens_of(written: str) -> np.ndarray:
    """A letter is a token, "." and "!" are full stops."""
    ids = {".": STOP, "!": 2}
    return np.array([ids.get(c, ord(c) - ord("a") + 10) for c in written], np.int32)


@pytest.mark.parametrize(
    ("written", "ends"),
    [
        ("", []),
        ("a", [1]),
        (".", [1]),
        ("ab.c!", [3, 5]),
        ("ab.cde", [3, 6]),
        # Three dots divide after the first; the other two begin the next sentence.
        ("a...bc.", [2, 7]),
        ("a.!bc.", [2, 6]),
        # The second of two stops at the end is in no sentence.
        ("a.b..", [2, 4]),
        ("...", [1]),
        (".a.", [1, 3]),
    ],
)
def test_where_sentences_end(written: str, ends: list[int]):
    assert sentence_ends(tokens_of(written), IDS).tolist() == ends


def sentences_of(stops: list[bool]) -> tuple[list[list[int]], list[int]]:
    """The rule, read token by token: the sentences (positions), and what is left after them."""
    sentences, start = [], 0
    for i in range(len(stops)):
        stop = stops[i] or i == len(stops) - 1
        if stop and not (i > 0 and stops[i - 1]):
            sentences.append(list(range(start, i + 1)))
            start = i + 1
    return sentences, list(range(start, len(stops)))


@hypothesis.given(
    stops=st.lists(st.booleans(), max_size=80),
    share=st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0, 1)),
    seed=st.integers(0, 2**32),
)
def test_sentences_are_kept_and_at_most_the_share_moves(stops: list, share: float, seed: int):
    # Each position is a token of its own, so that nothing is mistaken for something else.
    ids = TokenIds(vocab_size=len(stops), full_stops=np.array(stops, np.bool_))
    tokens = np.arange(len(stops), dtype=np.int32)
    noise = SentencePermutation(share)
    result = noise(tokens, generator(seed), ids)
    assert result.dtype == np.int32
    assert tokens.tolist() == list(range(len(stops)))
    assert result.tolist() == noise(tokens, generator(seed), ids).tolist()
    sentences, tail = sentences_of(stops)
    by_first = {sentence[0]: i for i, sentence in enumerate(sentences)}
    order = [by_first[token] for token in result.tolist() if token in by_first]
    assert sorted(order) == list(range(len(sentences)))
    assert result.tolist() == [*(t for i in order for t in sentences[i]), *tail]
    assert sum(i != j for i, j in enumerate(order)) <= math.ceil(len(sentences) * share)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_every_order_is_as_likely(n: int):
    written = "".join(c + "." for c in "abcd"[:n])
    tokens, draws, rng = tokens_of(written), 4000, generator(n)
    orders = Counter(
        tuple(SentencePermutation()(tokens, rng, IDS)[::2].tolist()) for _ in range(draws)
    )
    p = 1 / math.factorial(n)
    assert set(orders) == set(itertools.permutations(tokens[::2].tolist()))
    for count in orders.values():
        assert abs(count - draws * p) <= 5 * math.sqrt(draws * p * (1 - p)) + 1e-9


def test_half_of_four_sentences():
    tokens, draws, rng = tokens_of("a.b.c.d."), 4000, generator(5)
    orders = Counter(
        tuple(SentencePermutation(0.5)(tokens, rng, IDS)[::2].tolist()) for _ in range(draws)
    )
    # Two of the four, each pair as likely, are exchanged or not.
    assert len(orders) == 1 + 6
    for order, count in orders.items():
        p = 1 / 2 if order == tuple(tokens[::2].tolist()) else 1 / 12
        assert abs(count - draws * p) <= 5 * math.sqrt(draws * p * (1 - p))


def test_a_text_without_full_stops_is_one_sentence():
    tokens = np.arange(10, 60, dtype=np.int32)
    for seed in range(5):
        assert np.array_equal(SentencePermutation()(tokens, generator(seed), IDS), tokens)


def test_fields():
    assert repr(SentencePermutation(1)) == "SentencePermutation(share=1.0)"
    with pytest.raises(ValueError, match="SentencePermutation: share is between"):
        SentencePermutation(-1)
