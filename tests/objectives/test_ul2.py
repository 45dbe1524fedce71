"""UL2: each denoiser's published counts, their shares, and that the whole corpus is read once."""

from __future__ import annotations

import collections
import dataclasses
import math

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from t5x_like.core.protocols.data import TokenIds
from t5x_like.objectives.noise.noise_masks import SuffixNoise
from t5x_like.objectives.parts.geometry import constants
from t5x_like.objectives.span_corruption import SpanCorruption
from t5x_like.objectives.ul2 import DENOISERS, PREFIX_LM, UL2, Denoiser
from tests.objectives.binomial import assert_mean_within_5_sigma, assert_within_5_sigma

LENGTHS = {"inputs": 512, "targets": 512}
NUMBERED = UL2(tuple(dataclasses.replace(d, mode=f"[{k}]") for k, d in enumerate(DENOISERS)))
MODES = {"[R]": 3, "[S]": 4, "[X]": 5, **{f"[{k}]": 10 + k for k in range(7)}}
IDS = TokenIds(vocab_size=32100, named=MODES)
TEXT = 31_000  # text is below this id, sentinels are above


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=seed))


def sample(objective: UL2, n: int | None = None) -> dict[str, np.ndarray]:
    shape = objective.geometry(LENGTHS)
    tokens = np.arange(100, 100 + (shape.length if n is None else n), dtype=np.int32)
    return {"targets": tokens, **{name: np.int32(k) for name, k in constants(shape).items()}}


@pytest.mark.parametrize(
    ("denoiser", "raw", "targets", "noise", "spans"),
    [
        (DENOISERS[0], 568, 114, 85, 28),
        (DENOISERS[1], 588, 100, 88, 11),
        (DENOISERS[2], 766, 512, 383, 128),
        (DENOISERS[3], 908, 512, 454, 57),
        (DENOISERS[4], 600, 92, 90, 1),
        (DENOISERS[5], 1006, 512, 503, 8),
    ],
)
def test_the_published_counts(denoiser: Denoiser, raw: int, targets: int, noise: int, spans: int):
    objective = UL2((denoiser,), mode_tokens=False)
    shape = objective.geometry(LENGTHS)
    assert (shape.length, shape.stride) == (raw, raw)
    assert objective.lengths(512) == {"inputs": 512, "targets": targets}
    for seed in range(20):
        features = objective(sample(objective), generator(seed), IDS)
        counts = [(features["targets"] < TEXT).sum(), (features["targets"] >= TEXT).sum()]
        assert counts == [noise, spans]
        assert len(features["targets"]) + 1 == targets
        assert 511 <= len(features["inputs"]) + 1 <= 512


def test_needs_are_the_modes_in_use():
    assert UL2().needs == ("[R]", "[X]", "[S]", "sentinels")
    assert UL2(mode_tokens=False).needs == ("sentinels",)
    assert UL2(DENOISERS[:2]).needs == ("[R]", "sentinels")
    assert repr(UL2(list(DENOISERS))) == repr(UL2())


def test_the_share_of_each_denoiser_and_mode():
    rng, draws = generator(1), 8000
    cut = sample(NUMBERED)
    first = collections.Counter(
        int(NUMBERED(cut, rng, IDS)["inputs"][0]) - 10 for _ in range(draws)
    )
    rates = [0.2, 0.2, 0.1, 0.1, 0.1, 0.1, 0.2]
    assert_within_5_sigma(np.array([first[k] for k in range(7)]), np.array(rates), draws)
    plain = sample(UL2())
    modes = collections.Counter(int(UL2()(plain, rng, IDS)["inputs"][0]) for _ in range(draws))
    assert_within_5_sigma(
        np.array([modes[MODES[m]] for m in ("[R]", "[X]", "[S]")]),
        np.array([0.4, 0.4, 0.2]),
        draws,
    )


def test_expected_targets():
    objective = UL2(mode_tokens=False)
    rng, cut, draws = generator(2), sample(objective), 6000
    lengths = [len(objective(cut, rng, IDS)["targets"]) + 1 for _ in range(draws)]
    # The suffix of 511 tokens has 1 to 510 of them, every number as likely.
    rates = np.array([0.2, 0.2, 0.1, 0.1, 0.1, 0.1, 0.2])
    means = np.array([114, 100, 512, 512, 92, 512, 256.5])
    mean = float(rates @ means)
    assert math.isclose(mean, 256.9)
    variance = rates @ (means - mean) ** 2 + 0.2 * (510**2 - 1) / 12
    assert_mean_within_5_sigma(np.array(lengths), mean, math.sqrt(variance))


