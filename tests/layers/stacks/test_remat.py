"""Policies of rematerialisation: the same gradients, and the one that fits the devices."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from t5x_like.core import partitioning
from t5x_like.layers.attention.view import View
from t5x_like.layers.basics.dropout import subkeys
from t5x_like.layers.stacks import remat
from t5x_like.models import bert, t5

pytestmark = pytest.mark.slow

CONFIGS = {
    "bert": functools.partial(
        bert.Config, vocab_size=32, d_model=32, d_ff=64, num_heads=2, num_layers=2
    ),
    "t5": functools.partial(
        t5.Config,
        vocab_size=32,
        d_model=32,
        d_ff=64,
        num_heads=2,
        d_kv=16,
        num_encoder_layers=2,
        dropout_rate=0.1,
    ),
}
BATCH, LENGTH = 4, 8


def encoder(name: str, **options: Any) -> Any:
    module = {"bert": bert.Encoder, "t5": t5.Encoder}[name]
    return module(CONFIGS[name](**options), rngs=nnx.Rngs(0))


def gradients(name: str, **options: Any) -> dict[str, Any]:
    graphdef, params = nnx.split(encoder(name, **options))
    tokens = jnp.arange(BATCH * LENGTH).reshape(BATCH, LENGTH) % 31 + 1
    batch = {"encoder_input_tokens": tokens, "encoder_attention_mask": jnp.ones_like(tokens)}

    def loss(params: Any) -> jax.Array:
        x_BLD = nnx.merge(graphdef, params).hidden(batch, jax.random.key(1)).last
        return jnp.square(x_BLD - 0.5).sum()

    return nnx.to_pure_dict(jax.jit(jax.grad(loss))(params))


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("unroll", [0, 1], ids=["unrolled", "scanned"])
def test_every_policy_gives_the_same_gradients(name: str, unroll: int) -> None:
    want = gradients(name, scan_unroll=unroll)
    for policy in ("products", "attention", "nothing"):
        got = gradients(name, scan_unroll=unroll, remat=policy)
        for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4)


def test_a_policy_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown REMAT 'product'; nearest: products"):
        t5.Config(remat="product")


def test_the_richest_policy_that_fits_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each stores less than the one before, and the choice follows the memory of the devices."""
    stack = encoder("t5").encoder
    x = jax.ShapeDtypeStruct((BATCH, LENGTH, 32), jnp.float32)
    stacked = (stack.layers, jax.random.split(jax.random.key(0), stack.num_layers))

    def body(layer: Any, x: jax.Array, key: jax.Array) -> tuple[jax.Array, None]:
        return layer(x, view=View(), key=subkeys(key, 1)[0])[0], None

    def stored(name: str) -> int:
        return remat._stored_bytes(jax.checkpoint(body, policy=remat.POLICIES[name]), x, stacked)

    sizes = [stored(name) for name in ("products", "attention", "nothing")]
    assert sizes == sorted(set(sizes), reverse=True)
    assert sizes[-1] == 4 * BATCH * LENGTH * 32

    def chosen(memory: float | None, taken: float = 0.0) -> Any:
        monkeypatch.setattr(remat, "usable_bytes", lambda mesh: memory)
        where = partitioning.make_layout({"data": 2}, devices=jax.devices()[:2])
        with dataclasses.replace(where, reserved=taken).active():
            return remat.fitting_policy([body], x, stack.num_layers, stacked)

    whole = [stack.num_layers * size / 2 / remat.ACTIVATIONS for size in sizes]
    assert chosen(None) is None
    assert chosen(1e12) is remat.POLICIES["all"] is None
    assert chosen(whole[0]) is remat.POLICIES["products"]
    assert chosen(whole[0] - 1) is remat.POLICIES["attention"]
    assert chosen(whole[1] - 1) is remat.POLICIES["nothing"]
    assert chosen(whole[0] + 100, taken=101) is remat.POLICIES["attention"]
