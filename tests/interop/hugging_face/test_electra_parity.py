"""ELECTRA computes what transformers' does, and its weights go there and back."""

import dataclasses

import encoders
import jax
import jax.numpy as jnp
import numpy as np
import parity
import pytest
import torch
import transformers
from flax import nnx

from t5x_like.interop.hugging_face import electra as family
from t5x_like.interop.hugging_face import model_directory
from t5x_like.layers.basics import activations
from t5x_like.models import bert, electra

SIZES = encoders.SIZES | {"embedding_size": 8}
SWITCHES = {
    "published": {},
    "equal_widths": {"embedding_size": 16, "layer_norm_eps": 1e-5, "type_vocab_size": 3},
}
HEADS = (
    "ForPreTraining",
    "ForMaskedLM",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForMultipleChoice",
    "ForQuestionAnswering",
    "Model",
)
pytestmark = pytest.mark.slow


def theirs(head, name="published", **more):
    return parity.theirs("Electra", head, **SIZES | SWITCHES[name] | more)


@pytest.mark.parametrize("switches", [{}, {"hidden_act": "relu"}], ids=["gelu", "relu"])
@pytest.mark.parametrize("name", SWITCHES)
def test_discriminator(name, switches, tmp_path):
    their_model = theirs("ForPreTraining", name, **switches)
    model = parity.ours_of(their_model, tmp_path)
    inputs, batch = encoders.read(types=their_model.config.type_vocab_size)
    is_replaced = np.random.default_rng(0).random((encoders.ROWS, encoders.LENGTH)) < 0.3
    out = their_model(
        **inputs,
        labels=torch.tensor(is_replaced, dtype=torch.long),
        output_hidden_states=True,
        output_attentions=True,
    )
    parity.close(jax.jit(model.logits)(batch), out.logits)
    encoders.same_states(model.encoder, batch, out)
    originals = batch["encoder_input_tokens"] + is_replaced
    parity.same_loss(model, {**batch, "encoder_original_tokens": originals}, their_model, out)


@pytest.mark.parametrize("name", SWITCHES)
def test_generator(name, tmp_path):
    types = SWITCHES[name].get("type_vocab_size", 2)
    encoders.same_predictions(theirs("ForMaskedLM", name), tmp_path, types=types)


@pytest.mark.parametrize("name", SWITCHES)
def test_body_alone(name, tmp_path):
    types = SWITCHES[name].get("type_vocab_size", 2)
    encoders.same_body(theirs("Model", name), tmp_path, types=types)


@encoders.each_label_head
def test_labels(head, labels, tmp_path):
    encoders.same_labels(theirs(head, num_labels=labels), tmp_path, labels=labels)


def test_answers(tmp_path):
    encoders.same_answers(theirs("ForQuestionAnswering"), tmp_path)


@pytest.mark.parametrize("name", SWITCHES)
@pytest.mark.parametrize("head", HEADS)
def test_there_and_back(head, name, tmp_path):
    rates = {"classifier_dropout": 0.0, "summary_last_dropout": 0.3}
    their_model = theirs(head, name, **rates)
    encoders.same_there_and_back(their_model, tmp_path)


def test_a_pretrained_half_is_a_body(tmp_path):
    their_model = theirs("ForPreTraining")
    model = parity.ours_of(their_model, tmp_path, architecture="ElectraModel")
    inputs, batch = encoders.read()
    body = jax.jit(model.body.hidden)(batch).last
    parity.close(body, their_model.electra(**inputs).last_hidden_state)


TINY = electra.Config(
    vocab_size=encoders.VOCAB,
    d_model=16,
    d_ff=24,
    num_heads=4,
    num_layers=2,
    d_embedding=8,
    max_positions=12,
    generator_width=1.0,
    init_std=0.3,
)


def joint(**changes):
    config = dataclasses.replace(TINY, **changes)
    return jax.jit(lambda: electra.Electra(config, rngs=nnx.Rngs(0)))()


@pytest.mark.parametrize("sharing", ["none", "tokens", "embeddings", "all"])
def test_a_joint_model_goes_out_as_two(sharing, tmp_path):
    model = joint(sharing=sharing)
    params = jax.tree.map(np.asarray, parity.params_of(model))
    abstract = nnx.eval_shape(lambda: model)
    found = model_directory.halves(abstract, params)
    assert found.keys() == {"discriminator", "generator"}
    inputs, batch = encoders.read()
    batch, _ = encoders.masked(batch)
    classes = {"discriminator": "ElectraForPreTraining", "generator": "ElectraForMaskedLM"}
    for name, (half, half_params) in found.items():
        model_directory.write(tmp_path / name, half, half_params)
        cls = getattr(transformers, classes[name])
        back, report = cls.from_pretrained(tmp_path / name, output_loading_info=True)
        assert not any(report[part] for part in ("missing_keys", "unexpected_keys"))
        logits = back.eval()(**inputs).logits
        if name == "discriminator":
            parity.close(model.discriminator.logits(batch), logits)
        else:
            positions = torch.tensor(np.array(batch["masked_positions"], np.int64))
            at = torch.take_along_dim(logits, positions[..., None], dim=1)
            parity.close(model.predictions(batch), at)


def test_ablations_go_out_as_generators(tmp_path):
    for network in (bert.Bert, electra.AllTokens):
        model = joint(discriminator=network, uniform_generator=True)
        found = model_directory.halves(model, parity.params_of(model))
        assert found.keys() == {"discriminator"}
        directory = tmp_path / network.__name__
        name = model_directory.write(directory, *found["discriminator"])
        back = getattr(transformers, name).from_pretrained(directory).eval()
        inputs, batch = encoders.read()
        parity.close(model.discriminator.logits(batch), back(**inputs).logits)


@pytest.mark.parametrize(
    ("settings", "architecture", "message"),
    [
        ({}, "ElectraLMHeadModel", "ElectraLMHeadModel is not read"),
        ({"is_decoder": True}, "ElectraModel", "is_decoder True: only False"),
        ({"hidden_act": "relu"}, "ElectraForMaskedLM", "only gelu can be read"),
        ({"summary_type": "mean"}, "ElectraForMultipleChoice", "summary_type 'mean'"),
    ],
)
def test_what_is_not_read_says_so(settings, architecture, message):
    with pytest.raises(ValueError, match=message):
        family.from_hf({"model_type": "electra", **settings}, architecture)


def test_what_is_not_written_says_so():
    for changes, message in (
        ({"type_vocab_size": 0}, "type_vocab_size is 0"),
        ({"relative_buckets": 32}, "relative_buckets is 32"),
        ({"activation": activations.relu}, "only gelu"),
    ):
        config = dataclasses.replace(TINY, **changes).of_generator
        half = nnx.eval_shape(lambda config=config: electra.Generator(config, rngs=nnx.Rngs(0)))
        with pytest.raises(ValueError, match=message):
            family.to_hf(half)


def test_the_published_settings_are_read():
    make = family.from_hf({"model_type": "electra"}, "ElectraForPreTraining")
    small = bert.Config(d_model=256, d_ff=1024, num_heads=4, d_embedding=128, sentence_head=False)
    assert make.args == (small,)
    sizes = jax.tree.leaves(nnx.eval_shape(lambda: make(rngs=nnx.Rngs(0))))
    assert sum(int(jnp.prod(jnp.array(x.shape))) for x in sizes) == 13_549_057
