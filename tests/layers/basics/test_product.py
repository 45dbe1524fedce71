from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_like.layers.basics import product as products
from t5x_like.layers.basics.product import product


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


@pytest.mark.parametrize("shape", [(3, 7), (7, 3)])
def test_a_narrow_gradient_is_one_of_16_bit_operands_on_tpus_alone(shape, monkeypatch):
    x = jax.random.normal(jax.random.key(0), (2, 5, shape[0]))
    w = jax.random.normal(jax.random.key(1), shape)
    g = jax.random.normal(jax.random.key(2), (2, 5, shape[1]))

    def gradients(narrow):
        return jax.vjp(lambda x, w: product(x, w, None, narrow), x, w)[1](g)

    wide = gradients(False)
    jax.tree.map(np.testing.assert_array_equal, gradients(True), wide)
    monkeypatch.setattr(products, "active_device", lambda: SimpleNamespace(platform="tpu"))
    dx, dw = gradients(True)
    np.testing.assert_array_equal(dx, wide[0])
    assert dw.dtype == jnp.float32
    assert (dw == dw.astype(jnp.bfloat16)).all()
    assert 0 < jnp.linalg.norm(dw - wide[1]) / jnp.linalg.norm(wide[1]) < 2**-7
    jax.tree.map(np.testing.assert_array_equal, gradients(False), wide)
