"""GPT and GPT-2 compute what transformers' do, and their weights go there and back."""

import decoders
import jax
import jax.numpy as jnp
import numpy as np
import parity
import pytest
import torch
from flax import nnx

from t5x_like.interop.hugging_face import gpt as family
from t5x_like.models import gpt

SIZES = {
    "vocab_size": 50,
    "n_embd": 16,
    "n_head": 4,
    "n_layer": 3,
    "n_positions": 12,
    "attn_implementation": "eager",
}
STEMS = {"gpt2": "GPT2", "gpt2_narrow": "GPT2", "gpt": "OpenAIGPT"}
MORE = {"gpt2_narrow": {"n_inner": 24, "activation_function": "gelu"}}
PAD = 0
pytestmark = pytest.mark.slow


def theirs(name, head, **more):
    return parity.theirs(STEMS[name], head, **SIZES, **MORE.get(name, {}), **more)


@pytest.mark.parametrize("name", STEMS)
def test_language_model(name, tmp_path):
    their_model = theirs(name, "LMHeadModel")
    model = parity.ours_of(their_model, tmp_path)
    inputs, batch, counts = decoders.read()
    labels = torch.where(torch.tensor(counts), inputs["input_ids"], -100)
    out = their_model(**inputs, labels=labels, output_hidden_states=True, output_attentions=True)
    decoders.same_states(model, batch, out, counts)
    # Theirs predicts the next token of the same row.
    parity.same_loss(model, decoders.with_targets(batch, counts), their_model, out)


@pytest.mark.parametrize("labels", [3, 1])
@pytest.mark.parametrize("name", ["gpt2", "gpt"])
def test_classes_and_numbers(name, labels, tmp_path):
    their_model = theirs(name, "ForSequenceClassification", num_labels=labels, pad_token_id=PAD)
    model = parity.ours_of(their_model, tmp_path)
    inputs, batch, _ = decoders.read()
    truth = parity.truths(labels)
    out = their_model(**inputs, labels=torch.tensor(truth))
    batch["labels"] = jnp.asarray(truth)
    parity.close(jax.jit(model.logits)(batch), out.logits)
    parity.same_loss(model, batch, their_model, out)


def test_without_padding_the_last_token_of_a_row_is_its_class(tmp_path):
    their_model = theirs("gpt2", "ForSequenceClassification")
    model = parity.ours_of(their_model, tmp_path)
    inputs, batch, _ = decoders.read(rows=1)
    parity.close(jax.jit(model.logits)(batch), their_model(**inputs).logits)


def test_tags(tmp_path):
    their_model = theirs("gpt2", "ForTokenClassification", num_labels=4)
    model = parity.ours_of(their_model, tmp_path)
    inputs, batch, counts = decoders.read()
    truth = np.where(counts, np.arange(60).reshape(5, 12) % 4, -100)
    out = their_model(**inputs, labels=torch.tensor(truth))
    batch["labels"] = jnp.asarray(truth)
    parity.close(jax.jit(model.logits)(batch), out.logits, counts)
    parity.same_loss(model, batch, their_model, out)


# Without positions, the head reads a text's last token: theirs has no padding before it.
@pytest.mark.parametrize("positions", [True, False])
@pytest.mark.parametrize("name", ["gpt2", "gpt"])
def test_two_heads(name, positions, tmp_path):
    their_model = theirs(name, "DoubleHeadsModel", pad_token_id=PAD)
    model = parity.ours_of(their_model, tmp_path)
    inputs, batch, counts = decoders.read(rows=4, full=not positions)
    inputs["input_ids"] = inputs["input_ids"].reshape(2, 2, 12)
    tokens, counts = batch["decoder_input_tokens"].reshape(2, 2, 12), counts.reshape(2, 2, 12)
    batch = decoders.with_targets({"decoder_input_tokens": tokens}, counts)
    batch["labels"] = jnp.array([1, 0])
    if positions:
        at = np.array([[5, 8], [0, 3]])
        batch["choice_positions"] = jnp.asarray(at)
        inputs["mc_token_ids"] = torch.tensor(at)
    labels = torch.where(torch.tensor(counts), inputs["input_ids"], -100)
    out = their_model(**inputs, labels=labels, mc_labels=torch.tensor([1, 0]))
    logits, choices = jax.jit(model.scores)(batch)
    parity.close(logits, out.logits, counts)
    parity.close(choices, out.mc_logits)
    out.loss = out.mc_loss + 0.5 * out.loss
    parity.same_loss(model, batch, their_model, out)


