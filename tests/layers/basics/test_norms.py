import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_like.layers.basics import norms

D = 24


def derived_layer_norm(x, scale, bias, epsilon):
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    centred = wide - wide.mean(-1, keepdims=True)
    variance = jnp.square(centred).mean(-1, keepdims=True)
    return centred / jnp.sqrt(variance + epsilon) * scale + bias


def derived_rms_norm(x, scale, bias, epsilon):
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    return wide / jnp.sqrt(jnp.square(wide).mean(-1, keepdims=True) + epsilon) * scale


def own_rms_norm(x, scale, bias, epsilon):
    return norms.rms_norm(x, scale, epsilon)


PAIRS = {
    "layer": (norms.layer_norm, derived_layer_norm),
    "rms": (own_rms_norm, derived_rms_norm),
}


def arguments(dtype, shape=(2, 5, D)):
    keys = jax.random.split(jax.random.key(0), 3)
    # Away from 0, so that subtracting the mean matters.
    x = 2 + jax.random.normal(keys[0], shape).astype(dtype)
    wide = jnp.promote_types(dtype, jnp.float32)
    return (x, *(jax.random.normal(key, (shape[-1],), wide) for key in keys[1:]))


def gradients(norm, epsilon, *given):
    """The value, and gradients for weights of its elements."""

    def loss(*given):
        y = norm(*given, epsilon)
        return (y * jnp.cos(jnp.arange(y.size)).reshape(y.shape)).sum(), y

    grads, y = jax.jit(jax.grad(loss, argnums=(0, 1, 2), has_aux=True))(*given)
    return y, grads


@pytest.mark.slow
@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize(
    ("shape", "epsilon"), [((D,), 0.1), ((2, 5, D), 1e-12), ((4, 1), 0.1), ((4, 1), 1e-12)]
)
def test_gradients_are_the_derived_ones_in_float64(kind, shape, epsilon):
    with jax.enable_x64(True):
        given = arguments(jnp.float64, shape)
        (y, got), (want_y, want) = (gradients(f, epsilon, *given) for f in PAIRS[kind])
        np.testing.assert_allclose(y, want_y, atol=1e-12)
        for a, b in zip(got, want, strict=True):
            assert a.dtype == jnp.float64
            np.testing.assert_allclose(a, b, atol=1e-11)


@pytest.mark.parametrize("kind", PAIRS)
def test_of_bfloat16_statistics_and_gradients_of_vectors_are_float32(kind):
    given = arguments(jnp.bfloat16, (64, 32, D))
    (y, got), (want_y, want) = (gradients(f, 1e-6, *given) for f in PAIRS[kind])
    assert y.dtype == jnp.float32
    np.testing.assert_allclose(y, want_y, atol=1e-5)
    assert [g.dtype for g in got] == [jnp.bfloat16, jnp.float32, jnp.float32]
    for a, b, tolerance in zip(got, want, (2**-7, 1e-4, 1e-4), strict=True):
        np.testing.assert_allclose(a.astype(jnp.float32), b.astype(jnp.float32), atol=tolerance)


def looped(norm, epsilon, x, scale, bias):
    """Three norms, one after another."""
    body = lambda x, _: (norm(x, scale, bias, epsilon), None)  # noqa: E731
    return jax.lax.scan(body, x, length=3)[0]


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize("transform", [jax.checkpoint, jax.vmap])
def test_transformations_change_nothing(kind, transform):
    own, _ = PAIRS[kind]
    plain = functools.partial(looped, own, 1e-6)
    if transform is jax.vmap:
        transform = functools.partial(jax.vmap, in_axes=(0, None, None))

    @functools.partial(jax.jit, static_argnums=0)
    def of(f, *given):
        return jax.grad(lambda *given: jnp.cos(3 * f(*given)).sum(), argnums=(0, 1, 2))(*given)

    given = arguments(jnp.float32)
    for a, b in zip(of(transform(plain), *given), of(plain, *given), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5)


@pytest.mark.parametrize("kind", PAIRS)
def test_the_backward_pass_keeps_the_input_in_its_dtype_and_no_other_array_of_its_size(kind):
    own, _ = PAIRS[kind]
    given = arguments(jnp.bfloat16)
    _, pull = jax.vjp(lambda *given: own(*given, 1e-6), *given)
    large = [leaf.dtype for leaf in jax.tree.leaves(pull) if leaf.size == given[0].size]
    assert large == [jnp.bfloat16]
