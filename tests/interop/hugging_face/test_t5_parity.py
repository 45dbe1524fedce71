"""T5, mT5 and umT5 compute what transformers' do, and their weights go there and back."""

import dataclasses

import decoders
import jax
import jax.numpy as jnp
import numpy as np
import parity
import pytest
import torch
from safetensors.numpy import load_file, save_file

from t5x_like.core.abilities import Want
from t5x_like.interop.hugging_face import model_directory
from t5x_like.interop.hugging_face import t5 as family

pytestmark = pytest.mark.slow

SIZES = {
    "vocab_size": 60,
    "d_model": 24,
    "d_kv": 5,
    "d_ff": 40,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "num_heads": 4,
    "relative_attention_num_buckets": 12,
    "relative_attention_max_distance": 9,
    "decoder_start_token_id": 0,
    "attn_implementation": "eager",
}
SWITCHES = {
    "t5": ("T5", {}),
    "t5_gated": ("T5", {"feed_forward_proj": "gated-silu", "num_decoder_layers": None}),
    "mt5": ("MT5", {}),
    "umt5": ("UMT5", {}),
}
PAD, EOS = 0, 1


def theirs(name, head, **more):
    kind, switches = SWITCHES[name]
    model = parity.theirs(kind, head, **SIZES | switches | more)
    if head == "ForConditionalGeneration" and kind != "T5":
        # Their configurations always tie the output; loaded weights are not tied.
        model.lm_head.weight = torch.nn.Parameter(torch.randn(60, 24))
    return model


def batch_of(rows=5, inputs=13, targets=9, *, full=False):
    rng = np.random.default_rng(3)

    def text(length):
        lengths = rng.integers(length if full else 2, length + 1, (rows, 1))
        at = np.arange(length)
        tokens = np.where(at < lengths - 1, rng.integers(2, 60, (rows, length)), PAD)
        return np.where(at == lengths - 1, EOS, tokens).astype(np.int32)

    encoder, decoder = text(inputs), text(targets)
    return {
        "encoder_input_tokens": jnp.asarray(encoder),
        "encoder_attention_mask": jnp.asarray(encoder != PAD).astype(jnp.int32),
        "decoder_input_tokens": jnp.asarray(np.pad(decoder, ((0, 0), (1, 0)))[:, :-1]),
        "decoder_target_tokens": jnp.asarray(decoder),
        "decoder_loss_weights": jnp.asarray(decoder != PAD).astype(jnp.float32),
    }


def read_by(batch):
    names = {"input_ids": "encoder_input_tokens", "attention_mask": "encoder_attention_mask"}
    return {k: torch.tensor(np.array(batch[name], np.int64)) for k, name in names.items()}


@pytest.mark.parametrize("name", SWITCHES)
def test_generation_model(name, tmp_path):
    their_model = theirs(name, "ForConditionalGeneration")
    model = parity.ours_of(their_model, tmp_path)
    batch = batch_of()
    counts = np.asarray(batch["decoder_loss_weights"]) > 0
    labels = np.where(counts, batch["decoder_target_tokens"], -100).astype(np.int64)
    out = their_model(
        **read_by(batch),
        labels=torch.tensor(labels),
        output_hidden_states=True,
        output_attentions=True,
    )
    # transformers 5.23 scales umT5's states as if its output were tied, which T5X does not.
    scale = model.config.d_model**-0.5 if name == "umt5" else 1.0
    decoders.same_states(model, batch, out, counts, scale=scale)
    encoded = model.encode(batch["encoder_input_tokens"], want=Want(states=True))
    parity.same_layers(encoded.states, out.encoder_hidden_states)
    if name != "umt5":
        parity.same_loss(without_z_loss(model), batch, their_model, out)


def without_z_loss(model):
    model.config = dataclasses.replace(model.config, z_loss=0.0)
    return model


@pytest.mark.parametrize("labels", [1, 4])
def test_classes_and_numbers(labels, tmp_path):
    their_model = theirs("t5", "ForSequenceClassification", num_labels=labels)
    model = parity.ours_of(their_model, tmp_path)
    batch = batch_of()
    truth = parity.truths(labels)
    out = their_model(**read_by(batch), labels=torch.tensor(truth))
    reads = read_alone(batch) | {"labels": jnp.asarray(truth)}
    parity.close(jax.jit(model.logits)(reads), out.logits)
    parity.same_loss(model, reads, their_model, out)


def read_alone(batch):
    """Inputs alone, of which the model makes what its decoder reads."""
    return {name: batch[name] for name in ("encoder_input_tokens", "encoder_attention_mask")}


