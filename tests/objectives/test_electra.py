"""ELECTRA's two segments, and its masking with replacement."""

from __future__ import annotations

import math

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from t5x_like.objectives.electra import ELECTRA, PRESETS, in_first_segment, slots
from t5x_like.objectives.parts.sentence_blocks import LineBlocks
from tests.objectives.masked_examples import BERT, SEEDS, made, many, rebuilt, text, texts
from tests.objectives.sentences import sigmas


def block(tokens: np.ndarray, *, length: int, segments=(), target: int | None = None) -> dict:
    return {
        "targets": tokens,
        "segments": np.array(segments, np.int32),
        "documents": np.array([], np.int32),
        "max_tokens": np.int32(length if target is None else target),
        "length": np.int32(length),
    }


@st.composite
def blocks(draw: st.DrawFn) -> dict[str, np.ndarray]:
    length = draw(st.integers(5, 70))
    tokens = draw(texts(2 * length - 1))
    starts = st.sets(st.integers(1, max(1, len(tokens) - 1)), max_size=12 * (len(tokens) > 1))
    target = draw(st.integers(5, length))
    return block(tokens, length=length, segments=tuple(sorted(draw(starts))), target=target)


@hypothesis.given(st.sampled_from([0.15, 0.25, 1]), blocks(), SEEDS)
def test_examples(rate: float, sample: dict[str, np.ndarray], seed: int):
    length = int(sample["length"])
    features = made(ELECTRA(rate), sample, length=length, seed=seed)
    original = rebuilt(features)
    assert not np.isin(features["masked_targets"], [BERT.cls, BERT.sep, BERT.mask]).any()
    candidates = ~np.isin(original, [BERT.cls, BERT.sep, BERT.mask])
    if candidates.any():
        count = min(max(1, round(rate * len(original))), slots(length, rate))
        assert len(features["masked_positions"]) == count
    else:
        assert len(features["masked_positions"]) == 0
    changed = original != features["inputs"]
    assert (features["inputs"][changed] == BERT.mask).all()

    # Both segments are tokens of the block in their order, and nothing but the end is cut off.
    second = features["token_type_ids"].astype(np.bool_)
    first = original[~second][1:-1]
    tokens = sample["targets"].tolist()
    rest = iter(tokens)
    assert all(token in rest for token in first)
    assert [original[0], original[~second][-1]] == [BERT.cls, BERT.sep]
    if second.any():
        assert original[-1] == BERT.sep
        kept = len(first) + second.sum() - 1
        assert kept <= min(len(tokens), length - 3)
    else:
        kept = len(first)
        assert first.tolist() == tokens[:kept] or kept >= length - 3


@pytest.mark.parametrize(
    ("length", "rate", "expected"), [(128, 0.15, 19), (512, 0.15, 79), (512, 0.25, 130)]
)
def test_published_slots(length: int, rate: float, expected: int):
    assert slots(length, rate) == expected
    assert ELECTRA(rate).features({"inputs": length})["masked_positions"].length == expected


@pytest.mark.parametrize(
    ("sizes", "goal", "coins", "expected"),
    [
        # However long, the first line is in the first segment.
        ([50, 5, 5], 20, [0, 0, 0], [True, False, False]),
        ([5, 5, 5, 5], 16, [0.9] * 4, [True, True, True, False]),
        # The line that reaches the goal: by the coin, and only while the second is empty.
        ([10, 10, 10], 20, [0.9, 0.49, 0], [True, True, False]),
        ([10, 10, 10], 20, [0.9, 0.51, 0], [True, False, False]),
        # A later line that stays below the goal goes to the first segment all the same.
        ([10, 12, 5, 3], 20, [0.9, 0.6, 0.9, 0.9], [True, False, True, True]),
        ([10, 10], math.inf, [0.9, 0.9], [True, True]),
        ([], 20, [], []),
    ],
)
def test_lines_of_the_first_segment(sizes: list, goal: float, coins: list, expected: list):
    assert in_first_segment(sizes, goal, coins) == expected


def test_shares_of_one_and_two_segments():
    # Half of 43 - 3 tokens is the goal, which the second of four lines of 10 reaches.
    sample = block(text(40), length=128, segments=(10, 20, 30), target=43)
    draws = 4000
    examples = many(ELECTRA(), sample, draws)
    sizes = [int((one["token_type_ids"] == 0).sum()) - 2 for one in examples]
    for size, share in {40: 0.1, 20: 0.45, 10: 0.45}.items():
        assert sigmas(sizes.count(size), draws, share) < 5


def test_segments_are_cut_at_their_ends():
    tokens = text(100)
    sample = block(tokens, length=64, segments=(20,))
    originals = [rebuilt(one).tolist() for one in many(ELECTRA(), sample, 100)]
    one_segment = [11, *tokens[:62], 12]
    two_segments = [11, *tokens[:20], 12, *tokens[20:61], 12]
    assert all(original in (one_segment, two_segments) for original in originals)
    assert {len(original) for original in originals} == {64}
    long_line = made(ELECTRA(), block(text(120), length=64, segments=(62,)), length=64)
    assert rebuilt(long_line).tolist() == [11, *text(120)[:62], 12]


@pytest.mark.parametrize(("length", "rate"), [(128, 0.15), (512, 0.25)])
def test_positions_are_drawn_with_replacement(length: int, rate: float):
    draws, text_tokens = 1500, length - 2
    sample = block(text(text_tokens), length=length)
    examples = many(ELECTRA(rate), sample, draws)
    k = round(rate * length)
    assert {len(one["masked_positions"]) for one in examples} == {k}
    distinct = [len(set(one["masked_positions"].tolist())) for one in examples]
    expected = text_tokens * (1 - (1 - 1 / text_tokens) ** k)
    assert abs(np.mean(distinct) - expected) < 5 * np.std(distinct) / np.sqrt(draws)


def test_a_position_is_masked_if_any_of_its_slots_says_so():
    sample = block(text(30), length=32)
    hit, masked = np.zeros(12, int), np.zeros(12, int)
    for one in many(ELECTRA(0.9), sample, 2000):
        positions, times = np.unique(one["masked_positions"], return_counts=True)
        np.add.at(hit, times, 1)
        np.add.at(masked, times, one["inputs"][positions] == BERT.mask)
    for times in (1, 2, 3):
        assert hit[times] > 1000
        assert sigmas(masked[times], hit[times], 1 - 0.15**times) < 5


def test_preset():
    objective = PRESETS["electra"]
    assert objective == ELECTRA(0.15)
    assert objective.geometry({"inputs": 128}) == LineBlocks(128)
    assert objective.needs == ("cls", "sep", "mask")
    with pytest.raises(ValueError, match="set the inputs length to 5"):
        objective.geometry({"inputs": 4})
    with pytest.raises(ValueError, match="ELECTRA: masked_rate"):
        ELECTRA(0)


def test_the_ablations_say_where_the_discriminator_is_scored():
    sample = block(text(90), length=64, segments=(40,), target=64)
    for name, everywhere in (
        ("electra", True),
        ("electra_all_tokens_mlm", True),
        ("electra_15", False),
        ("electra_replace_mlm", False),
    ):
        features = made(PRESETS[name], sample, length=64)
        scored = np.flatnonzero(features["discriminator_loss_weights"])
        masked = np.unique(features["masked_positions"])
        every = np.arange(len(features["inputs"]))
        assert scored.tolist() == (every if everywhere else masked).tolist()
        assert len(masked) < len(every)