def fine_tuned(batch, counts):
    """The rows as a run that fine-tunes has them: an encoder's, with a mask."""
    mask = jnp.asarray(counts, jnp.int32)
    return {"encoder_input_tokens": batch["decoder_input_tokens"], "encoder_attention_mask": mask}


FORMS = {
    "classes": ("ForSequenceClassification", {"num_labels": 3}),
    "numbers": ("ForSequenceClassification", {"num_labels": 1}),
    "several": (
        "ForSequenceClassification",
        {"num_labels": 3, "problem_type": "multi_label_classification"},
    ),
    "tags": ("ForTokenClassification", {"num_labels": 4, "classifier_dropout": 0.0}),
    "spans": ("ForQuestionAnswering", {}),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_step_of_fine_tuning(form, tmp_path):
    head, settings = FORMS[form]
    their_model = theirs("gpt2", head, **settings, pad_token_id=PAD)
    model = parity.ours_of(their_model, tmp_path)
    inputs, batch, counts = decoders.read(full=form == "spans")
    truth = {
        "classes": {"labels": parity.truths(3)},
        "numbers": {"labels": parity.truths(1)},
        "several": {"labels": np.eye(3, dtype=np.float32)[parity.truths(3)]},
        "tags": {"labels": np.where(counts, np.arange(60).reshape(5, 12) % 4, -100)},
        "spans": {"start_positions": np.arange(5), "end_positions": np.arange(5) + 3},
    }[form]
    out = their_model(**inputs, **{name: torch.tensor(x) for name, x in truth.items()})
    batch = fine_tuned(batch, counts) | {name: jnp.asarray(x) for name, x in truth.items()}
    parity.same_loss(model, batch, their_model, out)


@pytest.mark.parametrize("name", ["gpt2", "gpt"])
def test_a_step_of_fine_tuning_on_choices(name, tmp_path):
    their_model = theirs(name, "DoubleHeadsModel", pad_token_id=PAD)
    model = parity.ours_of(their_model, tmp_path)
    inputs, batch, counts = decoders.read(rows=4)
    batch = {name: x.reshape(2, 2, 12) for name, x in fine_tuned(batch, counts).items()} | {
        "labels": jnp.array([1, 0])
    }
    counts = torch.tensor(counts.reshape(2, 2, 12))
    tokens = inputs["input_ids"].reshape(2, 2, 12)
    out = their_model(
        tokens,
        mc_token_ids=counts.sum(-1) - 1,
        labels=torch.where(counts, tokens, -100),
        mc_labels=torch.tensor([1, 0]),
    )
    out.loss = out.mc_loss + 0.5 * out.loss
    parity.same_loss(model, batch, their_model, out)


def test_a_row_that_weighs_two_is_there_twice_and_a_choice_needs_tokens(tmp_path):
    model = parity.ours_of(theirs("gpt2", "DoubleHeadsModel", pad_token_id=PAD), tmp_path)
    _, batch, counts = decoders.read(rows=4)
    batch = {name: x.reshape(2, 2, 12) for name, x in fine_tuned(batch, counts).items()}
    batch["labels"] = jnp.array([1, 0])
    twice = {name: jnp.concatenate([x, x[:1]]) for name, x in batch.items()}
    want, _ = parity.loss_and_gradients(model, twice)
    weights = {"example_weights": jnp.array([2.0, 1.0])}
    loss, _ = parity.loss_and_gradients(model, batch | weights)
    np.testing.assert_allclose(loss, want, rtol=1e-6)
    assert model.terms(batch | weights, None, ())[1]["accuracy"][1] == 2
    mask = batch["encoder_attention_mask"].at[0, 1].set(0)
    choices = model.answers(batch | {"encoder_attention_mask": mask})
    assert choices[0, 1] < -1e8 < choices[0, 0]


def test_padding_does_not_speak_for_a_text(tmp_path):
    model = parity.ours_of(theirs("gpt2", "DoubleHeadsModel", pad_token_id=PAD), tmp_path)
    _, batch, counts = decoders.read(rows=4)
    batch = {"decoder_input_tokens": batch["decoder_input_tokens"].reshape(2, 2, 12)}
    _, found = model.scores(batch)
    at = jnp.asarray(counts.sum(axis=1).reshape(2, 2) - 1)
    _, want = model.scores({**batch, "choice_positions": at})
    np.testing.assert_array_equal(found, want)


# Padding may be an answer's place, too, but its input is never trained there.
@pytest.mark.parametrize("full", [False, True])
def test_answers(full, tmp_path):
    their_model = theirs("gpt2", "ForQuestionAnswering")
    model = parity.ours_of(their_model, tmp_path)
    inputs, batch, counts = decoders.read(full=full)
    ends = counts.sum(axis=1) - 1
    spans = {"start_positions": ends // 2, "end_positions": ends}
    out = their_model(**inputs, **{name: torch.tensor(x) for name, x in spans.items()})
    batch |= {name: jnp.asarray(x) for name, x in spans.items()}
    parity.same_ends(jax.jit(model.logits)(batch), out, counts)
    if full:
        parity.same_loss(model, batch, their_model, out)


@pytest.mark.parametrize("name", ["gpt2", "gpt"])
def test_body_alone(name, tmp_path):
    their_model = theirs(name, "Model")
    model, _ = parity.there_and_back(their_model, tmp_path)
    inputs, batch, counts = decoders.read()
    found = jax.jit(model.body.hidden)(batch).last
    parity.close(found, their_model(**inputs).last_hidden_state, counts)


@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("gpt2_narrow", "LMHeadModel"),
        ("gpt", "LMHeadModel"),
        ("gpt2", "ForSequenceClassification"),
        ("gpt", "ForSequenceClassification"),
        ("gpt2", "ForTokenClassification"),
        ("gpt2", "ForQuestionAnswering"),
        ("gpt2", "DoubleHeadsModel"),
        ("gpt", "DoubleHeadsModel"),
    ],
)
def test_there_and_back(name, head, tmp_path):
    parity.there_and_back(theirs(name, head), tmp_path)


