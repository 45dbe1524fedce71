"""Batches for encoders, theirs and ours, and comparisons for all families of encoders."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import parity
import pytest
import torch

from t5x_like.core.abilities import ALL

VOCAB, ROWS, LENGTH = 50, 5, 12
SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "max_position_embeddings": LENGTH,
    "attn_implementation": "eager",
}
LABEL_HEADS = (
    ("ForSequenceClassification", 3),
    ("ForSequenceClassification", 1),
    ("ForTokenClassification", 4),
    ("ForMultipleChoice", 2),
)
each_label_head = pytest.mark.parametrize(("head", "labels"), LABEL_HEADS)


def read(*, alternatives=None, pad=0, types=2, full=False):
    """What a body reads, theirs and ours: rows of different lengths, or all `full`."""
    rng = np.random.default_rng(3)
    shape = (ROWS, LENGTH) if alternatives is None else (ROWS, alternatives, LENGTH)
    counts = (np.arange(LENGTH) < rng.integers(4, LENGTH + 1, shape[:-1])[..., None]).astype(int)
    counts[slice(None) if full else 0] = 1
    tokens = np.where(counts, rng.integers(5, VOCAB, shape), pad)
    named = {"input_ids": tokens, "attention_mask": counts}
    if types:
        named["token_type_ids"] = (np.arange(LENGTH) >= 4) * counts * (types - 1)
    ours = {"input_ids": "encoder_input_tokens"}
    batch = {
        ours.get(name, f"encoder_{name}"): jnp.asarray(x, jnp.int32) for name, x in named.items()
    }
    return {name: torch.tensor(x) for name, x in named.items()}, batch


def masked(batch):
    """The batch with masked tokens, 1 to 3 a row, and their labels as transformers has them."""
    rng = np.random.default_rng(4)
    positions = np.stack([rng.permutation(4)[:3] for _ in range(ROWS)])
    weights = (np.arange(3) < 1 + np.arange(ROWS)[:, None] % 3).astype(np.float32)
    targets = rng.integers(5, VOCAB, (ROWS, 3))
    labels = np.full((ROWS, LENGTH), -100)
    for row, slot in zip(*np.nonzero(weights), strict=True):
        labels[row, positions[row, slot]] = targets[row, slot]
    ours = {
        "masked_positions": positions,
        "masked_targets": targets,
        "masked_loss_weights": weights,
        "next_sentence_label": np.arange(ROWS) % 2,
    }
    return batch | {name: jnp.asarray(x) for name, x in ours.items()}, torch.tensor(labels)


def counted(batch):
    """Where a batch has tokens, bool."""
    return np.asarray(batch["encoder_attention_mask"]) > 0


def same_states(body, batch, out, where=None):
    """Asserts the same states of every layer, and attention; None: padding included."""
    found = jax.jit(functools.partial(body.hidden, want=ALL))(batch)
    parity.same_layers(found.states, out.hidden_states, where)
    parity.same_layers(found.attention, out.attentions, where)


def same_body(their_model, directory, *, pooled=False, **kind):
    """States of every layer, and the first one `pooled`."""
    model = parity.ours_of(their_model, directory)
    inputs, batch = read(**kind)
    out = their_model(**inputs, output_hidden_states=True, output_attentions=True)
    same_states(model.body, batch, out)
    if pooled:
        parity.close(jax.jit(model.logits)(batch), out.pooler_output)


def same_predictions(their_model, directory, *, padding=True, **kind):
    """Masked tokens: their logits and their loss; returns our model.

    Without `padding`, what is computed there is not compared.
    """
    model = parity.ours_of(their_model, directory)
    inputs, batch = read(**kind)
    batch, labels = masked(batch)
    out = their_model(**inputs, labels=labels, output_hidden_states=True, output_attentions=True)
    where = None if padding else counted(batch)
    parity.close(jax.jit(model.logits)(batch), out.logits, where)
    same_states(model.encoder, batch, out, where)
    parity.same_loss(model, batch, their_model, out)
    return model


def same_labels(their_model, directory, *, labels, **kind):
    """Labels for classes, one or several, numbers (with one label), choices or tags.

    Their model's class and problem decide.
    """
    model = parity.ours_of(their_model, directory)
    name = type(their_model).__name__
    inputs, batch = read(alternatives=3 if name.endswith("MultipleChoice") else None, **kind)
    truth = parity.truths(labels, ROWS)
    if their_model.config.problem_type == "multi_label_classification":
        truth = (np.arange(ROWS * labels).reshape(ROWS, labels) % 3 > 0).astype(np.float32)
    if name.endswith("TokenClassification"):
        tags = np.arange(ROWS * LENGTH).reshape(ROWS, LENGTH) % labels
        truth = np.where(batch["encoder_attention_mask"] > 0, tags, -100)
    out = their_model(**inputs, labels=torch.tensor(truth))
    batch["labels"] = jnp.asarray(truth)
    parity.close(jax.jit(model.logits)(batch), out.logits)
    parity.same_loss(model, batch, their_model, out)


def same_there_and_back(their_model, directory, **kind):
    """Import and export: the same weights, configuration and first output."""
    _, back = parity.there_and_back(their_model, directory)
    chooses = type(their_model).__name__.endswith("MultipleChoice")
    inputs, _ = read(alternatives=3 if chooses else None, **kind)
    with torch.no_grad():
        parity.close(back(**inputs)[0], their_model(**inputs)[0])


def same_answers(their_model, directory, **kind):
    """The start and end of an answer.

    Uses the loss of rows without padding: they score padding too, but its vector never learns.
    """
    model = parity.ours_of(their_model, directory)
    for full in (False, True):
        inputs, batch = read(full=full, **kind)
        ends = inputs["attention_mask"].sum(dim=1) - 1
        out = their_model(**inputs, start_positions=ends // 2, end_positions=ends)
        parity.same_ends(jax.jit(model.logits)(batch), out)
    batch |= {"start_positions": jnp.asarray(ends // 2), "end_positions": jnp.asarray(ends)}
    parity.same_loss(model, batch, their_model, out)
