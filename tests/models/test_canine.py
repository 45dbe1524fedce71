"""CANINE's last layer at masked positions, and the order in which it predicts characters."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tiny_families import FAMILIES

from t5x_like.core.abilities import ALL
from t5x_like.core.partitioning import map_parameters
from t5x_like.layers.basics import hashed
from t5x_like.layers.heads.masked_lm import at_positions
from t5x_like.layers.stacks import molecules
from t5x_like.models import canine_pretraining
from t5x_like.training.optimization import layerwise
from t5x_like.training.optimization.parameter_paths import by_path

FAMILY = FAMILIES["canine_c"]
BATCH = {name: jnp.asarray(x) for name, x in FAMILY.batch(np.random.default_rng(0)).items()}


@functools.cache
def made() -> canine_pretraining.CanineC:
    return nnx.jit(lambda: FAMILY.make(init_std=0.3)(rngs=nnx.Rngs(0)))()


@jax.jit
def scores(model: canine_pretraining.CanineC, batch: dict[str, Any]) -> jax.Array:
    """Of each masked position, [B, K, V]."""
    x_BKD, _ = model.encoder.predicting(batch)
    return model.scores(x_BKD, batch, None).logits()


def test_the_last_layer_computes_masked_positions_alone() -> None:
    """As in the whole row; with dropout, they have no less."""
    encoder = made().encoder
    found = jax.jit(lambda batch: encoder.predicting(batch)[0])(BATCH)
    whole = jax.jit(lambda batch: encoder.hidden(batch).last)(BATCH)
    want = at_positions(whole, BATCH["masked_positions"])
    given = np.asarray(BATCH["masked_loss_weights"]) > 0
    np.testing.assert_allclose(np.asarray(found)[given], np.asarray(want)[given], atol=2e-5)


def test_a_character_is_predicted_from_those_before_it_in_the_order() -> None:
    """Not from itself, nor from later ones, nor from slots without weight."""
    model, before = made(), np.asarray(scores(made(), BATCH))
    given = np.asarray(BATCH["masked_loss_weights"]) > 0
    row = int(np.argmax(given.sum(axis=1)))
    assert given[row].all()
    slot = 2
    other = BATCH["masked_targets"].at[row, slot].add(1)
    after = np.asarray(scores(model, BATCH | {"masked_targets": other}))
    changed = np.abs(after - before)[row].max(axis=1) > 1e-5
    assert changed.tolist() == [False] * (slot + 1) + [True] * (len(changed) - slot - 1)
    no_weight = np.where(given, BATCH["masked_targets"], 5)
    padded = np.asarray(scores(model, BATCH | {"masked_targets": jnp.asarray(no_weight)}))
    np.testing.assert_array_equal(padded[given], before[given])


def test_a_subword_beyond_the_table_shows() -> None:
    """The loss is NaN, so that a run stops; it is a number where all have a row."""
    family = FAMILIES["canine_s"]
    model = nnx.jit(lambda: family.make()(rngs=nnx.Rngs(0)))()
    batch = BATCH | {"masked_subwords": BATCH["masked_targets"] % 30}
    loss = jax.jit(lambda batch: model.loss(batch, None, (), model.weights(batch))[0])
    assert np.isfinite(loss(batch))
    beyond = batch["masked_subwords"].at[0, 0].set(30)
    assert np.isnan(loss(batch | {"masked_subwords": beyond}))


def test_characters_of_other_blocks_are_not_seen() -> None:
    """By the first layer: a change stays in its block, of which the last has fewer characters."""
    encoder = made().encoder
    size, length = 6, 16
    x_BLD = jax.random.normal(jax.random.key(0), (1, length, 16))
    run = jax.jit(
        lambda x: molecules.in_blocks(
            encoder.initial, x, jnp.ones((1, length), jnp.int32), size=size
        )
    )
    for at in (0, 7, 15):
        apart = np.abs(run(x_BLD) - run(x_BLD.at[0, at].add(1.0))).max(axis=(0, 2)) > 1e-6
        assert np.flatnonzero(apart).tolist() == [
            i for i in range(length) if i // size == at // size
        ]


def test_any_code_point_has_a_vector() -> None:
    """Rows are those of the published hash functions, also where products are largest."""
    characters = np.array([[0, 0x41, 0xE003, 0x10FFFF]])
    tables = nnx.jit(
        lambda: hashed.HashEmbedding(
            1000, 32, num_hashes=16, init=nnx.initializers.normal(), rngs=nnx.Rngs(0)
        )
    )()
    found = np.asarray(tables(jnp.asarray(characters), dtype="float32"))
    of_tables = np.asarray(tables.tables.table[...])
    rows = [[(int(c) + 1) * prime % 1000 for c in characters[0]] for prime in hashed.PRIMES]
    want = np.concatenate([of_tables[s, rows[s]] for s in range(16)], axis=-1)
    np.testing.assert_array_equal(found[0], want)


def test_what_cannot_be_said_is_an_error() -> None:
    encoder = made().encoder
    with pytest.raises(ValueError, match="no one array"):
        encoder.states(BATCH, want=ALL)
    short = {name: x[:, :3] for name, x in BATCH.items() if x.ndim > 1}
    with pytest.raises(ValueError, match="no molecule of 4"):
        encoder.hidden(short)
    with pytest.raises(ValueError, match="divide the width 16"):
        FAMILY.make(num_hashes=3)
    with pytest.raises(ValueError, match="characters or molecules"):
        FAMILY.make(heads_read="words")


def test_dropout_has_keys_of_its_own() -> None:
    """In every part: two keys give two losses, one key one."""
    model = FAMILY.make(dropout_rate=0.1, attention_dropout_rate=0.1)(rngs=nnx.Rngs(0))
    loss = jax.jit(lambda key: model.loss(BATCH, key, (), model.weights(BATCH))[0])
    keys = [jax.random.key(seed) for seed in (0, 0, 1)]
    same, again, other = (float(loss(key)) for key in keys)
    assert same == again != other


def test_rates_fall_from_layer_to_layer() -> None:
    """A layer of characters, two of molecules and one of characters; tables of hashes are below."""
    params = nnx.state(nnx.eval_shape(lambda: FAMILY.make()(rngs=nnx.Rngs(0))), nnx.Param)
    stacked = map_parameters(lambda axes, shape: len(shape) - len(axes), params)
    scales = by_path(
        layerwise.layer_scales(
            nnx.to_pure_dict(params), stacked, layerwise.depths(params), decay=0.5
        )
    )
    kernel = "layers.attention.query.kernel"
    for stack, expected in (("initial", [4]), ("stack", [3, 2]), ("final", [1])):
        found = scales[f"encoder.{stack}.{kernel}"].ravel()
        np.testing.assert_array_equal(found, 0.5 ** np.array(expected))
    for name in ("tokens.tables.table", "norm.bias"):
        assert scales[f"encoder.embedding.{name}"] == 0.5**5
