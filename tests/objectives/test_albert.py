"""ALBERT's n-grams: whole words within a text, lengths by 1/n, budgets; and swapped texts."""

from __future__ import annotations

import collections
import itertools

import hypothesis
import numpy as np
import pytest

from t5x_like.core.protocols.data import TokenIds
from t5x_like.objectives.albert import ALBERT, masked_ngrams, ngram_lengths
from t5x_like.objectives.parts.sentence_pairs import SentencePairs
from t5x_like.objectives.parts.words import word_bounds, word_starts
from tests.objectives.binomial import assert_within_5_sigma
from tests.objectives.masked_examples import SEEDS, generator, made
from tests.objectives.texts import FIRST, IDS, VOCABULARIES, text, texts

LENGTHS = ngram_lengths(3, True)


def pair(first: np.ndarray, second: np.ndarray, is_random: int = 0) -> dict[str, np.ndarray]:
    return {"first": first, "second": second, "is_random": np.int32(is_random)}


def ngrams(
    words: tuple[int, int], *, budget: int, seed: int, lengths: tuple[float, ...] = LENGTHS
) -> list[tuple[int, int]]:
    """Those of two texts of so many words, each a token; positions are words."""
    separator, end = words[0] + 1, sum(words) + 2
    fixed = bytes(i in (0, separator, end) for i in range(end + 1))
    return masked_ngrams(
        list(range(end + 2)), separator, fixed, lengths=lengths, budget=budget, rng=generator(seed)
    )


@pytest.mark.slow
@pytest.mark.parametrize("favor_shorter", [True, False])
def test_the_first_ngram_is_as_long_as_drawn(favor_shorter: bool):
    """Shares 6 : 3 : 2, but for the one or two words from which a text has no more words."""
    words, draws = (11, 9), 30_000
    sizes = np.zeros(4, np.int64)
    for seed in range(draws):
        start, end = ngrams(words, budget=20, seed=seed, lengths=ngram_lengths(3, favor_shorter))[0]
        assert 1 <= start < end <= 12 or 13 <= start < end <= 22
        sizes[end - start] += 1
    one, two, three = (6 / 11, 3 / 11, 2 / 11) if favor_shorter else (2 / 11, 3 / 11, 6 / 11)
    last = second_last = 2 / sum(words)
    pmf = [
        0,
        one + (two + three) * last,
        two * (1 - last) + three * second_last,
        three * (1 - last - second_last),
    ]
    assert_within_5_sigma(sizes, pmf, draws)


