"""SpanBERT's spans: exact budgets, whole words, one fate a span, and their boundaries."""

from __future__ import annotations

import itertools
import math

import hypothesis
import numpy as np
import pytest

from t5x_like.core.protocols.data import TokenIds
from t5x_like.objectives.parts.sentence_blocks import SentenceBlocks
from t5x_like.objectives.parts.words import word_bounds, word_starts
from t5x_like.objectives.spanbert import SpanBERT, masked_spans, random_spans, span_lengths
from tests.objectives.binomial import assert_within_5_sigma
from tests.objectives.masked_examples import SEEDS, generator, made
from tests.objectives.texts import IDS, SIZE, VOCABULARIES, text, texts, vocabulary

WORDS = [0, 2, 3, 6, 8, 9]  # Five words: of 2, 1, 3, 2 and 1 pieces.


def runs(positions: np.ndarray) -> list[tuple[int, int]]:
    """Maximal runs of ascending positions, as (start, end)."""
    groups = itertools.groupby(enumerate(positions.tolist()), lambda pair: pair[1] - pair[0])
    found = [[position for _, position in group] for _, group in groups]
    return [(run[0], run[-1] + 1) for run in found]


def test_span_lengths_are_geometric_cut_at_ten_words():
    draws = 200_000
    spans = itertools.islice(random_spans(510, span_lengths(0.2, 10), generator(1)), draws)
    words, tokens = np.array(list(spans)).T
    pmf = np.array([0] + [0.8 ** (length - 1) * 0.2 / (1 - 0.8**10) for length in range(1, 11)])
    published = [0.2241, 0.1792, 0.1434, 0.1147, 0.0918, 0.0734, 0.0587, 0.0470, 0.0376, 0.0301]
    assert pmf[1:] == pytest.approx(published, abs=6e-5)
    assert_within_5_sigma(np.bincount(words), pmf, draws)
    assert abs(words.mean() - 3.797) < 5 * words.std() / math.sqrt(draws) + 0.0005
    assert_within_5_sigma(np.bincount(tokens), np.full(510, 1 / 510), draws)


@pytest.mark.parametrize(
    ("spans", "budget", "masked"),
    [
        ([(1, 4)], 3, [3, 4, 5]),  # From within a word: all of it.
        ([(2, 1)], 3, [0, 1, 2]),
        ([(9, 6)], 3, [6, 7, 8]),  # The text ends before the span.
        ([(2, 0)], 1, [0]),  # Cut within a word where the budget ends.
        ([(1, 2), (5, 2), (1, 8)], 2, [2, 8]),  # The second is void: its token is masked.
        ([(1, 2), (3, 0)], 5, [0, 1, 2, 3, 4]),  # Passes over what is masked; then is cut.
        ([(1, 8), (2, 7)], 3, [6, 7, 8]),
        ([], 0, []),
    ],
)
def test_spans_are_masked_up_to_the_budget(spans, budget, masked):
    found = masked_spans(WORDS, iter(spans), budget)
    assert np.flatnonzero(found).tolist() == masked
    assert len(found) == 9


def test_a_truncated_span_may_run_over_masked_tokens_at_its_end():
    # Word 2 is masked (3, 4, 5); of words 1 to 4 the budget allows tokens 2 and 6.
    found = masked_spans(WORDS, iter([(1, 3), (4, 2)]), 5)
    assert np.flatnonzero(found).tolist() == [2, 3, 4, 5, 6]


@hypothesis.given(tokens=texts(), ids=VOCABULARIES, seed=SEEDS)
def test_masked_positions(tokens: np.ndarray, ids: TokenIds, seed: int):
    objective = SpanBERT()
    features = made(objective, {"targets": tokens}, length=len(tokens) + 2, seed=seed, ids=ids)
    n, positions = len(tokens), features["masked_positions"]
    whole = [ids.cls, *tokens.tolist(), ids.sep]
    assert len(positions) == math.ceil(0.15 * n)
    assert features["masked_targets"].tolist() == [whole[i] for i in positions]
    assert features["token_type_ids"].tolist() == [0] * (n + 2)
    kept = np.delete(np.arange(n + 2), positions)
    assert {0, n + 1} <= set(kept.tolist())
    assert features["inputs"][kept].tolist() == [whole[i] for i in kept]
    # Spans are of whole words, but for the end of the last one drawn.
    edges = set((word_bounds(word_starts(tokens, ids)) + 1).tolist())
    assert all(start in edges for start, _ in runs(positions))
    assert sum(end not in edges for _, end in runs(positions)) <= 1


