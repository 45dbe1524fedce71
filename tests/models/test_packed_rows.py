"""Several texts in a row: each has the states, the logits and the loss that it has alone."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx
from tiny_families import FAMILIES, VOCAB

from t5x_like.core.protocols.data import FeatureSpec, TokenIds
from t5x_like.data.rows.feature_converters import Encoder

LENGTHS = (5, 7, 3)
ROW, SLOTS = 16, 4
FEATURES = {
    "inputs": FeatureSpec(ROW),
    "token_type_ids": FeatureSpec(ROW),
    "masked_positions": FeatureSpec(SLOTS),
    "masked_targets": FeatureSpec(SLOTS),
    "masked_loss_weights": FeatureSpec(SLOTS, "float32"),
}
VARIANTS: dict[str, dict[str, Any]] = {
    "bert with relative biases": {"relative_buckets": 8},
    "roberta": {"padding_position": 1, "sentence_head": False},
}


def texts() -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [
        {
            "inputs": rng.integers(5, VOCAB, n).astype(np.int32),
            "token_type_ids": np.zeros(n, np.int32),
            "masked_positions": np.array([n - 2], np.int32),
            "masked_targets": rng.integers(5, VOCAB, 1).astype(np.int32),
            "masked_loss_weights": np.ones(1, np.float32),
        }
        for n in LENGTHS
    ]


def batch(examples: list[dict[str, np.ndarray]], *, pack: bool) -> dict[str, np.ndarray]:
    """One packed row, or a row for each example."""
    convert = functools.partial(
        Encoder(pack).convert, features=FEATURES, ids=TokenIds(VOCAB, pad=1, eos=None)
    )
    rows = [convert(examples)] if pack else [convert([example]) for example in examples]
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_text_in_a_row_has_the_states_that_it_has_alone(variant: str) -> None:
    model = FAMILIES["bert"].make(**VARIANTS[variant])(rngs=nnx.Rngs(0))
    states = jax.jit(lambda batch: model.encoder.hidden(batch).last)
    packed = np.asarray(states(batch(texts(), pack=True)))[0]
    alone = np.asarray(states(batch(texts(), pack=False)))
    start = 0
    for n, of_text in zip(LENGTHS, alone, strict=True):
        np.testing.assert_allclose(packed[start : start + n], of_text[:n], rtol=2e-5, atol=2e-6)
        start += n
    without = batch(texts(), pack=True)
    for feature in ("encoder_segment_ids", "encoder_positions"):
        mixed = {key: value for key, value in without.items() if key != feature}
        assert np.abs(np.asarray(states(mixed))[0] - packed)[LENGTHS[0] : start].max() > 1e-3


def test_the_loss_of_a_row_is_that_of_its_texts() -> None:
    model = FAMILIES["bert"].make(sentence_head=False)(rngs=nnx.Rngs(0))
    found = {}
    for pack in (True, False):
        row = batch(texts(), pack=pack)
        found[pack] = jax.jit(lambda row: (model.terms(row, None, ())[0], model.flops(row)))(row)
    jax.tree.map(
        functools.partial(np.testing.assert_allclose, rtol=1e-5), found[True], found[False]
    )
