"""Span corruption: published lengths, reconstruction of the text, limits kept, errors."""

from __future__ import annotations

import itertools

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from t5x_like.core.protocols.data import TokenIds
from t5x_like.objectives.parts.geometry import ConcatenateAndSplit
from t5x_like.objectives.span_corruption import (
    PRESETS,
    DropSpans,
    SpanCorruption,
    random_spans_lengths,
)

IDS = TokenIds(vocab_size=32100)
HIGHEST_TEXT_ID = 29_000
densities = st.one_of(st.sampled_from([0.1, 0.15, 0.25, 0.5]), st.floats(0.01, 0.95))
means = st.one_of(st.sampled_from([1.0, 2.0, 3.0, 8.0, 20.0]), st.floats(1, 80))
objectives = st.builds(SpanCorruption, densities, means)


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=seed))


def corrupted(tokens: np.ndarray, objective: SpanCorruption, seed: int) -> tuple[list, list]:
    features = objective({"targets": tokens}, generator(seed), IDS)
    assert {name: value.dtype for name, value in features.items()} == {
        "inputs": np.int32,
        "targets": np.int32,
    }
    return features["inputs"].tolist(), features["targets"].tolist()


@pytest.mark.parametrize(
    ("inputs", "density", "mean", "raw", "targets"),
    [
        (512, 0.15, 3, 568, 114),
        (512, 0.15, 2, 552, 126),
        (512, 0.15, 5, 581, 105),
        (512, 0.15, 8, 588, 100),
        (512, 0.15, 10, 591, 99),
        (512, 0.15, 64, 600, 92),
        (512, 0.10, 3, 548, 74),
        (512, 0.25, 3, 614, 206),
        (512, 0.50, 3, 766, 512),
        (512, 0.50, 8, 908, 512),
        (512, 0.50, 64, 1006, 512),
        (1024, 0.15, 3, 1137, 229),
        (1024, 0.15, 20, 1193, 189),
        (256, 0.15, 3, 284, 58),
        (128, 0.15, 3, 141, 29),
        (64, 0.15, 3, 70, 14),
    ],
)
def test_published_lengths(inputs: int, density: float, mean: float, raw: int, targets: int):
    assert random_spans_lengths(inputs, noise_density=density, mean_noise_span_length=mean) == (
        raw,
        targets,
    )
    objective = SpanCorruption(density, mean)
    assert objective.lengths(inputs) == {"inputs": inputs, "targets": targets}
    assert objective.geometry(objective.lengths(inputs)) == ConcatenateAndSplit(raw)
    a, b = corrupted(np.arange(3, 3 + raw), objective, 0)
    assert len(b) + 1 == targets
    # Nothing is trimmed; T5 gives up an input token where its targets would be the longer.
    assert inputs - (density == 0.5) <= len(a) + 1 <= inputs


@hypothesis.given(inputs=st.integers(3, 1200), objective=objectives, data=st.data())
def test_no_sample_outgrows_the_declared_lengths(
    inputs: int, objective: SpanCorruption, data: st.DataObject
):
    raw, targets = random_spans_lengths(
        inputs,
        noise_density=objective.noise_density,
        mean_noise_span_length=objective.mean_noise_span_length,
    )
    hypothesis.assume(raw < 5000)
    if objective.noise_density != 0.5:
        assert len(corrupted(np.full(raw + 1, 5), objective, 0)[0]) + 1 > inputs
    for n in {raw, data.draw(st.integers(0, raw))}:
        a, b = corrupted(np.full(n, 5), objective, n)
        assert len(a) + 1 <= inputs
        assert len(b) + 1 <= targets


@hypothesis.given(objective=objectives, n=st.integers(0, 1200), seed=st.integers(0, 2**64 - 1))
@hypothesis.example(objective=SpanCorruption(), n=0, seed=0)
@hypothesis.example(objective=SpanCorruption(), n=1, seed=0)
@hypothesis.example(objective=SpanCorruption(), n=2, seed=0)
def test_inputs_and_targets_hold_the_text_once(objective: SpanCorruption, n: int, seed: int):
    tokens = generator(seed ^ 1).integers(3, HIGHEST_TEXT_ID, n).astype(np.int32)
    before = tokens.copy()
    inputs, targets = corrupted(tokens, objective, seed)
    assert np.array_equal(tokens, before)

    marks = [i for i, token in enumerate(targets) if token > HIGHEST_TEXT_ID]
    sentinels = [targets[i] for i in marks]
    assert sentinels == [IDS.sentinel(k) for k in range(len(marks))]
    bounds = [*marks, len(targets)]
    spans = {targets[start]: targets[start + 1 : end] for start, end in itertools.pairwise(bounds)}
    in_inputs = [token for token in inputs if token > HIGHEST_TEXT_ID]
    assert in_inputs == (sentinels if n > 1 else [])
    restored = [t for token in inputs for t in spans.get(token, [token])]
    assert restored == tokens.tolist()


