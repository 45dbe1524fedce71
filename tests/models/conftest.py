"""A tiny T5's configuration, and batches for it and for encoders."""

import functools
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from t5x_like.models import t5
from t5x_like.training.optimization.gradients import gradients

sys.path.insert(0, str(Path(__file__).parent))  # for `tiny_families` and `tiny_models`

VOCAB = 50


@pytest.fixture
def tiny() -> t5.Config:
    return t5.Config(
        vocab_size=VOCAB,
        d_model=16,
        d_ff=32,
        num_heads=4,
        d_kv=6,  # 4 * 6 is not 16: the inner width differs
        num_encoder_layers=3,
        num_decoder_layers=2,
    )


def shift_right(targets: np.ndarray, segments: np.ndarray | None = None) -> np.ndarray:
    inputs = np.pad(targets, ((0, 0), (1, 0)))[:, :-1]
    if segments is not None:
        starts = np.diff(segments, axis=1, prepend=0) != 0
        inputs[starts] = 0
    return inputs


@pytest.fixture
def padded_batch():
    """Three rows of lengths up to 12 and 9; the rest of each row is padding."""
    rng = np.random.default_rng(0)
    inputs, targets = rng.integers(2, VOCAB, (3, 12)), rng.integers(2, VOCAB, (3, 9))
    inputs[0, 7:] = inputs[1, 11:] = 0
    targets[1, 4:] = targets[2, 8:] = 0
    batch = {
        "encoder_input_tokens": inputs,
        "decoder_input_tokens": shift_right(targets),
        "decoder_target_tokens": targets,
        "decoder_loss_weights": (targets > 0).astype(np.float32),
    }
    return {name: jnp.asarray(x) for name, x in batch.items()}


@pytest.fixture
def packed_batch():
    """Two rows of two examples each, inputs of 7 + 5 and targets of 4 + 3, then padding."""
    rng = np.random.default_rng(1)
    encoder = np.repeat([[1] * 7 + [2] * 5 + [0] * 2], 2, axis=0)
    decoder = np.repeat([[1] * 4 + [2] * 3 + [0]], 2, axis=0)
    inputs = rng.integers(2, VOCAB, encoder.shape) * (encoder > 0)
    targets = rng.integers(2, VOCAB, decoder.shape) * (decoder > 0)
    batch = {
        "encoder_input_tokens": inputs,
        "decoder_input_tokens": shift_right(targets, decoder),
        "decoder_target_tokens": targets,
        "decoder_loss_weights": (targets > 0).astype(np.float32),
        "encoder_segment_ids": encoder,
        "decoder_segment_ids": decoder,
    }
    return {name: jnp.asarray(x) for name, x in batch.items()}


@pytest.fixture
def encoder_batch():
    """Rows of 12, 9, 6 and 3 tokens, of which 1, 2, 3 and 1 are masked; the last is only padding.

    Slots without weight point at position 0.
    """
    rng = np.random.default_rng(2)
    counts = (np.arange(12) < np.array([12, 9, 6, 3, 0])[:, None]).astype(np.int32)
    weights = (np.arange(3) < np.array([1, 2, 3, 1, 0])[:, None]).astype(np.float32)
    masked = np.array([[5, 0, 0], [1, 7, 0], [1, 3, 4], [1, 0, 0], [0, 0, 0]])
    batch = {
        "encoder_input_tokens": rng.integers(5, VOCAB, (5, 12)) * counts,
        "encoder_attention_mask": counts,
        "encoder_token_type_ids": (np.arange(12) >= 2).astype(np.int32) * counts,
        "masked_positions": masked,
        "masked_targets": rng.integers(5, VOCAB, (5, 3)) * (weights > 0),
        "masked_loss_weights": weights,
        "next_sentence_label": np.array([0, 1, 1, 0, 0]),
        "boundary_left_positions": np.maximum(masked - 1, 0),
        "boundary_right_positions": masked + 1,
        "boundary_offsets": np.array([[0, 0, 0], [0, 2, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]]),
        "boundary_loss_weights": weights * np.array([1, 0, 1]),
    }
    return {name: jnp.asarray(x) for name, x in batch.items()}


@pytest.fixture
def assert_microbatches_add_up():
    """Called with a model and a batch: checks that B microbatches give the same as one batch."""

    def check(model, batch):
        graph, state = nnx.split(model)
        rows = len(batch["encoder_input_tokens"])

        def run(microbatches):
            compute = functools.partial(
                gradients,
                graph,
                batch=batch,
                key=jax.random.key(0),
                carry=(),
                microbatches=microbatches,
            )
            return jax.jit(compute)(nnx.to_pure_dict(state))

        whole, parts = run(1), run(rows)
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6), parts, whole
        )
        assert {"loss", "tokens", "flops"} <= set(whole[1])
        loss, weight = whole[1]["loss"]
        np.testing.assert_allclose(
            (loss / weight).sum(), model.loss(batch, None, (), model.weights(batch))[0], rtol=1e-5
        )

    return check
