"""Text infilling: span lengths, budgets in words, merging, insertions, the published figures."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from t5x_like.core.protocols.data import TokenIds
from t5x_like.objectives.noise.text_infilling import (
    TextInfilling,
    insert_masks,
    outside_spans,
    poisson_table,
    span_lengths,
)

MASK = 5
FIRST = 10
shares = st.one_of(st.sampled_from([0.0, 0.3, 1.0]), st.floats(0, 1))
means = st.one_of(st.sampled_from([1.0, 3.0, 3.5]), st.floats(1, 100))


def generator(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=seed))


def vocabulary(begins: list[bool]) -> TokenIds:
    """One piece for each position of a text, so that every token can be told apart."""
    starts = np.concatenate([np.zeros(FIRST, np.bool_), np.array(begins, np.bool_)])
    return TokenIds(vocab_size=len(starts), mask=MASK, word_starts=starts)


def text(length: int) -> np.ndarray:
    return np.arange(FIRST, FIRST + length, dtype=np.int32)


def assert_mean(draws: np.ndarray, expected: float, rounding: float = 0.0) -> None:
    assert abs(draws.mean() - expected) <= 5 * draws.std() / math.sqrt(len(draws)) + rounding


@pytest.mark.parametrize(
    ("mean", "values", "zero", "positive_mean"),
    [(3.0, 18, 0.0498, 3.157), (3.5, 19, 0.0302, 3.609)],
)
def test_table_of_lengths(mean: float, values: int, zero: float, positive_mean: float):
    table = poisson_table(mean)
    assert len(table) == values
    assert table[-1] == 1
    pmf = np.diff(table, prepend=0)
    expected = [math.exp(-mean) * mean**k / math.factorial(k) for k in range(values)]
    np.testing.assert_allclose(pmf, expected, rtol=1e-6)
    assert math.isclose(pmf[0], zero, abs_tol=5e-5)
    assert math.isclose(mean / (1 - math.exp(-mean)), positive_mean, abs_tol=1e-3)
    assert math.isclose(pmf @ np.arange(values) / (1 - pmf[0]), positive_mean, abs_tol=1e-3)


@pytest.mark.parametrize("mean", [3.0, 3.5])
def test_lengths_are_poisson_until_the_budget_is_spent(mean: float):
    budget, draws, rng = 120, 8000, generator(1)
    drawn = [span_lengths(budget, mean, rng) for _ in range(draws)]
    assert {int(lengths.sum()) for lengths, _ in drawn} == {budget}
    first = np.array([lengths[0] for lengths, _ in drawn])
    assert_mean(first, mean / (1 - math.exp(-mean)))
    for k, count in Counter(first.tolist()).items():
        p = math.exp(-mean) * mean**k / math.factorial(k) / (1 - math.exp(-mean))
        assert k > 0
        assert abs(count - draws * p) <= 5 * math.sqrt(draws * p) + 1
    # Sums overshoot by E[X(X-1)] / 2E[X] = mean / 2: that many draws by Wald, e^-mean of them 0.
    number = budget / mean + 1 / 2
    zeros = np.array([zeros for _, zeros in drawn])
    spans = np.array([len(lengths) for lengths, _ in drawn])
    assert_mean(zeros, number * math.exp(-mean))
    assert_mean(spans, number * (1 - math.exp(-mean)))
    # As computed elsewhere, from 4,000 draws.
    assert_mean(spans, {3.0: 38.4, 3.5: 33.8}[mean], rounding=0.05 + 5 * spans.std() / 4000**0.5)


@pytest.mark.parametrize(
    ("words", "mean", "covered", "deviation", "masks", "length"),
    [
        (400, 3.0, 0.2669, 0.0112, 31.3 + 2.04, 326.6),
        (400, 3.5, 0.2668, 0.0119, 27.3 + 1.03, 321.6),
        (100, 3.0, 0.2681, 0.0220, 8.35 + 0.53, 82.1),
    ],
)
def test_figures_of_the_published_rule(
    words: int, mean: float, covered: float, deviation: float, masks: float, length: float
):
    """Simulated elsewhere, with 4,000 draws; disjoint spans would cover 0.3."""
    draws, ids, tokens, rng = 4000, vocabulary([True] * words), text(words), generator(2)
    noise = TextInfilling(0.3, mean)
    results = [noise(tokens, rng, ids) for _ in range(draws)]
    lengths = np.array([len(result) for result in results])
    found = np.array([(result == MASK).sum() for result in results])
    hidden = 1 - (lengths - found) / words
    # Both means are of so many draws.
    for values, expected, rounding in (
        (hidden, covered, 5e-5),
        (found, masks, 0.055),
        (lengths, length, 0.05),
    ):
        assert_mean(values, expected, rounding=rounding + 5 * values.std() / math.sqrt(4000))
    assert abs(hidden.std() / deviation - 1) <= 5 * math.sqrt(1 / draws) + 0.01


def words_left() -> dict[tuple[int, ...], float]:
    """P(these of 5 words are left) for a budget of 3 words and a mean of 3, case by case."""
    positive = [0, *(3**k / math.factorial(k) / (math.exp(3) - 1) for k in (1, 2))]
    at_least = {1: 1, 2: 1 - positive[1], 3: 1 - positive[1] - positive[2]}
    lengths = {
        (3,): at_least[3],
        (1, 2): positive[1] * at_least[2],
        (2, 1): positive[2] * at_least[1],
        (1, 1, 1): positive[1] ** 2 * at_least[1],
    }
    left: Counter = Counter()
    for sizes, p in lengths.items():
        for firsts in itertools.permutations(range(5), len(sizes)):
            spans = zip(firsts, sizes, strict=True)
            hidden = {word for first, size in spans for word in range(first, first + size)}
            left[tuple(sorted(set(range(5)) - hidden))] += p / math.perm(5, len(sizes))
    return left


@pytest.mark.slow
def test_every_outcome_of_a_short_text_has_its_probability():
    expected, draws = words_left(), 40_000
    assert math.isclose(sum(expected.values()), 1)
    ids, tokens, rng, noise = vocabulary([True] * 5), text(5), generator(3), TextInfilling(0.6)
    found: Counter = Counter()
    for _ in range(draws):
        result = noise(tokens, rng, ids)
        found[tuple((result[result != MASK] - FIRST).tolist())] += 1
    assert set(found) <= set(expected)
    for words, p in expected.items():
        assert abs(found[words] - draws * p) <= 5 * math.sqrt(draws * p * (1 - p)), words


@hypothesis.given(
    spans=st.lists(
        st.tuples(st.integers(0, 50), st.integers(1, 12)), unique_by=lambda span: span[0]
    ),
    extra=st.integers(1, 20),
)
def test_spans_merge_where_one_runs_over_the_start_of_another(spans: list, extra: int):
    length = max((start for start, _ in spans), default=0) + extra
    starts = [start for start, _ in spans]
    ends = [min(start + size, length) for start, size in spans]
    removed = {i for start, end in zip(starts, ends, strict=True) for i in range(start + 1, end)}
    outside = outside_spans(np.array(starts, np.int64), np.array(ends, np.int64), length)
    assert outside.tolist() == [i not in removed for i in range(length)]


@hypothesis.given(
    begins=st.lists(st.booleans(), max_size=150),
    rate=shares,
    mean=means,
    seed=st.integers(0, 2**32),
)
@hypothesis.example(begins=[], rate=0.3, mean=3.0, seed=0)
@hypothesis.example(begins=[True], rate=0.3, mean=3.0, seed=0)
@hypothesis.example(begins=[False], rate=0.3, mean=3.0, seed=0)
def test_whole_words_vanish_and_the_others_keep_their_order(
    begins: list[bool], rate: float, mean: float, seed: int
):
    n, tokens, ids = len(begins), text(len(begins)), vocabulary(begins)
    noise = TextInfilling(rate, mean)
    result = noise(tokens, generator(seed), ids)
    assert result.dtype == np.int32
    assert np.array_equal(tokens, text(n))
    assert np.array_equal(result, noise(tokens, generator(seed), ids))
    assert len(result) <= n
    kept = result[result != MASK]
    assert (np.diff(kept) > 0).all()
    word_of = np.cumsum([True, *begins[1:]][:n])
    words = len(set(word_of.tolist()))
    left = set(word_of[kept - FIRST].tolist())
    assert len(kept) == sum(1 for word in word_of.tolist() if word in left)
    budget = math.ceil(words * rate)
    assert words - len(left) <= budget
    assert (words > len(left)) == (budget > 0) == (MASK in result)


@pytest.mark.parametrize(("words", "budget"), [(1, 1), (3, 1), (4, 2), (10, 3), (11, 4)])
def test_the_budget_is_rounded_up(words: int, budget: int):
    # Spans of many words each: one span, cut to the budget, from a random word to the end at most.
    ids, tokens = vocabulary([True] * words), text(words)
    results = [TextInfilling(0.3, 100.0)(tokens, generator(seed), ids) for seed in range(200)]
    hidden = [words - (result != MASK).sum() for result in results]
    assert max(hidden) == budget
    assert {(result == MASK).sum() for result in results} == {1}
    starts = Counter(int(np.argmax(result == MASK)) for result in results)
    assert sorted(starts) == list(range(words))


def test_a_text_of_one_word_is_one_mask():
    ids = vocabulary([True, False, False, False])
    # An empty span may come before, for which the word has made room.
    for seed in range(20):
        assert set(TextInfilling()(text(4), generator(seed), ids).tolist()) == {MASK}
    # A single piece makes no room.
    ids = vocabulary([True])
    for seed in range(50):
        assert TextInfilling()(text(1), generator(seed), ids).tolist() == [MASK]


def test_special_tokens_are_words_by_themselves():
    ids = TokenIds(vocab_size=100, mask=MASK, word_starts=np.zeros(100, np.bool_))
    noise = TextInfilling(0.3, mean_span_length=100.0)
    # Spans that long are one here. No piece begins a word: 20 of them are a single one.
    assert noise(text(20), generator(0), ids).tolist() == [MASK]
    special = np.array([ids.eos, ids.unk] * 10, np.int32)
    hidden = [20 - (noise(special, generator(seed), ids) != MASK).sum() for seed in range(50)]
    assert max(hidden) == 6


def test_inserted_masks_are_anywhere():
    draws, rng = 6000, generator(4)
    ids, tokens = vocabulary([True] * 3), text(3)
    places = Counter(
        tuple(np.flatnonzero(insert_masks(tokens, 2, rng, ids=ids, mask_random=0.0) == MASK))
        for _ in range(draws)
    )
    assert len(places) == math.comb(5, 2)
    p = 1 / math.comb(5, 2)
    for count in places.values():
        assert abs(count - draws * p) <= 5 * math.sqrt(draws * p * (1 - p))
    # One of two is a random id, either as likely.
    many = TokenIds(vocab_size=1_000_000, mask=0)
    first = [
        insert_masks(tokens[:0], 2, rng, ids=many, mask_random=0.5)[0] == 0 for _ in range(draws)
    ]
    assert abs(sum(first) - draws / 2) <= 5 * math.sqrt(draws / 4)
    result = insert_masks(tokens, 4, rng, ids=ids, mask_random=0.0)
    assert result[result != MASK].tolist() == tokens.tolist()
    assert result.dtype == np.int32
    assert insert_masks(text(0), 2, rng, ids=ids, mask_random=0.0).tolist() == [MASK, MASK]


@pytest.mark.parametrize(("count", "random"), [(1, 1), (10, 1), (11, 2), (20, 2)])
def test_the_share_of_random_ids_among_insertions_is_rounded_up(count: int, random: int):
    # Random ids are 1 to 999,999: none is the mask, but once in a million.
    ids = TokenIds(vocab_size=1_000_000, mask=0)
    result = insert_masks(np.zeros(0, np.int32), count, generator(5), ids=ids, mask_random=0.1)
    assert (result != 0).sum() == random


def test_random_ids_in_place_of_masks():
    words, rng = 400, generator(6)
    starts = np.zeros(1_000_000, np.bool_)
    starts[FIRST] = True
    ids = TokenIds(vocab_size=len(starts), mask=0, word_starts=starts)
    tokens = np.full(words, FIRST, np.int32)
    assert (TextInfilling(mask_random=1.0)(tokens, rng, ids) > 0).all()
    # Spans are random with probability 0.1; of k > 0 insertions ceil(k / 10) are, of which about
    # 2.04 are expected: 1 - e^-2.04 of the texts have any.
    found = [TextInfilling(mask_random=0.1)(tokens, rng, ids) for _ in range(1500)]
    random = np.array([((r != FIRST) & (r != 0)).sum() for r in found])
    assert_mean(random, 0.1 * 31.3 + 1 - math.exp(-2.04), rounding=0.03)


def test_draws_depend_on_the_generator():
    ids, tokens = vocabulary([True] * 100), text(100)
    one, other = (TextInfilling()(tokens, generator(seed), ids).tolist() for seed in (1, 2))
    assert one != other


def test_fields_are_checked_and_made_floats():
    assert (
        repr(TextInfilling(1, 3, 0))
        == "TextInfilling(rate=1.0, mean_span_length=3.0, mask_random=0.0)"
    )
    for wrong in (0.5, 101, float("nan")):
        with pytest.raises(ValueError, match="mean_span_length is between 1 and 100 words"):
            TextInfilling(mean_span_length=wrong)
    for field in ("rate", "mask_random"):
        with pytest.raises(ValueError, match=f"TextInfilling: {field} is between 0 and 1"):
            TextInfilling(**{field: 1.5})
