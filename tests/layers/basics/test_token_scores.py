"""Logits that are reduced block by block: the same losses and gradients as of whole logits."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_like.core import partitioning
from t5x_like.layers.basics import token_scores
from t5x_like.layers.basics.token_scores import TokenScores
from t5x_like.layers.losses.cross_entropy import token_sums

B, L, D, V = 4, 6, 8, 50


@pytest.fixture
def scores() -> tuple[TokenScores, jax.Array, jax.Array]:
    keys = jax.random.split(jax.random.key(0), 5)
    shapes = ((B, L, D), (V, D), (V,))
    x, table, bias = (jax.random.normal(*one) for one in zip(keys, shapes, strict=False))
    targets = jax.random.randint(keys[3], (B, L), 0, V)
    return TokenScores(x, table, bias), targets, jax.random.uniform(keys[4], (B, L))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_blocks_give_the_sums_and_gradients_of_whole_logits(
    scores: tuple[TokenScores, jax.Array, jax.Array],
    smoothing: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seven blocks, the last of which is filled up."""
    given, targets, weights = scores

    def loss(scores: TokenScores) -> tuple[jax.Array, tuple]:
        sums = token_sums(scores, targets, weights_BL=weights, label_smoothing=smoothing)
        return sums.cross_entropy + 1e-2 * sums.squared_log_z, sums

    whole, want = jax.value_and_grad(loss, has_aux=True)(given)
    where = partitioning.make_layout({"data": 2}, devices=jax.devices()[:2])
    of_a_device = 4 * B * L * V / 2
    memory = of_a_device / token_scores._WHOLE / 6.5
    monkeypatch.setattr(token_scores, "usable_bytes", lambda device: memory)
    with where.active():
        jaxpr = str(jax.make_jaxpr(jax.grad(loss, has_aux=True))(given))
        found, got = jax.jit(jax.value_and_grad(loss, has_aux=True))(given)
    assert f"f32[{B},{L},{V}]" not in jaxpr
    assert f"f32[{B},{L},{-(-V // 7)}]" in jaxpr
    np.testing.assert_allclose(found[0], whole[0], rtol=1e-6)
    for a, b in zip(found[1], whole[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)
    for a, b in zip(*map(jax.tree.leaves, (got, want)), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5)


def test_small_logits_are_formed_at_once(
    scores: tuple[TokenScores, jax.Array, jax.Array],
) -> None:
    given, targets, _ = scores
    jaxpr = str(jax.make_jaxpr(lambda s: s.reductions(targets))(given))
    assert f"f32[{B},{L},{V}]" in jaxpr
    assert "scan" not in jaxpr
    assert jnp.isfinite(given.reductions(targets).log_z).all()
