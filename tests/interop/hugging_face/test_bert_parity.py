"""BERT computes what transformers' does, and its weights go there and back."""

import dataclasses

import encoders
import jax
import numpy as np
import parity
import pytest
import torch
import transformers
from flax import nnx
from safetensors.numpy import load_file, save_file

from t5x_like.interop.hugging_face import bert as family
from t5x_like.interop.hugging_face import model_directory
from t5x_like.layers.basics import activations
from t5x_like.models import bert

SWITCHES = {
    "published": {},
    "original": {"hidden_act": "gelu_new", "layer_norm_eps": 1e-5},
    "types": {"hidden_act": "relu", "type_vocab_size": 3},
}
HEADS = (
    "ForPreTraining",
    "ForMaskedLM",
    "ForNextSentencePrediction",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForMultipleChoice",
    "ForQuestionAnswering",
    "Model",
)
pytestmark = pytest.mark.slow


def theirs(head, name="published", **more):
    return parity.theirs("Bert", head, **encoders.SIZES, **SWITCHES[name], **more)


@pytest.mark.parametrize("name", SWITCHES)
def test_pretraining_model(name, tmp_path):
    their_model = theirs("ForPreTraining", name)
    model = parity.ours_of(their_model, tmp_path)
    inputs, batch = encoders.read(types=their_model.config.type_vocab_size)
    batch, labels = encoders.masked(batch)
    out = their_model(
        **inputs,
        labels=labels,
        next_sentence_label=torch.arange(encoders.ROWS) % 2,
        output_hidden_states=True,
        output_attentions=True,
    )
    parity.close(jax.jit(model.logits)(batch), out.prediction_logits)
    parity.close(jax.jit(model.sentence_logits)(batch), out.seq_relationship_logits)
    encoders.same_states(model.encoder, batch, out)
    parity.same_loss(model, batch, their_model, out)


def test_masked_language_model(tmp_path):
    encoders.same_predictions(theirs("ForMaskedLM"), tmp_path)


def test_body_and_pooled_state(tmp_path):
    encoders.same_body(theirs("Model"), tmp_path, pooled=True)


def test_body_without_a_pooler_goes_out_with_a_fresh_one(tmp_path):
    bare = "BertModel(add_pooling_layer=False)"
    their_model = theirs("ForMaskedLM")
    model = parity.ours_of(their_model, tmp_path / "theirs", architecture=bare)
    inputs, batch = encoders.read()
    out = their_model.bert(**inputs)
    parity.close(jax.jit(model.body.hidden)(batch).last, out.last_hidden_state)
    back = parity.exported(model, tmp_path / "ours")
    parity.close(back(**inputs).last_hidden_state.detach(), out.last_hidden_state)
    assert back.pooler.dense.weight.std() > 0.01


@pytest.mark.parametrize(
    ("head", "labels"), [*encoders.LABEL_HEADS, ("ForNextSentencePrediction", 2)]
)
def test_labels(head, labels, tmp_path):
    encoders.same_labels(theirs(head, num_labels=labels), tmp_path, labels=labels)


def test_several_classes_at_once(tmp_path):
    problem = {"problem_type": "multi_label_classification"}
    their_model = theirs("ForSequenceClassification", num_labels=3, **problem)
    encoders.same_labels(their_model, tmp_path, labels=3)
    encoders.same_there_and_back(their_model, tmp_path / "again")


def test_answers(tmp_path):
    encoders.same_answers(theirs("ForQuestionAnswering"), tmp_path)


@pytest.mark.parametrize("head", HEADS)
def test_there_and_back(head, tmp_path):
    their_model = theirs(head, "original", classifier_dropout=0.0, hidden_dropout_prob=0.0)
    encoders.same_there_and_back(their_model, tmp_path)


@pytest.mark.parametrize("auto", ["AutoModel", "AutoModelForMaskedLM", "AutoModelForPreTraining"])
def test_a_pretrained_model_opens_as_any_of_its_classes(auto, tmp_path):
    model = parity.ours_of(theirs("ForPreTraining"), tmp_path / "theirs")
    parity.exported(model, tmp_path / "ours")
    _, report = getattr(transformers, auto).from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    assert not report["missing_keys"]


def test_shards_are_opened(tmp_path):
    their_model = theirs("ForMaskedLM")
    model = parity.ours_of(their_model, tmp_path / "theirs")
    back = parity.exported(model, tmp_path / "ours", shard_bytes=4000)
    assert len(list((tmp_path / "ours").glob("model-*-of-*.safetensors"))) > 2
    before, after = their_model.state_dict(), back.state_dict()
    assert all(torch.equal(before[key], after[key]) for key in before)


def test_files_of_old_are_read(tmp_path):
    their_model = theirs("ForPreTraining")
    model = parity.ours_of(their_model, tmp_path)
    path = tmp_path / "model.safetensors"
    old = {
        name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): x
        for name, x in load_file(path).items()
    }
    old["bert.embeddings.position_ids"] = np.arange(12)[None]
    # Some files have a tied table under its other name alone.
    old["cls.predictions.decoder.weight"] = old.pop("bert.embeddings.word_embeddings.weight")
    save_file(old, path)
    found = model_directory.read(tmp_path)
    assert found.unused == []
    jax.tree.map(np.testing.assert_array_equal, found.params, parity.params_of(model))


def tiny(**changes):
    config = bert.Config(
        vocab_size=50, d_model=16, d_ff=24, num_heads=4, num_layers=2, max_positions=12
    )
    return bert.Bert(dataclasses.replace(config, **changes), rngs=nnx.Rngs(0))


def test_a_model_without_token_types_has_zeros_for_them_there(tmp_path):
    model = tiny(type_vocab_size=0, init_std=0.3)
    inputs, batch = encoders.read(types=None)
    with torch.no_grad():
        out = parity.exported(model, tmp_path)(**inputs)
    parity.close(jax.jit(model.logits)(batch), out.prediction_logits)


@pytest.mark.parametrize(
    ("settings", "architecture", "message"),
    [
        ({}, "BertForCausalLM", "BertForCausalLM is not read"),
        ({"is_decoder": True}, "BertModel", "is_decoder True: only False"),
        ({"position_embedding_type": "relative_key"}, "BertModel", "only 'absolute' is read"),
        ({"hidden_act": "mish"}, "BertModel", "activation 'mish'"),
        ({"model_type": "roberta"}, "RobertaForPreTraining", "it is not a Roberta with a head"),
        (
            {"model_type": "roberta", "hidden_act": "relu"},
            "RobertaForMaskedLM",
            "only gelu is read and written",
        ),
    ],
)
def test_what_is_not_read_says_so(settings, architecture, message):
    with pytest.raises(ValueError, match=message):
        family.from_hf({"model_type": "bert", **settings}, architecture)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"d_embedding": 8}, "d_embedding is 8"),
        ({"relative_buckets": 32}, "relative_buckets is 32"),
        ({"padding_position": 1}, "no head for pairs"),
        (
            {
                "padding_position": 1,
                "sentence_head": False,
                "activation": activations.relu,
                "max_positions": 14,
            },
            "activation 'relu'",
        ),
        ({"activation": jax.nn.softplus}, "no name at Hugging Face"),
    ],
)
def test_what_is_not_written_says_so(changes, message):
    with pytest.raises(ValueError, match=message):
        family.to_hf(nnx.eval_shape(lambda: tiny(**changes)))


def test_the_published_settings_are_read():
    published = {"model_type": "bert", "hidden_act": "gelu"}
    make = family.from_hf(published, "BertForPreTraining")
    assert make.args == (bert.Config(),)
    assert make.args[0].activation is activations.gelu
