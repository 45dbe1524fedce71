"""ALBERT computes what transformers' does, and its weights go there and back."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import parity
import pytest
import torch
import transformers
from flax import nnx

from t5x_like.core.abilities import ALL
from t5x_like.interop.hugging_face import albert as family
from t5x_like.models import albert

SIZES = {
    "vocab_size": 50,
    "embedding_size": 8,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "max_position_embeddings": 12,
    "attn_implementation": "eager",
    "pad_token_id": 0,
}
SHAPES = {
    "one": {},
    "groups": {"num_hidden_groups": 2, "inner_group_num": 2, "hidden_act": "gelu"},
    "wide": {"embedding_size": 16},
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


def theirs(head, shape="one", **more):
    config = transformers.AlbertConfig(**{**SIZES, **SHAPES[shape]}, **more)
    return parity.random_model(getattr(transformers, f"Albert{head}"), config)


def read(*, alternatives=None):
    """What a body reads, theirs and ours: rows of different lengths."""
    rng = np.random.default_rng(3)
    shape = (5, 12) if alternatives is None else (5, alternatives, 12)
    counts = (np.arange(12) < rng.integers(4, 13, shape[:-1])[..., None]).astype(np.int64)
    counts[0] = 1
    tokens = rng.integers(5, 50, shape) * counts
    types = (np.arange(12) >= 4) * counts
    batch = {
        "encoder_input_tokens": jnp.asarray(tokens, jnp.int32),
        "encoder_attention_mask": jnp.asarray(counts, jnp.int32),
        "encoder_token_type_ids": jnp.asarray(types, jnp.int32),
    }
    named = {"input_ids": tokens, "attention_mask": counts, "token_type_ids": types}
    return {name: torch.tensor(x) for name, x in named.items()}, batch


def masked(batch):
    """Masked positions of a batch, and their labels as transformers has them."""
    rng = np.random.default_rng(4)
    positions = np.stack([rng.permutation(4)[:3] for _ in range(5)])
    weights = (np.arange(3) < 1 + np.arange(5)[:, None] % 3).astype(np.float32)
    targets = rng.integers(5, 50, (5, 3))
    labels = np.full((5, 12), -100)
    for row, column in zip(*np.nonzero(weights), strict=True):
        labels[row, positions[row, column]] = targets[row, column]
    ours = {
        "masked_positions": positions,
        "masked_targets": targets,
        "masked_loss_weights": weights,
        "sentence_order_label": np.arange(5) % 2,
    }
    return batch | {name: jnp.asarray(x) for name, x in ours.items()}, torch.tensor(labels)


def same_loss(model, batch, their_model, out):
    out.loss.backward()
    loss, grads = parity.loss_and_gradients(model, batch)
    np.testing.assert_allclose(loss, out.loss.item(), rtol=1e-5)
    parity.same_gradients(grads, model, their_model)


@pytest.mark.parametrize("shape", SHAPES)
def test_pretraining_model(shape, tmp_path):
    their_model = theirs("ForPreTraining", shape)
    model = parity.ours_of(their_model, tmp_path)
    inputs, batch = read()
    batch, labels = masked(batch)
    out = their_model(
        **inputs,
        labels=labels,
        sentence_order_label=torch.arange(5) % 2,
        output_hidden_states=True,
        output_attentions=True,
    )
    counts = batch["encoder_attention_mask"] > 0
    parity.close(jax.jit(model.logits)(batch), out.prediction_logits, counts)
    parity.close(jax.jit(model.sentence_logits)(batch), out.sop_logits)
    hidden = functools.partial(model.encoder.hidden, want=ALL)
    found = jax.jit(hidden)(batch)
    for got, want in zip(found.states, out.hidden_states, strict=True):
        parity.close(got, want, counts)
    for got, want in zip(found.attention, out.attentions, strict=True):
        parity.close(got.swapaxes(1, 2), want.swapaxes(1, 2), counts)
    same_loss(model, batch, their_model, out)


def test_masked_language_model(tmp_path):
    their_model = theirs("ForMaskedLM", "groups")
    model = parity.ours_of(their_model, tmp_path)
    inputs, batch = read()
    batch, labels = masked(batch)
    out = their_model(**inputs, labels=labels)
    parity.close(jax.jit(model.logits)(batch), out.logits, batch["encoder_attention_mask"] > 0)
    same_loss(model, batch, their_model, out)


def test_body_alone(tmp_path):
    their_model = theirs("Model")
    model = parity.ours_of(their_model, tmp_path)
    inputs, batch = read()
    out = their_model(**inputs)
    counts = batch["encoder_attention_mask"] > 0
    parity.close(jax.jit(model.body.hidden)(batch).last, out.last_hidden_state, counts)
    parity.close(jax.jit(model.logits)(batch), out.pooler_output)


@pytest.mark.parametrize(
    ("head", "labels"),
    [
        ("ForSequenceClassification", 3),
        ("ForSequenceClassification", 1),
        ("ForTokenClassification", 4),
        ("ForMultipleChoice", 2),
    ],
)
def test_labels(head, labels, tmp_path):
    their_model = theirs(head, num_labels=labels)
    model = parity.ours_of(their_model, tmp_path)
    inputs, batch = read(alternatives=3 if head == "ForMultipleChoice" else None)
    truth, where = np.arange(5) % labels, None
    if labels == 1:
        truth = np.arange(5, dtype=np.float32) / 3
    if head == "ForTokenClassification":
        where = batch["encoder_attention_mask"] > 0
        truth = np.where(where, np.arange(60).reshape(5, 12) % labels, -100)
    out = their_model(**inputs, labels=torch.tensor(truth))
    batch["labels"] = jnp.asarray(truth)
    parity.close(jax.jit(model.logits)(batch), out.logits, where)
    same_loss(model, batch, their_model, out)


def test_answers(tmp_path):
    their_model = theirs("ForQuestionAnswering")
    model = parity.ours_of(their_model, tmp_path)
    inputs, batch = read()
    ends = inputs["attention_mask"].sum(dim=1) - 1
    out = their_model(**inputs, start_positions=ends // 2, end_positions=ends)
    batch |= {"start_positions": jnp.asarray(ends // 2), "end_positions": jnp.asarray(ends)}
    logits, counts = jax.jit(model.logits)(batch), batch["encoder_attention_mask"] > 0
    parity.close(logits[..., 0], out.start_logits, counts)
    parity.close(logits[..., 1], out.end_logits, counts)


@pytest.mark.parametrize("head", HEADS)
def test_there_and_back(head, tmp_path):
    their_model = theirs(head, "groups", classifier_dropout_prob=0.2)
    parity.there_and_back(their_model, tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"d_embedding": None},
        {"sharing": "none", "num_layers": 2, "inner_layers": 2},
        {"type_vocab_size": 0},
    ],
)
def test_what_is_theirs_in_other_words_is_written(changes, tmp_path):
    sizes = {"vocab_size": 50, "d_model": 16, "d_ff": 24, "num_heads": 4, "max_positions": 12}
    config = albert.Config(**sizes, **{"num_layers": 3, "init_std": 0.3, **changes})
    model = jax.jit(lambda: albert.Albert(config, rngs=nnx.Rngs(0)))()
    inputs, batch = read()
    if not config.type_vocab_size:
        del inputs["token_type_ids"], batch["encoder_token_type_ids"]
    with torch.no_grad():
        out = parity.exported(model, tmp_path)(**inputs)
    counts = batch["encoder_attention_mask"] > 0
    parity.close(jax.jit(model.logits)(batch), out.prediction_logits, counts)
    parity.close(jax.jit(model.sentence_logits)(batch), out.sop_logits)


def test_what_has_no_counterpart_is_refused():
    config = albert.Config(sharing="ffn")
    with pytest.raises(ValueError, match="sharing is 'ffn'"):
        family.to_hf(nnx.eval_shape(lambda: albert.Albert(config, rngs=nnx.Rngs(0))))
    with pytest.raises(ValueError, match="AlbertForRegression is not read"):
        family.from_hf(SIZES, "AlbertForRegression")
    with pytest.raises(ValueError, match="only 'absolute' is read"):
        family.from_hf({"position_embedding_type": "relative_key"}, "AlbertModel")
