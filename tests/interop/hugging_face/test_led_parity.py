"""LED computes what transformers' does, and its weights go there and back."""

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
    **dict.fromkeys(("encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 40),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    "max_encoder_position_embeddings": 48,
    "max_decoder_position_embeddings": 12,
    "attention_window": [8, 4],
}
LENGTHS = (43, 30, 18, 9, 3)


def theirs(head="ForConditionalGeneration"):
    return parity.theirs("LED", head, **SIZES)


def batch(chosen):
    rng = np.random.default_rng(3)
    counts = np.arange(max(LENGTHS)) < np.array(LENGTHS)[:, None]
    inputs = np.where(counts, rng.integers(3, 60, counts.shape), 1)
    targets = rng.integers(3, 60, (len(LENGTHS), 7))
    rows = {
        "encoder_input_tokens": jnp.asarray(inputs, jnp.int32),
        "encoder_attention_mask": jnp.asarray(counts, jnp.int32),
        "decoder_input_tokens": jnp.asarray(
            np.pad(targets, ((0, 0), (1, 0)), constant_values=2)[:, :-1], jnp.int32
        ),
        "decoder_target_tokens": jnp.asarray(targets, jnp.int32),
        "decoder_loss_weights": jnp.ones(targets.shape),
    }
    if chosen:
        rows["encoder_global_mask"] = jnp.zeros(counts.shape, jnp.int32).at[:, [0, 2]].set(1)
    return rows


def read_by(rows):
    names = {"input_ids": "encoder_input_tokens", "attention_mask": "encoder_attention_mask"}
    names["global_attention_mask"] = "encoder_global_mask"
    return {
        theirs: torch.tensor(np.array(rows[ours], np.int64))
        for theirs, ours in names.items()
        if ours in rows
    }


@pytest.mark.parametrize("chosen", [False, True])
def test_states_loss_and_gradients(chosen, tmp_path):
    their_model = theirs()
    model = parity.ours_of(their_model, tmp_path)
    rows = batch(chosen)
    labels = torch.tensor(np.array(rows["decoder_target_tokens"], np.int64))
    out = their_model(**read_by(rows), labels=labels, output_hidden_states=True)
    counts = np.asarray(rows["encoder_attention_mask"]) > 0
    states = model.states(rows, want=Want(states=True)).states
    for mine, other in zip(states, out.encoder_hidden_states, strict=True):
        parity.close(mine, other[:, : max(LENGTHS)], counts)
    parity.close(model.logits(rows), out.logits)
    parity.same_loss(model, rows, their_model, out)


@pytest.mark.parametrize("head", ["ForConditionalGeneration", "ForQuestionAnswering", "Model"])
def test_there_and_back(head, tmp_path):
    parity.there_and_back(theirs(head), tmp_path)


def test_what_is_not_known_is_refused(tmp_path):
    theirs().save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"attention_window": 7}))
    with pytest.raises(ValueError, match="attention_window 7: only even ones"):
        model_directory.read(tmp_path)
    path.write_text(json.dumps(config | {"architectures": ["LEDForTokenClassification"]}))
    with pytest.raises(ValueError, match="LEDForTokenClassification is not supported"):
        model_directory.read(tmp_path)
