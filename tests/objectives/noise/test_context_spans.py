"""Spans with context: exact counts, and where they fall against closed forms."""

from __future__ import annotations

import math

import hypothesis
import hypothesis.strategies as st
import numpy as np

from t5x_like.objectives.noise.context_spans import context_spans
from t5x_like.objectives.parts.drawing import thresholds, uniforms

LENGTHS = [1 / n for n in range(1, 6)]
PMF = [weight / sum(LENGTHS) for weight in LENGTHS]
CONTEXT = 6


def generator(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=seed))


def marked(starts: np.ndarray, goal: int, rng: np.random.Generator, draws: int = 1) -> np.ndarray:
    """bool [draws, n]."""
    numbers, some = uniforms(rng), starts.astype(np.bool_).tobytes()
    rows = [
        context_spans(some, goal, lengths=thresholds(LENGTHS), context=CONTEXT, draws=numbers)
        for _ in range(draws)
    ]
    return np.array([np.frombuffer(row, np.bool_) for row in rows])


def outcomes(length: int, goal: int) -> list[float]:
    """P(m tokens are in spans when no further one fits), where each token begins a word.

    A span of n leaves 6 n tokens beside it: after m tokens, 7 m of the text are used.
    """
    reached, ended = [1.0] + [0.0] * goal, [0.0] * (goal + 1)
    for m in range(goal + 1):
        for n, p in enumerate(PMF, start=1):
            n = min(n, goal - m)
            fits = min(max(length - 7 * m - n, 0), 6 * n) / (6 * n) if n else 0
            ended[m] += reached[m] * p * (1 - fits)
            if fits:
                reached[m + n] += reached[m] * p * fits
    return ended


def marked_probability(position: int, length: int, goal: int) -> float:
    """P(a position is marked), where each token begins a word."""
    not_yet = [0.0] * (goal + 1)
    for m in range(goal, -1, -1):
        alone = (goal - m) / (length - m)
        for n, p in enumerate(PMF, start=1):
            n = min(n, goal - m)
            starts = range(7 * m, min(7 * m + 6 * n, length - n))
            if n:
                covering = sum(start <= position < start + n for start in starts)
                q = covering + (len(starts) - covering) * (not_yet[m + n] if starts else 0)
                not_yet[m] += p * (q + (6 * n - len(starts)) * alone) / (6 * n)
            else:
                not_yet[m] += p * alone
    return not_yet[0]


def test_where_marks_fall():
    length, goal, draws = 256, 43, 6000
    ended = outcomes(length, goal)
    assert math.isclose(sum(ended), 1)
    # The published code leaves 6.7 of the 43 to single tokens.
    assert math.isclose(sum(m * p for m, p in enumerate(ended)), 36.3, abs_tol=0.05)
    expected = np.array([marked_probability(i, length, goal) for i in range(length)])
    assert math.isclose(expected.sum(), goal)
    counts = marked(np.ones(length), goal, generator(1), draws).sum(axis=0)
    assert counts.sum() == draws * goal
    assert np.all(
        np.abs(counts - draws * expected) < 5 * np.sqrt(draws * expected * (1 - expected))
    )
    # No span reaches the last token: what marks it are single tokens alone.
    last = sum(p * (goal - m) / (length - m) for m, p in enumerate(ended))
    assert math.isclose(expected[-1], last)


def test_lengths_and_contexts_of_spans():
    draws, length = 20_000, 256
    # The text has room for all five: each mark is in a span, and the first span is drawn freely.
    rows = marked(np.ones(length), 5, generator(2), draws)
    first = rows.argmax(axis=1)
    size = np.array([np.argmin(row[i:]) for row, i in zip(rows, first, strict=True)])
    counts = np.bincount(size, minlength=6)[1:]
    for n, (count, p) in enumerate(
        zip(counts, [0.438, 0.219, 0.146, 0.109, 0.088], strict=True), 1
    ):
        assert abs(p - PMF[n - 1]) < 5e-4
        assert abs(count - draws * PMF[n - 1]) < 5 * math.sqrt(draws * PMF[n - 1])
        # Between 0 and 6 n - 1 tokens of context are on the left, each as likely.
        places = np.bincount(first[size == n], minlength=6 * n)
        assert len(places) == 6 * n
        assert np.abs(places - count / (6 * n)).max() < 5 * math.sqrt(count / (6 * n))


def test_spans_begin_words():
    starts = np.zeros(400)
    starts[3::7] = 1
    for row in marked(starts, 8, generator(3), 200):
        begins = np.flatnonzero(np.diff(row.astype(int), prepend=0) == 1)
        assert np.all(begins % 7 == 3)


def test_without_a_word_to_begin_all_are_single_tokens():
    counts = marked(np.zeros(20), 5, generator(4), 4000).sum(axis=0)
    assert np.abs(counts - 1000).max() < 5 * math.sqrt(4000 * 3 / 16)


@hypothesis.given(
    starts=st.lists(st.booleans(), max_size=300),
    share=st.floats(0, 1),
    context=st.integers(1, 10),
    longest=st.integers(1, 8),
    seed=st.integers(0, 2**32),
)
def test_as_many_as_asked(starts: list[bool], share: float, context: int, longest: int, seed: int):
    goal = round(share * len(starts))
    lengths = thresholds([1 / n for n in range(1, longest + 1)])

    def draw(seed: int) -> bytearray:
        numbers = uniforms(generator(seed))
        return context_spans(bytes(starts), goal, lengths=lengths, context=context, draws=numbers)

    found = draw(seed)
    assert len(found) == len(starts)
    assert sorted(found) == [0] * (len(starts) - goal) + [1] * goal
    assert found == draw(seed)


def test_uniforms_are_those_of_the_generator():
    numbers = uniforms(generator(6))
    assert np.allclose([next(numbers) for _ in range(300)], generator(6).random(300), rtol=0)
