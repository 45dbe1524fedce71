"""NeoBERT and EuroBERT: what their configurations say of computing, and rows of several texts."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from t5x_like.models import eurobert, neobert

SIZES: dict[str, Any] = {"vocab_size": 40, "d_model": 16, "d_ff": 24, "num_heads": 4}
CONFIG = eurobert.Config(**SIZES, num_layers=2, num_kv_heads=2)
TOKENS = np.random.default_rng(0).integers(5, 40, (1, 12))


def made(config: eurobert.Config) -> eurobert.EuroBert:
    return eurobert.EuroBert(config, rngs=nnx.Rngs(0))


def row(tokens: Any = TOKENS, **more: Any) -> dict[str, jax.Array]:
    counts = np.ones_like(tokens)
    batch = {"encoder_input_tokens": tokens, "encoder_attention_mask": counts, **more}
    return {name: jnp.asarray(value) for name, value in batch.items()}


def test_packed_texts_are_read_as_alone() -> None:
    model = made(CONFIG)
    packed = row(
        encoder_segment_ids=np.array([[1] * 5 + [2] * 7]),
        encoder_positions=np.array([[*range(5), *range(7)]]),
    )
    whole = model.logits(packed)
    for part in (slice(0, 5), slice(5, 12)):
        np.testing.assert_allclose(
            whole[:, part], model.logits(row(TOKENS[:, part])), atol=2e-6, rtol=0
        )


def test_the_base_of_the_angles_is_read() -> None:
    logits = [
        made(dataclasses.replace(CONFIG, theta=theta, init_std=0.5)).logits(row())
        for theta in (100.0, 10_000.0)
    ]
    assert np.abs(logits[0] - logits[1]).max() > 1e-2


def test_operations_are_those_of_its_matrices_and_pairs() -> None:
    """Its table is looked up: only the matrix of scores counts, where tokens are predicted."""
    batch = row(masked_loss_weights=np.array([[1.0, 1.0, 0.0]]))
    layer = 2 * 16 * 16 + 2 * 16 * 8 + 3 * 16 * 24
    products = 2 * (12 * layer + 2 * 16 * 12 * 12) + 2 * 16 * 40
    assert float(made(CONFIG).flops(batch)) == pytest.approx(6 * products)


def test_a_neobert_is_drawn_from_a_uniform_distribution() -> None:
    model = neobert.NeoBert(neobert.Config(**SIZES, num_layers=1), rngs=nnx.Rngs(0))
    for drawn in (model.encoder.embedding.table, model.encoder.stack.layers.mlp.wo.kernel):
        values = np.asarray(drawn[...])
        assert 0.018 < values.max() <= 0.02
        assert -0.02 <= values.min() < -0.018
        assert values.std() == pytest.approx(0.02 / 3**0.5, rel=0.06)
    assert model.mlm.logits.bias is not None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_kv_heads": 3}, "num_kv_heads=3 does not divide num_heads=4"),
        ({"theta": 0.0}, "eurobert.Config.theta must be above 0"),
        ({"pooling": "max"}, "bos, mean or late, not 'max'"),
    ],
)
def test_impossible_settings_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        nnx.eval_shape(lambda: made(dataclasses.replace(CONFIG, **changes)))