@pytest.mark.parametrize(
    ("length", "budget", "shares"),
    # Simulated apart from this code, by the published algorithm.
    [(512, 77, (0.569, 0.266, 0.165)), (128, 19, (0.586, 0.263, 0.152))],
)
def test_budget_and_overlaps_shift_the_lengths(length: int, budget: int, shares: tuple):
    sizes, examples = collections.Counter(), 4000 if length == 128 else 1500
    for seed in range(examples):
        found = ngrams(((length - 3) // 2, (length - 2) // 2), budget=budget, seed=seed)
        assert sum(end - start for start, end in found) == budget
        sizes.update(end - start for start, end in found)
    for size, share in enumerate(shares, 1):
        allowed = 0.0006 + 5 * np.sqrt(share * (1 - share) / sizes.total())
        assert abs(sizes[size] / sizes.total() - share) < allowed


def test_an_ngram_shrinks_to_the_budget_and_long_words_are_passed_over():
    # "[CLS] A [SEP]": words of 3, 1, 1 and 4 pieces.
    bounds, fixed = [0, 1, 4, 5, 6, 10, 11], bytes([1, *[0] * 9, 1])
    seen = set()
    for seed in range(300):
        rng = generator(seed)
        found = masked_ngrams(bounds, 5, fixed, lengths=LENGTHS, budget=2, rng=rng)
        seen.add(tuple(sorted(found)))
    assert seen == {((4, 5), (5, 6)), ((4, 6),)}


@hypothesis.given(first=texts(60), second=texts(60), is_random=..., ids=VOCABULARIES, seed=SEEDS)
def test_whole_words_of_either_text_are_masked(
    first: np.ndarray, second: np.ndarray, is_random: bool, ids: TokenIds, seed: int
):
    objective = ALBERT()
    length = len(first) + len(second) + (3 if len(second) else 2)
    features = made(objective, pair(first, second, is_random), length=length, seed=seed, ids=ids)
    a, b = first.tolist(), second.tolist()
    if swapped := features["sentence_order_label"] == 1 and not is_random:
        assert a
        assert b
        a, b = b, a
    assert features["sentence_order_label"] == (swapped or is_random)
    whole = np.array([ids.cls, *a, ids.sep, *b, *([ids.sep] if b else [])])
    n, positions = len(whole), features["masked_positions"]
    masked = np.isin(np.arange(n), positions)
    assert len(positions) == masked.sum() <= max(1, round(0.15 * n))
    assert features["masked_targets"].tolist() == whole[positions].tolist()
    assert features["inputs"][~masked].tolist() == whole[~masked].tolist()
    assert features["token_type_ids"].tolist() == [0] * (len(a) + 2) + [1] * (len(b) + 1) * bool(b)
    assert not set(features["masked_targets"].tolist()) & {ids.cls, ids.sep}
    for start, end in itertools.pairwise(word_bounds(word_starts(whole, ids)).tolist()):
        assert masked[start:end].all() or not masked[start:end].any()


def test_rates_of_swaps_and_of_noise():
    examples, swapped, masked, changed, covered = 2500, 0, 0, 0, 0
    for seed in range(examples):
        sample = pair(text(250, 2 * seed), text(259, 2 * seed + 1))
        features = ALBERT()(sample, generator(seed), IDS)
        swapped += int(features["sentence_order_label"])
        noisy = features["inputs"][features["masked_positions"]]
        covered += len(noisy)
        masked += (noisy == IDS.mask).sum()
        changed += (noisy != features["masked_targets"]).sum()
    assert_within_5_sigma([swapped], [0.5], examples)
    assert covered / (512 * examples) == pytest.approx(77 / 512, abs=0.0005)
    random = 0.1 / IDS.vocab_size
    assert_within_5_sigma([masked, changed], [0.8 + random, 0.9 - random], covered)


def test_noise_depends_on_the_generator_alone():
    sample = pair(text(60, 1), text(60, 2))

    def noisy(seed: int) -> list[int]:
        return ALBERT()(sample, generator(seed), IDS)["inputs"].tolist()

    assert noisy(1) == noisy(1)
    assert len({tuple(noisy(seed)) for seed in range(10)}) == 10


def test_predictions_can_be_fewer():
    objective = ALBERT(max_predictions=20)
    features = objective(pair(text(250, 1), text(259, 2)), generator(1), IDS)
    assert len(features["masked_positions"]) == 20
    assert objective.features({"inputs": 512})["masked_targets"].length == 20
    assert objective.features({"inputs": 128})["masked_targets"].length == 19


def test_a_word_longer_than_the_budget_stays():
    rest = np.full(30, FIRST + 20)
    features = ALBERT()(pair(rest, rest), generator(1), IDS)
    assert len(features["masked_positions"]) == 0


def test_geometry_leaves_room_for_the_special_tokens():
    assert ALBERT().geometry({"inputs": 512}) == SentencePairs(509, random_probability=0.0)


def test_a_text_is_gone_through_anew_for_each_duplicate():
    pairs = ALBERT(dupe_factor=40).geometry({"inputs": 512})
    assert pairs == SentencePairs(509, passes=40, random_probability=0.0)


@pytest.mark.parametrize(
    "fields", [{"ngram": 0}, {"masked_rate": 1.5}, {"max_predictions": 0}, {"dupe_factor": 0}]
)
def test_fields_out_of_range(fields: dict[str, float]):
    with pytest.raises(ValueError, match="ALBERT: "):
        ALBERT(**fields)
