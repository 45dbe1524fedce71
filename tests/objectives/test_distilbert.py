"""DistilBERT's masking: how many tokens, and how much likelier rare ones are."""

from __future__ import annotations

import dataclasses
import math

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from t5x_like.objectives.distilbert import PRESETS, RareTokens
from t5x_like.objectives.parts.geometry import SplitDocuments
from tests.objectives.masked_examples import (
    BERT,
    SEEDS,
    VOCAB,
    fates,
    made,
    many,
    rebuilt,
    text,
    texts,
)
from tests.objectives.sentences import sigmas

LENGTH = 64


def with_counts(**counts: int):
    """The vocabulary where these ids (`t30=5`) occur so often, and no other does."""
    table = np.zeros(VOCAB, np.int64)
    for name, count in counts.items():
        table[int(name[1:])] = count
    return dataclasses.replace(BERT, counts=table)


@hypothesis.given(st.sampled_from([0.15, 0.4, 1]), texts(LENGTH - 2), SEEDS)
def test_examples(rate: float, tokens: np.ndarray, seed: int):
    features = made(RareTokens(rate), {"targets": tokens}, length=LENGTH, seed=seed)
    assert rebuilt(features).tolist() == [BERT.cls, *tokens, BERT.sep]
    assert (np.diff(features["masked_positions"]) > 0).all()
    assert not np.isin(features["masked_targets"], BERT.special).any()
    ordinary = int((~np.isin(tokens, BERT.special)).sum())
    expected = min(math.ceil(rate * (len(tokens) + 2)), ordinary)
    assert len(features["masked_positions"]) == expected


@pytest.mark.parametrize(("tokens", "predictions"), [(128, 20), (512, 77), (20, 3)])
def test_numbers_are_rounded_up(tokens: int, predictions: int):
    features = made(RareTokens(), {"targets": text(tokens - 2)}, length=tokens)
    assert len(features["masked_positions"]) == predictions
    assert RareTokens().features({"inputs": tokens})["masked_positions"].length == predictions


@pytest.mark.parametrize(("rare", "frequent"), [(10, 1000), (1, 50), (0, 300)])
def test_one_of_two_tokens(rare: int, frequent: int):
    ids = with_counts(t30=rare, t31=frequent)
    draws = 6000
    sample = {"targets": np.array([30, 31], np.int32)}
    chosen = [one["masked_targets"].tolist() for one in many(RareTokens(), sample, draws, ids)]
    ratio = (max(rare, 1) / frequent) ** -0.7
    assert sigmas(chosen.count([30]), draws, ratio / (1 + ratio)) < 5
    assert chosen.count([30]) + chosen.count([31]) == draws


def test_two_of_five_tokens_are_drawn_one_after_the_other():
    counts = {"t30": 1, "t31": 4, "t32": 16, "t33": 64, "t34": 256}
    weights = {int(name[1:]): count**-0.7 for name, count in counts.items()}
    total = sum(weights.values())
    draws = 6000
    sample = {"targets": np.array([30, 31, 32, 33, 34], np.int32)}
    examples = many(RareTokens(), sample, draws, with_counts(**counts))
    pairs = [tuple(one["masked_targets"].tolist()) for one in examples]
    for i in weights:
        for j in range(i + 1, 35):
            a, b = weights[i] / total, weights[j] / total
            assert sigmas(pairs.count((i, j)), draws, a * b / (1 - a) + b * a / (1 - b)) < 5


def test_eighty_ten_ten():
    counts = fates(many(RareTokens(), {"targets": text(126)}, 2000), BERT.mask)
    total = sum(counts.values())
    assert sigmas(counts["masked"], total, 0.8 + 0.1 / VOCAB) < 5
    assert sigmas(counts["same"], total, 0.1 + 0.1 / VOCAB) < 5


def test_counts_are_needed():
    assert RareTokens().needs == ("cls", "sep", "mask", "counts")
    with pytest.raises(ValueError, match="comes without such counts"):
        RareTokens()(
            {"targets": text(5)}, np.random.default_rng(0), dataclasses.replace(BERT, counts=None)
        )


def test_preset():
    assert list(PRESETS.items()) == [("distilbert", RareTokens())]
    assert RareTokens().geometry({"inputs": 512}) == SplitDocuments(510)
    with pytest.raises(ValueError, match="no room for text"):
        RareTokens().geometry({"inputs": 2})
    with pytest.raises(ValueError, match="RareTokens: masked_rate"):
        RareTokens(2)
