import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_like.layers import norms

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
    # Away from 0, so that taking off the mean matters.
    x = 2 + jax.random.normal(keys[0], shape).astype(dtype)
    wide = jnp.promote_types(dtype, jnp.float32)
    return (x, *(jax.random.normal(key, (shape[-1],), wide) for key in keys[1:]))


def gradients(norm, epsilon, *given):
    weights = jnp.cos(jnp.arange(given[0].size)).reshape(given[0].shape)

    def loss(*given):
        return (norm(*given, epsilon) * weights).sum()

    return jax.grad(loss, argnums=(0, 1, 2))(*given)


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize("shape", [(D,), (3, D), (2, 5, D), (4, 1)])
@pytest.mark.parametrize("epsilon", [1e-12, 0.1])
def test_gradients_are_the_derived_ones_in_float64(kind, shape, epsilon):
    own, derived = PAIRS[kind]
    with jax.enable_x64(True):
        given = arguments(jnp.float64, shape)
        np.testing.assert_allclose(own(*given, epsilon), derived(*given, epsilon), atol=1e-12)
        if shape[-1] == 1 and epsilon < 0.1:
            return  # a variance of 0 has no derived gradient
        for a, b in zip(*(gradients(f, epsilon, *given) for f in (own, derived)), strict=True):
            assert a.dtype == jnp.float64
            np.testing.assert_allclose(a, b, atol=1e-11)


@pytest.mark.parametrize("kind", PAIRS)
def test_of_bfloat16_statistics_and_gradients_of_vectors_are_float32(kind):
    own, derived = PAIRS[kind]
    given = arguments(jnp.bfloat16, (64, 32, D))
    assert own(*given, 1e-6).dtype == jnp.float32
    np.testing.assert_allclose(own(*given, 1e-6), derived(*given, 1e-6), atol=1e-5)
    got, want = (gradients(f, 1e-6, *given) for f in (own, derived))
    assert [g.dtype for g in got] == [jnp.bfloat16, jnp.float32, jnp.float32]
    for a, b, tolerance in zip(got, want, (2**-7, 1e-4, 1e-4), strict=True):
        np.testing.assert_allclose(a.astype(jnp.float32), b.astype(jnp.float32), atol=tolerance)


def looped(norm, epsilon, x, scale, bias):
    """Three norms, one after another."""
    body = lambda x, _: (norm(x, scale, bias, epsilon), None)  # noqa: E731
    return jax.lax.scan(body, x, length=3)[0]


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize("transform", [jax.checkpoint, jax.vmap, jax.jit])
def test_transformations_change_nothing(kind, transform):
    own, _ = PAIRS[kind]
    given = arguments(jnp.float32)
    if transform is jax.vmap:
        transform = functools.partial(jax.vmap, in_axes=(0, None, None))

    def loss(f, *given):
        return jnp.cos(3 * f(*given)).sum()

    plain = functools.partial(looped, own, 1e-6)
    wanted = jax.grad(functools.partial(loss, plain), argnums=(0, 1, 2))(*given)
    got = jax.grad(functools.partial(loss, transform(plain)), argnums=(0, 1, 2))(*given)
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5)


@pytest.mark.parametrize("kind", PAIRS)
def test_the_backward_pass_keeps_the_input_in_its_dtype_and_no_other_array_of_its_size(kind):
    own, _ = PAIRS[kind]
    given = arguments(jnp.bfloat16)
    _, pull = jax.vjp(lambda *given: own(*given, 1e-6), *given)
    large = [leaf.dtype for leaf in jax.tree.leaves(pull) if leaf.size == given[0].size]
    assert large == [jnp.bfloat16]
