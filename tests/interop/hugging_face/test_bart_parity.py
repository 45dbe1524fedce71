"""BART and mBART compute what transformers' do, and their weights go there and back."""

import functools

import decoders
import jax
import jax.numpy as jnp
import numpy as np
import parity
import pytest
import torch
import transformers
from flax import nnx

from t5x_like.core.abilities import ALL
from t5x_like.core.protocols.data import FeatureSpec, TokenIds
from t5x_like.data.rows.feature_converters import EncoderDecoder
from t5x_like.interop.hugging_face import bart as family
from t5x_like.interop.hugging_face import model_directory
from t5x_like.models import bart

SIZES = {
    "vocab_size": 60,
    "d_model": 24,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_ffn_dim": 40,
    "decoder_ffn_dim": 40,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "max_position_embeddings": 20,
    "attn_implementation": "eager",
}
SWITCHES = {
    "bart": ("Bart", {}),
    "bart_scaled": (
        "Bart",
        {"scale_embedding": True, "activation_function": "relu", "pad_token_id": 0},
    ),
    "mbart": ("MBart", {"scale_embedding": True}),
    "mbart_unscaled": ("MBart", {"activation_function": "gelu_new"}),
}
HEADS = ("ForConditionalGeneration", "ForSequenceClassification", "ForQuestionAnswering", "Model")
EOS = 2
LENGTHS = {"inputs": 13, "targets": 9}
pytestmark = pytest.mark.slow


def theirs(name, head, **more):
    """A random model in which no parameter is zero or one."""
    kind, switches = SWITCHES[name]
    model = parity.theirs(kind, head, **SIZES, **switches, **more)
    if head == "ForConditionalGeneration":
        model.final_logits_bias.normal_()
    return model


def batch_for(model, rows=5, shortest=2):
    """Rows of different lengths as the data pipeline makes them, each ending in </s>."""
    rng = np.random.default_rng(3)
    pad = model.config.pad_token_id
    ids = TokenIds(60, pad=pad, eos=EOS)
    features = {name: FeatureSpec(length) for name, length in LENGTHS.items()}

    def text(length):
        return np.append(
            rng.integers(4, 60, rng.integers(min(shortest, length - 1), length)), EOS
        ).astype(np.int32)

    laid = [
        EncoderDecoder(decoder_start="eos").convert(
            [{name: text(length) for name, length in LENGTHS.items()}], features=features, ids=ids
        )
        for _ in range(rows)
    ]
    return {name: jnp.stack([row[name] for row in laid]) for name in laid[0]}


def inputs_of(model, batch):
    tokens = torch.tensor(np.array(batch["encoder_input_tokens"], np.int64))
    return {"input_ids": tokens, "attention_mask": (tokens != model.config.pad_token_id).long()}


@pytest.mark.parametrize("name", SWITCHES)
def test_generation_model(name, tmp_path):
    their_model = theirs(name, "ForConditionalGeneration")
    model = parity.ours_of(their_model, tmp_path)
    batch = batch_for(their_model)
    targets = np.array(batch["decoder_target_tokens"], np.int64)
    counts = targets != their_model.config.pad_token_id
    out = their_model(
        **inputs_of(their_model, batch),
        labels=torch.tensor(np.where(counts, targets, -100)),
        output_hidden_states=True,
        output_attentions=True,
    )
    decoders.same_states(model, batch, out, counts)
    encode = functools.partial(model.encode, want=ALL)
    encoded = jax.jit(encode)(batch["encoder_input_tokens"])
    parity.same_layers(encoded.states, out.encoder_hidden_states)
    parity.same_layers(encoded.attention, out.encoder_attentions)
    parity.same_loss(model, batch, their_model, out)


@pytest.mark.parametrize(("name", "labels"), [("bart_scaled", 1), ("mbart", 4)])
def test_classes_and_numbers(name, labels, tmp_path):
    their_model = theirs(name, "ForSequenceClassification", num_labels=labels)
    model = parity.ours_of(their_model, tmp_path)
    batch = batch_for(their_model)
    truth = parity.truths(labels)
    out = their_model(**inputs_of(their_model, batch), labels=torch.tensor(truth))
    batch = {"encoder_input_tokens": batch["encoder_input_tokens"], "labels": jnp.asarray(truth)}
    parity.close(jax.jit(model.logits)(batch), out.logits)
    parity.same_loss(model, batch, their_model, out)


