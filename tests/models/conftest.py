"""A tiny T5's configuration, and batches for it."""

import jax.numpy as jnp
import numpy as np
import pytest

from t5x_like.models import t5

VOCAB = 50


@pytest.fixture
def tiny() -> t5.Config:
    return t5.Config(
        vocab_size=VOCAB,
        d_model=16,
        d_ff=32,
        num_heads=4,
        d_kv=6,  # 4 * 6 is not 16: the inner width is its own
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
    """Three rows of lengths up to 12 and 9, the rest of each row being padding."""
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
