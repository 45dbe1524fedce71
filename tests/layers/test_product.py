import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_like.layers.product import product


@pytest.mark.parametrize("shape", [(3, 7), (7, 3), (4, 4)])
def test_value_and_gradients_are_those_of_the_plain_product(shape):
    x = jax.random.normal(jax.random.key(0), (2, 5, shape[0]))
    w = jax.random.normal(jax.random.key(1), shape)
    g = jax.random.normal(jax.random.key(2), (2, 5, shape[1]))
    got, got_grads = jax.vjp(product, x, w)
    want, want_grads = jax.vjp(jnp.matmul, x, w)
    np.testing.assert_array_equal(got, want)
    for a, b in zip(got_grads(g), want_grads(g), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