def test_smallest_samples():
    objective = SpanCorruption()
    assert corrupted(np.array([], np.int32), objective, 0) == ([], [])
    assert corrupted(np.array([7]), objective, 0) == ([7], [IDS.sentinel(0)])
    assert corrupted(np.array([7, 8]), objective, 0) == ([7, 32099], [32099, 8])


def test_draws_depend_on_the_generator_alone():
    tokens = np.arange(3, 571, dtype=np.uint16)
    assert corrupted(tokens, SpanCorruption(), 1) == corrupted(tokens, SpanCorruption(), 1)
    assert corrupted(tokens, SpanCorruption(), 1) != corrupted(tokens, SpanCorruption(), 2)


def test_targets_may_be_longer_than_needed_but_not_shorter():
    geometry = SpanCorruption().geometry
    assert geometry({"inputs": 512, "targets": 200}) == ConcatenateAndSplit(568)
    with pytest.raises(ValueError, match="set the targets length to 114"):
        geometry({"inputs": 512, "targets": 113})
    with pytest.raises(ValueError, match=r"\['targets'\] missing"):
        geometry({"inputs": 512})
    with pytest.raises(ValueError, match="at least 3 tokens"):
        geometry({"inputs": 2, "targets": 100})


@pytest.mark.parametrize("fields", [(0.0, 3.0), (1.0, 3.0), (0.15, 0.9), (float("nan"), 3.0)])
def test_fields_out_of_range(fields: tuple[float, float]):
    with pytest.raises(ValueError, match="SpanCorruption: "):
        SpanCorruption(*fields)


def test_the_variants_of_the_paper():
    def raw(objective):
        return objective.geometry(objective.lengths(512)).length

    assert [raw(SpanCorruption(rate)) for rate in (0.10, 0.15, 0.25, 0.50)] == [548, 568, 614, 766]
    assert [raw(SpanCorruption(0.15, n)) for n in (2, 5, 10)] == [552, 581, 591]
    # 511 clean tokens, the others in spans.
    assert [raw(DropSpans(rate)) for rate in (0.10, 0.15, 0.25, 0.50)] == [568, 601, 681, 1022]
    assert {raw(DropSpans(0.15, n)) for n in (2, 5, 10)} == {601}
    assert {"span_corruption": SpanCorruption(), "drop_spans": DropSpans()} == PRESETS
    assert DropSpans().lengths(512) == {"inputs": 512, "targets": 91}


@hypothesis.given(inputs=st.integers(3, 700), density=densities, mean=means, seed=st.integers(0, 9))
def test_dropped_spans_fill_the_inputs_and_are_the_targets(
    inputs: int, density: float, mean: float, seed: int
):
    objective = DropSpans(density, mean)
    lengths = objective.lengths(inputs)
    raw = objective.geometry(lengths).length
    hypothesis.assume(raw < 5000)
    a, b = corrupted(np.arange(raw), objective, seed)
    assert sorted(a + b) == list(range(raw))
    assert a == sorted(a)
    assert b == sorted(b)
    assert len(b) + 1 <= lengths["targets"]
    assert inputs - (density == 0.5) <= len(a) + 1 <= inputs
    # It is the same noise: other words for the same spans.
    marked = corrupted(np.arange(3, 3 + raw), SpanCorruption(density, mean), seed)[1]
    assert [token - 3 for token in marked if token - 3 < raw] == b


@hypothesis.given(
    objective=st.builds(DropSpans, densities, means) | objectives,
    n=st.lists(st.integers(0, 600), max_size=5),
)
@hypothesis.example(objective=SpanCorruption(), n=[0, 1, 2])
@hypothesis.example(objective=DropSpans(), n=[0, 1, 2])
def test_sizes_are_those_of_the_features(objective: SpanCorruption, n: list[int]):
    sizes = objective.sizes(np.array(n, np.int64))
    for i, tokens in enumerate(n):
        a, b = corrupted(np.full(tokens, 5), objective, i)
        assert (sizes["inputs"][i], sizes["targets"][i]) == (len(a) + 1, len(b) + 1)
    assert all(size.shape == (len(n),) for size in sizes.values())
