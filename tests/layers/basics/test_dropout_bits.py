"""How dropout draws its masks: two numbers of 16 bits from each random word."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_like.core.partitioning import make_layout
from t5x_like.layers.basics.dropout import dropout

KEY = jax.random.key(0)


def kept(shape, rate, key=KEY, **options):
    return np.asarray(dropout(jnp.ones(shape), key, rate=rate, **options)) != 0


@pytest.mark.parametrize("shape", [(7,), (2, 3, 1), (4, 0), (2, 6, 3, 11)])
def test_any_shape_is_dropped_elementwise(shape):
    y = dropout(jnp.ones(shape), KEY, rate=0.5)
    assert y.shape == shape
    assert set(np.unique(y)) <= {0.0, 2.0}


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_both_halves_of_an_odd_dimension_are_dropped_at_the_rate(rate):
    keep = kept((1001, 301), rate)
    half = 151
    for part in (keep[..., :half], keep[..., half:]):
        error = np.sqrt(rate * (1 - rate) / part.size)
        assert abs(part.mean() - (1 - rate)) < 5 * error


def test_the_numbers_of_a_word_are_independent():
    keep = kept((1000, 400), 0.5)
    first, second = keep[:, :200], keep[:, 200:]
    # Of 200,000 pairs, 4 kinds: five standard deviations.
    for a in (first, ~first):
        for b in (second, ~second):
            assert abs((a & b).mean() - 0.25) < 5 * np.sqrt(3 / 16 / first.size)


@pytest.mark.parametrize("rate", [0.1, 0.3, 1e-5, 0.99999, 1e-9])
def test_the_mean_is_kept_whatever_the_rate_is_rounded_to(rate):
    values = np.unique(dropout(jnp.ones((64, 4096)), KEY, rate=rate))
    scale = float(values.max())
    probability = round(65536 / scale) / 65536
    np.testing.assert_allclose(scale * probability, 1, rtol=1e-6)
    assert abs(probability - (1 - rate)) <= 2**-16


@pytest.mark.parametrize("shared", [(1,), (2,), (0, 2)])
def test_one_mask_serves_shared_dimensions_the_last_too(shared):
    keep = kept((4, 6, 10), 0.5, shared=shared)
    for axis in range(3):
        first = np.take(keep, [0], axis)
        assert (keep == first).all() == (axis in shared)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mesh", "axes"),
    [
        ({"data": 2, "sequence": 4}, ("batch", "length", "embed_act")),
        ({"data": 2, "tensor": 4}, ("batch", "length", "mlp")),
        ({"tensor": 8}, ("batch", "heads", None, None)),
    ],
)
def test_the_mask_is_the_same_on_any_mesh(mesh, axes):
    shape = (8, 16, 24) if len(axes) == 3 else (8, 8, 4, 10)
    sharding = make_layout(mesh).sharding(axes, shape)
    drop = jax.jit(
        lambda x, key: dropout(x, key, rate=0.3),
        in_shardings=(sharding, None),
        out_shardings=sharding,
    )
    np.testing.assert_array_equal(drop(jnp.ones(shape), KEY) != 0, kept(shape, 0.3))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mesh", "axes"),
    [
        ({"data": 2, "sequence": 4}, ("batch", "length", "embed_act")),
        ({"data": 2, "tensor": 4}, ("batch", "heads", "length", None)),
    ],
)
def test_devices_draw_what_they_hold_without_talking(mesh, axes):
    shape = (8, 16, 24, 10)[: len(axes)]
    sharding = make_layout(mesh).sharding(axes, shape)

    def loss(x, key):
        return jnp.tanh(dropout(x, key, rate=0.3))

    compiled = jax.jit(
        lambda x, key: jax.vjp(functools.partial(loss, key=key), x)[1](x)[0],
        in_shardings=(sharding, None),
        out_shardings=sharding,
    ).lower(jax.ShapeDtypeStruct(shape, jnp.float32), KEY)
    text = compiled.compile().as_text()
    assert not [
        op for op in ("all-gather", "all-to-all", "collective-permute", "all-reduce") if op in text
    ]


@pytest.mark.parametrize("transform", [jax.checkpoint, "vmap", "scan"])
def test_transformations_draw_the_same_forwards_and_backwards(transform):
    keys = jax.random.split(KEY, 3)
    x = jnp.linspace(1, 2, 3 * 4 * 5).reshape(3, 4, 5)

    def drop(x, key):
        return dropout(x, key, rate=0.4)

    def all_rows(drop, x):
        return jnp.stack([drop(row, key) for row, key in zip(x, keys, strict=True)])

    plain = functools.partial(all_rows, drop)
    if transform == "vmap":
        other = lambda x: jax.vmap(drop)(x, keys)  # noqa: E731
    elif transform == "scan":
        other = lambda x: jax.lax.scan(lambda c, xs: (c, drop(*xs)), 0, (x, keys))[1]  # noqa: E731
    else:
        other = functools.partial(all_rows, transform(drop))
    for a, b in zip(
        *(jax.value_and_grad(lambda x, f=f: jnp.square(f(x)).sum())(x) for f in (plain, other)),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_sixteen_bit_floats_stay_so(dtype):
    y = dropout(jnp.ones((8, 64), dtype), KEY, rate=0.1)
    assert y.dtype == dtype
    np.testing.assert_allclose(y[y != 0].astype(jnp.float32), 10 / 9, rtol=2**-8)
