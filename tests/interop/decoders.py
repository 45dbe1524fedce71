"""Batches for decoders, theirs and ours, and comparisons for all families of decoders."""

import functools

import encoders
import jax
import jax.numpy as jnp
import numpy as np
import parity
import torch

from t5x_like.core.abilities import ALL

ROWS, LENGTH = 5, 12


def read(*, pad=0, rows=ROWS, full=False):
    """Rows of different lengths, filled up at their end, or all full; and which tokens count."""
    rng = np.random.default_rng(3)
    counts = np.arange(LENGTH) < np.array([12, 9, 1, 6, 11])[:rows, None] + LENGTH * full
    tokens = np.where(counts, rng.integers(5, encoders.VOCAB, counts.shape), pad)
    inputs = {"input_ids": torch.tensor(tokens), "attention_mask": torch.tensor(counts).long()}
    return inputs, {"decoder_input_tokens": jnp.asarray(tokens, jnp.int32)}, counts


def with_targets(batch, counts):
    """The batch, in which each token that counts predicts the next one of its row."""
    ours = {
        "decoder_target_tokens": following(batch["decoder_input_tokens"]),
        "decoder_loss_weights": following(jnp.asarray(counts, jnp.float32)),
    }
    return batch | ours


def following(x):
    """What stands after each place of a row; 0 after the last."""
    return jnp.concatenate([x[..., 1:], jnp.zeros_like(x[..., :1])], axis=-1)


def same_states(model, batch, out, counts, *, scale=1.0):
    """Asserts the same logits, states and attention of every layer, where tokens count."""
    decoded = jax.jit(functools.partial(model.hidden, want=ALL))(batch)
    parity.close(model.token_scores(decoded.last).logits() * scale, out.logits, counts)
    part = "" if "hidden_states" in out else "decoder_"
    parity.same_layers(decoded.states, out[f"{part}hidden_states"], counts)
    parity.same_layers(decoded.attention, out[f"{part}attentions"], counts)
    if part:
        parity.same_layers(decoded.cross, out.cross_attentions, counts)
