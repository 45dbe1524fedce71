import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_like.layers.basics import activations

X = np.linspace(-6, 6, 97)


def exact_gelu(x):
    return np.array([v * math.erfc(-v / math.sqrt(2)) / 2 for v in x])


def exact_slope(x):
    density = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    return np.array([math.erfc(-v / math.sqrt(2)) / 2 for v in x]) + x * density


def test_gelu_and_its_slope_are_the_definition():
    with jax.enable_x64(True):
        np.testing.assert_allclose(activations.gelu(jnp.array(X)), exact_gelu(X), atol=1e-14)
        slope = jax.jit(jax.vmap(jax.grad(activations.gelu)))(jnp.array(X))
        np.testing.assert_allclose(slope, exact_slope(X), atol=1e-14)
    np.testing.assert_allclose(
        activations.gelu(jnp.array(X, jnp.float32)), exact_gelu(X), atol=1e-6
    )


def test_gelu_of_16_bits_is_as_exact_as_they_allow():
    x = jnp.array(X, jnp.bfloat16)
    got = activations.gelu(x)
    assert got.dtype == jnp.bfloat16
    want = exact_gelu(np.asarray(x, np.float64))
    np.testing.assert_allclose(np.asarray(got, np.float64), want, rtol=2**-8, atol=1e-6)


def test_the_tanh_form_has_the_slope_of_its_function():
    with jax.enable_x64(True):
        x = jnp.array(X)
        want = jax.jit(jax.vmap(jax.grad(lambda v: jax.nn.gelu(v, approximate=True))))(x)
        np.testing.assert_allclose(
            jax.jit(jax.vmap(jax.grad(activations.gelu_tanh)))(x), want, atol=1e-14
        )
        assert np.abs(activations.gelu_tanh(x) - activations.gelu(x)).max() < 4.8e-4


@pytest.mark.parametrize("name", ["gelu", "gelu_tanh"])
def test_a_configuration_knows_it_by_name(name):
    function = getattr(activations, name)
    assert (function.__name__, function.__module__) == (name, activations.__name__)


@pytest.mark.parametrize("function", [activations.gelu, activations.gelu_tanh])
def test_the_backward_pass_keeps_the_input_alone(function):
    _, pull = jax.vjp(function, jnp.ones((3, 5), jnp.bfloat16))
    leaves = [leaf for leaf in jax.tree.leaves(pull) if leaf.size == 15]
    assert [leaf.dtype for leaf in leaves] == [jnp.bfloat16]


@pytest.mark.parametrize("function", [activations.gelu, activations.gelu_tanh])
@pytest.mark.parametrize("transform", [jax.checkpoint, jax.vmap])
def test_transformations_change_nothing(function, transform):
    def twice(f, x):
        return jax.lax.scan(lambda x, _: (f(x), None), x, length=2)[0].sum()

    x = jnp.array(X, jnp.float32)
    want, got = (
        jax.jit(jax.grad(functools.partial(twice, f)))(x) for f in (function, transform(function))
    )
    np.testing.assert_allclose(got, want, atol=1e-6)
