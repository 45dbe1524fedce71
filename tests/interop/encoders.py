"""Batches for encoders, theirs and ours, and comparisons for all families of encoders."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import parity
import torch

from t5x_like.core.abilities import ALL

VOCAB, ROWS, LENGTH = 50, 5, 12


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


def same_loss(model, batch, their_model, out):
    """Asserts the same gradient of every parameter, too."""
    out.loss.backward()
    loss, grads = parity.loss_and_gradients(model, batch)
    np.testing.assert_allclose(loss, out.loss.item(), rtol=1e-5)
    parity.same_gradients(grads, model, their_model)


def same_states(body, batch, out):
    """Asserts the same states of every layer, padding included, and attention."""
    hidden = functools.partial(body.hidden, want=ALL)
    found = jax.jit(hidden)(batch)
    for got, want in zip(found.states, out.hidden_states, strict=True):
        parity.close(got, want)
    for got, want in zip(found.attention, out.attentions, strict=True):
        parity.close(got, want)


def same_labels(their_model, directory, *, labels, **kind):
    """Labels for classes, numbers (with one label), choices or tags, by their model's class."""
    model = parity.ours_of(their_model, directory)
    name = type(their_model).__name__
    inputs, batch = read(alternatives=3 if name.endswith("MultipleChoice") else None, **kind)
    truth = np.arange(ROWS) % labels
    if labels == 1:
        truth = np.arange(ROWS, dtype=np.float32) / 3
    if name.endswith("TokenClassification"):
        tags = np.arange(ROWS * LENGTH).reshape(ROWS, LENGTH) % labels
        truth = np.where(batch["encoder_attention_mask"] > 0, tags, -100)
    out = their_model(**inputs, labels=torch.tensor(truth))
    batch["labels"] = jnp.asarray(truth)
    parity.close(jax.jit(model.logits)(batch), out.logits)
    same_loss(model, batch, their_model, out)


def same_answers(their_model, directory, **kind):
    """The start and end of an answer.

    Uses the loss of rows without padding: they score padding too, but its vector never learns.
    """
    model = parity.ours_of(their_model, directory)
    for full in (False, True):
        inputs, batch = read(full=full, **kind)
        ends = inputs["attention_mask"].sum(dim=1) - 1
        out = their_model(**inputs, start_positions=ends // 2, end_positions=ends)
        logits = jax.jit(model.logits)(batch)
        parity.close(logits[..., 0], out.start_logits)
        parity.close(logits[..., 1], out.end_logits)
    batch |= {"start_positions": jnp.asarray(ends // 2), "end_positions": jnp.asarray(ends)}
    same_loss(model, batch, their_model, out)