def test_tags(tmp_path):
    their_model = theirs("t5", "ForTokenClassification", num_labels=3)
    model = parity.ours_of(their_model, tmp_path)
    batch = batch_of()
    counts = np.asarray(batch["encoder_attention_mask"]) > 0
    truth = np.where(counts, np.arange(counts.size).reshape(counts.shape) % 3, -100)
    out = their_model(**read_by(batch), labels=torch.tensor(truth))
    reads = {k: v for k, v in batch.items() if k.startswith("encoder")}
    reads["labels"] = jnp.asarray(truth)
    parity.close(jax.jit(model.logits)(reads), out.logits)
    parity.same_loss(model, reads, their_model, out)


# Padding may be an answer's place, too, but its input is never trained there.
@pytest.mark.parametrize("full", [False, True])
def test_answers(full, tmp_path):
    their_model = theirs("t5", "ForQuestionAnswering")
    model = parity.ours_of(their_model, tmp_path)
    batch = batch_of(full=full)
    ends = np.asarray(batch["encoder_attention_mask"]).sum(axis=1) - 1
    spans = {"start_positions": ends // 2, "end_positions": ends}
    out = their_model(**read_by(batch), **{k: torch.tensor(v) for k, v in spans.items()})
    reads = read_alone(batch) | {k: jnp.asarray(v) for k, v in spans.items()}
    seen = np.asarray(reads["encoder_attention_mask"]) > 0
    parity.same_ends(jax.jit(model.logits)(reads), out, seen)
    if full:
        parity.same_loss(model, reads, their_model, out)


HEADS = ("ForConditionalGeneration", "ForSequenceClassification", "ForTokenClassification")


@pytest.mark.parametrize("name", SWITCHES)
@pytest.mark.parametrize("head", [*HEADS, "ForQuestionAnswering", "Model", "EncoderModel"])
def test_there_and_back(name, head, tmp_path):
    their_model = theirs(name, head)
    if name == "mt5":  # exported as a T5 that is not tied, which computes the same
        model = parity.ours_of(their_model, tmp_path / "theirs")
        back = parity.exported(model, tmp_path / "ours")
    else:
        _, back = parity.there_and_back(their_model, tmp_path)
    inputs = read_by(batch_of())
    if head in ("ForConditionalGeneration", "Model"):
        inputs["decoder_input_ids"] = inputs["input_ids"]
    with torch.no_grad():
        parity.close(back(**inputs)[0], their_model(**inputs)[0])


def test_a_table_may_have_another_of_its_names_alone(tmp_path):
    model = parity.ours_of(theirs("t5", "ForConditionalGeneration"), tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    tensors["encoder.embed_tokens.weight"] = tensors.pop("shared.weight")
    save_file(tensors, path)
    found = model_directory.read(tmp_path)
    jax.tree.map(np.testing.assert_array_equal, found.params, parity.params_of(model))


def test_byt5_there_and_back(tmp_path):
    deep = {"num_layers": 3, "num_decoder_layers": 1, "vocab_size": 384}
    their_model = theirs(
        "t5", "ForConditionalGeneration", **deep, feed_forward_proj="gated-gelu", d_ff=44
    )
    their_model.lm_head.weight = torch.nn.Parameter(torch.randn(384, 24))
    their_model.config.tie_word_embeddings = False
    their_model.config.scale_decoder_outputs = False
    model, back = parity.there_and_back(their_model, tmp_path)
    assert not model.config.tied_logits
    assert back.config.model_type == "t5"
    inputs = read_by(batch_of())
    inputs["decoder_input_ids"] = inputs["input_ids"]
    with torch.no_grad():
        parity.close(back(**inputs).logits, their_model(**inputs).logits)


@pytest.mark.parametrize(
    ("settings", "architecture", "message"),
    [
        ({"feed_forward_proj": "gated-mish"}, "T5Model", "mish"),
        ({}, "T5ForNothing", "T5ForNothing is not supported"),
        ({}, "MyT5EncoderModel", "MyT5EncoderModel is not supported"),
        ({"pad_token_id": 1}, "T5Model", "pad_token_id 1: only 0"),
        (
            {"problem_type": "regression"},
            "T5ForSequenceClassification",
            "only 'single_label_classification' is read",
        ),
    ],
)
def test_what_is_not_read_is_refused(settings, architecture, message):
    with pytest.raises(ValueError, match=message):
        family.from_hf({"model_type": "t5", **SIZES, **settings}, architecture)
