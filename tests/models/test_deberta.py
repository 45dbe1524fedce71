"""DeBERTa: its mask decoder, packed rows, and the counts of its operations."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tiny_families import LENGTH, VOCAB, masked

from t5x_like.models import deberta

SIZES: dict[str, Any] = {"vocab_size": VOCAB, "d_model": 16, "d_ff": 24, "num_heads": 2}
SIZES |= {"num_layers": 2, "max_positions": LENGTH, "dropout_rate": 0.0, "init_std": 0.3}
SIZES |= {"attention_dropout_rate": 0.0}
KINDS = {"v1": {"buckets": 0}, "v2": {"buckets": 8, "convolution": 3}}


def made(**changes: Any) -> deberta.Deberta:
    return jax.jit(lambda: deberta.Deberta(deberta.Config(**SIZES | changes), rngs=nnx.Rngs(0)))()


@pytest.mark.parametrize("kind", KINDS)
def test_packed_texts_are_read_as_alone(kind: str) -> None:
    model = made(**KINDS[kind])
    tokens = np.random.default_rng(0).integers(5, VOCAB, (1, LENGTH))
    packed = {
        "encoder_input_tokens": jnp.asarray(tokens),
        "encoder_attention_mask": jnp.ones((1, LENGTH), jnp.int32),
        "encoder_segment_ids": jnp.asarray([[1] * 6 + [2] * (LENGTH - 6)]),
        "encoder_positions": jnp.asarray([[*range(6), *range(LENGTH - 6)]]),
        "masked_positions": jnp.asarray([[1, 7, 9]]),
    }
    logits = jax.jit(model.logits)
    whole, asked = np.asarray(logits(packed)[0]), jax.jit(model.guesses)(packed)
    np.testing.assert_allclose(asked[0], whole[[1, 7, 9]], atol=2e-5)
    for part in (slice(0, 6), slice(6, LENGTH)):
        alone = {name: packed[name][:, part] for name in list(packed)[:2]}
        np.testing.assert_allclose(whole[part], logits(alone)[0], atol=2e-5)


def test_without_the_decoder_nothing_knows_a_place() -> None:
    """A row of equal tokens has equal logits only where positions are not read."""
    row = jnp.full((1, LENGTH), 7)
    batch = {"encoder_input_tokens": row, "encoder_attention_mask": row}
    both = jax.jit(lambda model: (model.encoder.hidden(batch).last[0], model.logits(batch)[0]))
    states, logits = both(made(buckets=4))
    assert np.ptp(states[5:9], axis=0).max() < 1e-3
    assert np.ptp(logits[5:9], axis=0).max() > 0.1


def test_rows_are_no_longer_than_positions() -> None:
    batch = {"encoder_input_tokens": jnp.ones((1, LENGTH + 1), jnp.int32)}
    batch["encoder_attention_mask"] = batch["encoder_input_tokens"]
    with pytest.raises(ValueError, match=f"at most {LENGTH} do"):
        made(buckets=8).logits(batch)


def test_flops_are_those_of_its_products() -> None:
    """One text of full length, counted by hand: pairs have four products a layer."""
    model = made(buckets=0)
    batch = {name: jnp.asarray(x[:1]) for name, x in masked(np.random.default_rng(0)).items()}
    batch["encoder_attention_mask"] = jnp.ones((1, LENGTH), jnp.int32)
    batch["masked_loss_weights"] = jnp.asarray([[1.0, 1.0, 0, 0, 0, 0]])
    width, inner, rows = 16, 24, 2 * LENGTH - 1
    of_pairs = 4 * width
    first = LENGTH * (4 * width**2 + 2 * width * inner) + LENGTH**2 * of_pairs
    decoder = LENGTH * 2 * width**2 + 2 * 2 * (2 * width**2 + 2 * width * inner)
    decoder += 2 * 2 * LENGTH * of_pairs
    distances = 3 * rows * 2 * width**2
    head = 2 * (width**2 + VOCAB * width)
    assert float(model.flops(batch)) == 6 * (first + decoder + distances + head)
