"""Skip-gram: its loss is that of its pairs, one by one."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tiny_families import FAMILIES, LENGTH, ROWS

from t5x_like.models.skip_gram import SkipGram


def made() -> SkipGram:
    model = FAMILIES["skip_gram"].make()(rngs=nnx.Rngs(0))
    draws = jax.random.normal(jax.random.key(1), model.output_table.shape)
    model.embedding.table[...] *= 20
    model.output_table[...] = draws
    return model


def loss(model: SkipGram, batch: dict) -> tuple[float, dict]:
    found, metrics, _ = model.loss(batch, None, (), model.weights(batch))
    return float(found), metrics


def test_the_loss_is_that_of_all_pairs() -> None:
    model, batch = made(), FAMILIES["skip_gram"].batch(np.random.default_rng(0))
    inputs, outputs = (
        np.asarray(x[...], np.float64) for x in (model.embedding.table, model.output_table)
    )
    total, pairs, right = 0.0, 0, 0
    for row in range(ROWS):
        length = batch["encoder_attention_mask"][row].sum()
        words = batch["encoder_input_tokens"][row, :length]
        for place, word in enumerate(words):
            radius = batch["reach"][row, place].sum()
            negatives = [n for n in batch["negatives"][row, place] if n != word]
            for near in range(max(place - radius, 0), min(place + radius + 1, length)):
                if near == place:
                    continue
                x = inputs[words[near]]
                own, others = x @ outputs[word], outputs[negatives] @ x
                total += np.logaddexp(0, -own) + np.logaddexp(0, others).sum()
                pairs += 1
                right += own > others.max(initial=-np.inf)
    found, metrics = loss(model, batch)
    assert found == pytest.approx(total / pairs, rel=1e-5)
    assert float(metrics["accuracy"][0]) == right
    assert float(metrics["accuracy"][1]) == pairs


def test_at_first_no_pair_is_known() -> None:
    model = FAMILIES["skip_gram"].make()(rngs=nnx.Rngs(0))
    batch = FAMILIES["skip_gram"].batch(np.random.default_rng(0))
    batch["negatives"] = np.full((ROWS, LENGTH, 4), 63, np.int32)
    batch["encoder_input_tokens"] %= 63  # no negative is the word itself
    assert loss(model, batch)[0] == pytest.approx(5 * math.log(2), rel=1e-5)
    bound = 0.5 / model.config.d_model
    assert float(jnp.abs(model.embedding.table[...]).max()) <= bound
    np.testing.assert_array_equal(
        model.states(batch).last, model.embedding.table[...][batch["encoder_input_tokens"]]
    )


def test_a_packed_row_has_the_pairs_of_its_texts() -> None:
    model, batch = made(), FAMILIES["skip_gram"].batch(np.random.default_rng(0))
    long = batch["encoder_attention_mask"].all(axis=1)
    whole = {name: x[long] for name, x in batch.items()}
    ids = np.where(np.arange(LENGTH) < 7, 1, 2) * np.ones((long.sum(), 1), np.int32)
    packed = whole | {"encoder_segment_ids": ids.astype(np.int32)}
    parts = [{name: x[:, part] for name, x in whole.items()} for part in np.s_[:7, 7:]]
    terms = [model.terms(part, None, ())[0]["pairs"] for part in (packed, *parts)]
    assert float(terms[0].weight) == sum(float(term.weight) for term in terms[1:]) > 0
    np.testing.assert_allclose(terms[0].sum, terms[1].sum + terms[2].sum, rtol=1e-5)
