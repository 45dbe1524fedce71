import math

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from t5x_like.layers.basics import activations
from t5x_like.layers.basics.dropout import NO_DROPOUT, Dropouts
from t5x_like.layers.basics.mlp import GatedMlp, Mlp

X = jax.random.normal(jax.random.key(0), (2, 3, 8))


def test_mlp_is_relu_between_two_matrices():
    mlp = Mlp(8, 16, dtype="float32", rngs=nnx.Rngs(0))
    want = np.maximum(X @ mlp.wi.kernel[...], 0) @ mlp.wo.kernel[...]
    np.testing.assert_allclose(mlp(X, dropouts=NO_DROPOUT, key=None), want, atol=1e-5)


def test_gated_mlp_multiplies_the_tanh_form_of_gelu_with_a_plain_projection():
    mlp = GatedMlp(8, 16, dtype="float32", rngs=nnx.Rngs(0))
    a, b = X @ mlp.wi_0.kernel[...], X @ mlp.wi_1.kernel[...]
    gelu = 0.5 * a * (1 + np.tanh(np.sqrt(2 / np.pi) * (a + 0.044715 * a**3)))
    np.testing.assert_allclose(
        mlp(X, dropouts=NO_DROPOUT, key=None), gelu * b @ mlp.wo.kernel[...], atol=1e-5
    )


def test_hidden_units_are_dropped_at_all_positions_of_a_row():
    mlp = Mlp(8, 64, dtype="float32", rngs=nnx.Rngs(0), activation=jnp.ones_like)
    y = np.asarray(mlp(X, dropouts=Dropouts(mlp=0.5, shared=True), key=jax.random.key(1)))
    np.testing.assert_allclose(y, np.broadcast_to(y[:, :1], y.shape), rtol=1e-5)
    assert not np.allclose(y[0], y[1])


def test_the_other_rates_drop_nothing_here():
    mlp = Mlp(8, 16, dtype="float32", rngs=nnx.Rngs(0))
    rates = Dropouts(hidden=0.9, attention=0.9)
    want = mlp(X, dropouts=NO_DROPOUT, key=None)
    np.testing.assert_array_equal(mlp(X, dropouts=rates, key=jax.random.key(0)), want)


def test_biases_and_initial_scales_are_given():
    inits = (nnx.initializers.constant(0.5), nnx.initializers.constant(0.25))
    options = {"bias": True, "inits": inits, "activation": jnp.square}
    mlp = Mlp(8, 16, dtype="float32", rngs=nnx.Rngs(0), **options)
    mlp.wi.bias[...] = jnp.arange(16.0)
    mlp.wo.bias[...] = jnp.arange(8.0)
    hidden = (0.5 * X.sum(-1, keepdims=True) + np.arange(16)) ** 2
    want = 0.25 * hidden.sum(-1, keepdims=True) + np.arange(8)
    np.testing.assert_allclose(mlp(X, dropouts=NO_DROPOUT, key=None), want, rtol=1e-5)


def test_activations_are_those_of_their_names():
    x = np.linspace(-4, 4, 101)
    erf = np.vectorize(math.erf)
    want = {
        "gelu": x * (1 + erf(x / np.sqrt(2))) / 2,
        "gelu_tanh": x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2,
        "relu": np.maximum(x, 0),
        "silu": x / (1 + np.exp(-x)),
        "tanh": np.tanh(x),
    }
    for name, y in want.items():
        got = getattr(activations, name)(jnp.asarray(x, jnp.float32))
        np.testing.assert_allclose(got, y, atol=1e-6, err_msg=name)
