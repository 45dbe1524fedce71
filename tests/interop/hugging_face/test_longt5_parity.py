"""LongT5 computes what transformers' does, and its weights go there and back."""

import dataclasses
import json

import jax.numpy as jnp
import numpy as np
import parity
import pytest
import torch

from t5x_like.core.abilities import Want
from t5x_like.interop.hugging_face import model_directory

pytestmark = pytest.mark.slow

SIZES = {
    "vocab_size": 60,
    "d_model": 24,
    "d_kv": 5,
    "d_ff": 40,
    "num_layers": 2,
    "num_heads": 4,
    "relative_attention_num_buckets": 12,
    "relative_attention_max_distance": 9,
    "local_radius": 5,
    "global_block_size": 4,
    "feed_forward_proj": "gated-gelu",
    "decoder_start_token_id": 0,
    "attn_implementation": "eager",
}
KINDS = ("local", "transient-global")
LENGTHS = (43, 30, 18, 9, 3)
"""Rows of several blocks, with tokens after the last whole one, and one without a whole block."""


def theirs(kind, head="ForConditionalGeneration"):
    return parity.theirs("LongT5", head, **SIZES, encoder_attention_type=kind)


def batch():
    rng = np.random.default_rng(3)
    inputs = rng.integers(2, 60, (len(LENGTHS), max(LENGTHS)))
    counts = np.arange(max(LENGTHS)) < np.array(LENGTHS)[:, None]
    targets = rng.integers(2, 60, (len(LENGTHS), 7))
    return {
        "encoder_input_tokens": jnp.asarray(np.where(counts, inputs, 0), jnp.int32),
        "encoder_attention_mask": jnp.asarray(counts, jnp.int32),
        "decoder_input_tokens": jnp.asarray(np.pad(targets, ((0, 0), (1, 0)))[:, :-1], jnp.int32),
        "decoder_target_tokens": jnp.asarray(targets, jnp.int32),
        "decoder_loss_weights": jnp.ones(targets.shape),
    }


def read_by(batch):
    names = {"input_ids": "encoder_input_tokens", "attention_mask": "encoder_attention_mask"}
    return {k: torch.tensor(np.array(batch[name], np.int64)) for k, name in names.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_states_loss_and_gradients(kind, tmp_path):
    their_model = theirs(kind)
    model = parity.ours_of(their_model, tmp_path)
    model.config = dataclasses.replace(model.config, z_loss=0.0)
    rows = batch()
    labels = torch.tensor(np.array(rows["decoder_target_tokens"], np.int64))
    out = their_model(**read_by(rows), labels=labels, output_hidden_states=True)
    counts = np.asarray(rows["encoder_attention_mask"]) > 0
    encoded = model.encode(rows["encoder_input_tokens"], want=Want(states=True))
    for mine, other in zip(encoded.states, out.encoder_hidden_states, strict=True):
        parity.close(mine, other, counts)
    parity.same_loss(model, rows, their_model, out)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("head", ["ForConditionalGeneration", "Model", "EncoderModel"])
def test_there_and_back(kind, head, tmp_path):
    parity.there_and_back(theirs(kind, head), tmp_path)


def test_settings_that_are_not_known_are_refused(tmp_path):
    theirs("local").save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"encoder_attention_type": "global"}))
    with pytest.raises(ValueError, match=r"must be local or transient-global, got 'global'"):
        model_directory.read(tmp_path)
    path.write_text(json.dumps(config | {"architectures": ["LongT5ForTokenClassification"]}))
    with pytest.raises(ValueError, match="LongT5ForTokenClassification is not supported"):
        model_directory.read(tmp_path)