def test_inputs_are_filled_and_nothing_is_cut():
    cut = sample(NUMBERED)
    for seed in range(300):
        features = NUMBERED(cut, generator(seed), IDS)
        inputs, targets = features["inputs"], features["targets"]
        chosen = inputs[0] - 10
        assert len(targets) + 1 <= 512
        assert len(inputs) + 1 <= 512
        raw = cut[f"raw_{chosen}"]
        text = np.concatenate([inputs[1:][inputs[1:] < TEXT], targets[targets < TEXT]])
        assert np.array_equal(np.sort(text), np.arange(text.min(), text.min() + raw))
        if chosen != 6:
            assert len(inputs) + 1 >= 511
        else:
            assert inputs[1] == text.min()
            assert np.array_equal(text, np.sort(text))


def test_an_epoch_reads_every_token_about_once():
    shape = NUMBERED.geometry(LENGTHS)
    raw, rates = list(constants(shape).values()), [d.rate for d in DENOISERS]
    assert shape.stride == round(sum(a * b for a, b in zip(raw, rates, strict=True)))
    # How often each place of a sample is read, by the closed form, and by what comes out.
    places = np.arange(shape.length)
    expected = np.zeros(shape.length)
    for length, rate in zip(raw, rates, strict=True):
        starts = shape.length - length + 1
        first, last = np.maximum(0, places - length + 1), np.minimum(places, starts - 1)
        expected += rate * (last - first + 1) / starts
    rng, cut, draws = generator(3), sample(NUMBERED), 6000
    counts = np.zeros(shape.length, np.int64)
    for _ in range(draws):
        features = NUMBERED(cut, rng, IDS)
        for feature in (features["inputs"][1:], features["targets"]):
            counts[feature[feature < TEXT] - 100] += 1
    always = expected > 1 - 1e-9
    assert (counts[always] == draws).all()
    often = draws * expected * (1 - expected) > 10
    assert often.sum() > 950
    assert_within_5_sigma(counts[often], expected[often], draws)
    # Samples overlap: a token is in one or in two of them.
    read = np.zeros(3 * shape.length)
    for start in range(0, 2 * shape.length, shape.stride):
        read[start : start + shape.length] += expected
    middle = read[shape.length : shape.length + shape.stride]
    assert math.isclose(middle.mean(), 1, rel_tol=0.001)
    assert middle.min() > 0.75
    assert middle.max() < 1.25


@hypothesis.given(n=st.integers(0, 1004), seed=st.integers(0, 2**64 - 1))
@hypothesis.example(n=0, seed=0)
@hypothesis.example(n=1, seed=0)
def test_short_samples(n: int, seed: int):
    cut = sample(UL2(), n)
    features = UL2()(cut, generator(seed), IDS)
    again = UL2()(cut, generator(seed), IDS)
    for name in ("inputs", "targets"):
        assert features[name].dtype == np.int32
        assert len(features[name]) + 1 <= 512
        assert np.array_equal(features[name], again[name])
    assert features["inputs"][0] in (3, 4, 5)


def test_the_papers_share_of_the_prefix_lm():
    quarter = dataclasses.replace(PREFIX_LM, noise=SuffixNoise(0.25))
    objective = UL2((Denoiser("[S]", 1, quarter),))
    rng, cut, draws = generator(4), sample(objective), 4000
    targets = np.array([len(objective(cut, rng, IDS)["targets"]) for _ in range(draws)])
    # 510 tokens, of which the prefix has 254 (half of 509, to even) to 509.
    assert (targets.min(), targets.max()) == (1, 256)
    assert_mean_within_5_sigma(targets, 128.5, math.sqrt((256**2 - 1) / 12))


def test_what_cannot_be_mixed():
    with pytest.raises(ValueError, match="denoisers is empty"):
        UL2(())
    with pytest.raises(ValueError, match="rate is a share above 0"):
        Denoiser("[R]", 0, SpanCorruption())
    with pytest.raises(ValueError, match="set the targets length to"):
        UL2().geometry({"inputs": 512, "targets": 500})
    with pytest.raises(ValueError, match=r"\['targets'\] missing"):
        UL2().geometry({"inputs": 512})