@hypothesis.given(tokens=texts(), ids=VOCABULARIES, seed=SEEDS)
def test_boundaries_of_the_spans(tokens: np.ndarray, ids: TokenIds, seed: int):
    features = SpanBERT(masked_rate=0.3, max_pair_targets=3)(
        {"targets": tokens}, generator(seed), ids
    )
    expected = [
        (start - 1, end, min(i, 2), float(start > 1 and end < len(tokens) + 1 and i < 3))
        for start, end in runs(features["masked_positions"])
        for i in range(end - start)
    ]
    names = ("left_positions", "right_positions", "offsets", "loss_weights")
    assert list(zip(*(features[f"boundary_{name}"].tolist() for name in names), strict=True)) == (
        expected
    )


def test_noise_depends_on_the_generator_alone():
    tokens = text(200, 1)

    def noisy(seed: int) -> list[int]:
        return SpanBERT()({"targets": tokens}, generator(seed), IDS)["inputs"].tolist()

    assert noisy(1) == noisy(1)
    assert len({tuple(noisy(seed)) for seed in range(10)}) == 10


def test_fates_and_figures_of_spans():
    """The fate is a span's; 510 tokens in words of 1.35 pieces have about 14 spans, of 5.5."""
    counts = np.zeros(SIZE, np.int64)
    counts[[5, 6]] = [1, 3]  # No text here has these, so that random tokens show.
    ids, examples = vocabulary(counts=counts), 3000
    fates, spans, eligible, beyond, drawn = np.zeros(3, np.int64), [], [], 0, np.zeros(7, np.int64)
    for seed in range(examples):
        features = SpanBERT()({"targets": text(510, seed)}, generator(seed), ids)
        inputs, targets = features["inputs"], features["masked_targets"]
        assert len(targets) == 77
        found = runs(features["masked_positions"])
        offset = 0
        for start, end in found:
            original = targets[offset : offset + end - start].tolist()
            offset += end - start
            noisy = inputs[start:end].tolist()
            of_corpus = {5, 6}.issuperset(noisy)
            fate = (noisy == [ids.mask] * len(noisy), of_corpus, noisy == original)
            assert sum(fate) == 1
            fates += fate
            drawn += np.bincount(noisy, minlength=7)[:7] if of_corpus else 0
            beyond += max(0, end - start - 15)
        spans.append(len(found))
        firsts = features["boundary_offsets"] == 0
        eligible.append((features["boundary_loss_weights"] * firsts).sum())
    assert_within_5_sigma(fates, np.array([0.8, 0.1, 0.1]), fates.sum())
    # Half of the figure's last digit, and 5 sigma.
    for observed, figure in ((spans, 14.0), (eligible, 13.8)):
        assert abs(np.mean(observed) - figure) < 0.05 + 5 * np.std(observed) / math.sqrt(examples)
    assert beyond / (77 * examples) == pytest.approx(0.011, abs=0.002)
    assert_within_5_sigma(drawn, counts[:7] / 4, drawn.sum())


def test_geometry_leaves_room_for_the_special_tokens():
    shape = SentenceBlocks(510, cross_documents=False, segments_of=None)
    assert SpanBERT().geometry({"inputs": 512}) == shape
    assert SpanBERT().features({"inputs": 512})["masked_positions"].length == 77


def test_integers_and_floats_are_one_objective():
    assert repr(SpanBERT(masked_rate=1)) == repr(SpanBERT(masked_rate=1.0))


@pytest.mark.parametrize(
    "fields",
    [{"p": 0}, {"p": 1}, {"max_span_length": 0}, {"masked_rate": 0}, {"max_pair_targets": 0}],
)
def test_fields_out_of_range(fields: dict[str, float]):
    with pytest.raises(ValueError, match="SpanBERT: "):
        SpanBERT(**fields)