# Padding may be an answer's place, too, but its input is never trained there.
@pytest.mark.parametrize(
    ("name", "shortest"), [("bart", 2), ("bart", LENGTHS["inputs"]), ("mbart", LENGTHS["inputs"])]
)
def test_answers(name, shortest, tmp_path):
    their_model = theirs(name, "ForQuestionAnswering")
    model = parity.ours_of(their_model, tmp_path)
    batch = batch_for(their_model, shortest=shortest)
    inputs = inputs_of(their_model, batch)
    ends = inputs["attention_mask"].sum(dim=1) - 1
    spans = {"start_positions": ends // 2, "end_positions": ends}
    out = their_model(**inputs, **spans, decoder_attention_mask=inputs["attention_mask"])
    batch = {
        "encoder_input_tokens": batch["encoder_input_tokens"],
        "encoder_attention_mask": jnp.asarray(inputs["attention_mask"]),
        "start_positions": jnp.asarray(ends // 2),
        "end_positions": jnp.asarray(ends),
    }
    parity.same_ends(jax.jit(model.logits)(batch), out)
    if shortest == LENGTHS["inputs"]:
        parity.same_loss(model, batch, their_model, out)


@pytest.mark.parametrize("name", ["bart", "mbart"])
def test_body_alone(name, tmp_path):
    their_model = theirs(name, "Model")
    model = parity.ours_of(their_model, tmp_path)
    batch = batch_for(their_model)
    inputs = inputs_of(their_model, batch)
    counts = np.asarray(inputs["attention_mask"]) > 0
    out = their_model(**inputs)
    reads = {"encoder_input_tokens": batch["encoder_input_tokens"]}
    parity.close(jax.jit(model.body.hidden)(reads).last, out.last_hidden_state, counts)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("name", ["bart_scaled", "mbart"])
def test_there_and_back(name, head, tmp_path):
    their_model = theirs(name, head)
    _, back = parity.there_and_back(their_model, tmp_path)
    inputs = inputs_of(their_model, batch_for(their_model))
    with torch.no_grad():
        parity.close(back(**inputs)[0], their_model(**inputs)[0])


@pytest.mark.parametrize("name", SWITCHES)
def test_settings_there_and_back(name):
    prefix, switches = SWITCHES[name]
    kind, sizes = name.partition("_")[0], {k: SIZES[k] for k in SIZES if "attn" not in k}
    given = {"model_type": kind, **sizes, **switches, "dropout": 0.2, "activation_dropout": 0.3}
    make = family.from_hf(given, f"{prefix}ForConditionalGeneration")
    written = family.to_hf(nnx.eval_shape(lambda: make(rngs=nnx.Rngs(0))))
    assert given.items() <= written.items()


def test_a_model_made_here_has_zeros_for_the_bias_that_it_lacks(tmp_path):
    config = bart.Config(
        vocab_size=60, d_model=24, d_ff=40, num_heads=4, num_encoder_layers=1, num_decoder_layers=1
    )
    back = parity.exported(bart.Bart(config, rngs=nnx.Rngs(0)), tmp_path)
    assert not back.final_logits_bias.any()
    # It has none after the round trip either: theirs is a buffer.
    again = model_directory.read(tmp_path)
    assert again.make.args[0].logits_bias is False
    assert "logits_bias" not in again.params
    auto = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    assert type(auto) is type(back)


def test_the_body_of_a_generation_model(tmp_path):
    their_model = theirs("bart", "ForConditionalGeneration")
    model = parity.ours_of(their_model, tmp_path, architecture="BartModel")
    assert family.to_hf(model)["architectures"] == ["BartModel"]


def test_norms_of_another_epsilon_are_not_written():
    config = bart.Config(vocab_size=9, d_model=8, d_ff=8, num_heads=1, norm_epsilon=1e-6)
    with pytest.raises(ValueError, match="norm_epsilon is 1e-06"):
        family.to_hf(nnx.eval_shape(lambda: bart.Bart(config, rngs=nnx.Rngs(0))))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"decoder_ffn_dim": 8}, "only equal ones are read"),
        ({"encoder_layerdrop": 0.1}, "encoder_layerdrop 0.1"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings False"),
        ({"activation_function": "mish"}, "mish"),
    ],
)
def test_what_is_not_read_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        family.from_hf({"model_type": "bart", **SIZES, **settings}, "BartModel")


def test_a_class_that_is_not_read_is_refused():
    with pytest.raises(ValueError, match="BartDecoder is not read; of this family, Bart"):
        family.from_hf({"model_type": "bart"}, "BartDecoder")