@pytest.mark.parametrize(
    ("settings", "architecture", "message"),
    [
        ({"scale_attn_by_inverse_layer_idx": True}, "GPT2Model", "only False is read"),
        ({"embd_pdrop": 0.0}, "GPT2Model", "only equal rates are read"),
        ({"tie_word_embeddings": False}, "GPT2Model", "tie_word_embeddings False"),
        ({"problem_type": "regression"}, "GPT2ForSequenceClassification", "problem_type"),
        ({"summary_type": "mean"}, "GPT2DoubleHeadsModel", "summary_type 'mean': only 'cls_index'"),
        ({}, "GPT2ForMultipleChoice", "GPT2ForMultipleChoice is not read"),
    ],
)
def test_what_is_not_supported_is_refused(settings, architecture, message):
    with pytest.raises(ValueError, match=message):
        family.from_hf({"model_type": "gpt2", **settings}, architecture)
    with pytest.raises(ValueError, match="OpenAIGPTForTokenClassification is not read"):
        family.from_hf({"model_type": "openai-gpt"}, "OpenAIGPTForTokenClassification")


def test_what_has_no_counterpart_is_not_written():
    config = gpt.Config(pre_norm=False, d_model=16, d_ff=24, num_heads=4, num_layers=1)
    with pytest.raises(ValueError, match="d_ff 24"):
        family.to_hf(nnx.eval_shape(lambda: gpt.Gpt(config, rngs=nnx.Rngs(0))))
