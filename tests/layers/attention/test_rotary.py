"""Rotary positions: products depend on distances alone."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_like.core.partitioning import make_layout
from t5x_like.layers.attention.kernels import turning
from t5x_like.layers.attention.rotary import rotary


def test_a_product_depends_on_the_distance_alone_and_lengths_stay():
    q, k = jax.random.normal(jax.random.key(0), (2, 1, 1, 3, 8))  # one token, three heads
    positions = jnp.arange(20)[None]
    turned_q, turned_k = (
        rotary(positions, d_kv=8).turn(jnp.broadcast_to(x, (1, 20, 3, 8))) for x in (q, k)
    )
    products = np.asarray(jnp.einsum("blhk,bmhk->hlm", turned_q, turned_k))
    for distance in (0, 3, -7):
        diagonal = np.diagonal(products, distance, axis1=1, axis2=2)
        np.testing.assert_allclose(
            diagonal, diagonal[:, :1].repeat(20 - abs(distance), 1), atol=1e-5
        )
    assert np.abs(products[:, 0, 5] - products[:, 5, 0]).max() > 1e-2
    np.testing.assert_allclose(
        jnp.linalg.norm(turned_q, axis=-1), jnp.linalg.norm(q, axis=-1).repeat(20, 1), rtol=1e-5
    )
    np.testing.assert_array_equal(turned_q[:, 0], q[:, 0])


def test_angles_are_those_of_the_paper():
    """Position 3, second of four frequencies: 3 * 10000 ** (-1 / 4) radians."""
    cosines, sines = rotary(jnp.array([[3]]), d_kv=8)
    np.testing.assert_allclose(
        [cosines[0, 0, 1], sines[0, 0, 1]], [np.cos(0.3), np.sin(0.3)], rtol=1e-6
    )


@pytest.mark.parametrize(
    ("heads", "width", "mesh"), [(4, 64, {}), (2, 128, {}), (8, 32, {"data": 2, "tensor": 2})]
)
def test_the_kernel_for_tpus_turns_alike(heads, width, mesh):
    """Run as plain JAX; the gradient too."""
    x, weights = jax.random.normal(jax.random.key(0), (2, 2, 48, heads, width))
    turns = rotary(jnp.arange(96).reshape(2, 48), d_kv=width)
    assert turning.suits(x)
    assert not turning.suits(x[:, :1])

    def weighed(x, turn):
        turned = turn(x)
        return (turned * weights).sum(), turned

    both = [
        jax.grad(functools.partial(weighed, turn=turn), has_aux=True)
        for turn in (turns.turn, lambda x: turning.turn(x, *turns, interpret=True))
    ]
    usual = both[0](x)
    devices = math.prod(mesh.values())
    with make_layout(mesh or {"data": 1}, devices=jax.devices()[:devices]).active():
        ours = jax.jit(both[1])(x)
    for a, b in zip(ours, usual, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-6)


def test_heads_of_odd_width_are_refused():
    with pytest.raises(ValueError, match=r"even width, not d_kv=5"):
        rotary(jnp.array([[0]]), d_kv=5)
