"""Every kernel against `plain`; test_multi_head.py tests `plain` against NumPy."""

import functools

import gin
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st

from t5x_like.core.partitioning import make_layout
from t5x_like.layers.attention import attention_kernels
from t5x_like.layers.attention.attention_kernels import KeysValues, blocked, fused, plain
from t5x_like.layers.attention.masks import Mask
from t5x_like.layers.attention.multi_head import Attention, Inits, attend
from t5x_like.layers.attention.view import View
from t5x_like.layers.basics.dropout import Dropouts

KERNELS = {
    "fused": fused,
    "blocked": blocked,
    "blocks of 3": functools.partial(blocked, block=3),
    "blocks of 1": functools.partial(blocked, block=1),
}
each_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)


def arrays(shape, dtype, bias_shape, mask_shape):
    """Queries, keys, values, bias and mask; in the mask, some rows see nothing."""
    b, h, l, m, k = shape
    rng = np.random.default_rng(sum(shape))  # NumPy's: nothing to compile for each shape

    def normal(*shape):
        return jnp.asarray(rng.standard_normal(shape, np.float32).astype(jnp.dtype(dtype)))

    q, memory = normal(b, l, h, k), KeysValues(normal(b, m, h, k), normal(b, m, h, k))
    bias = None if bias_shape is None else jnp.asarray(rng.normal(0, 2, bias_shape), jnp.float32)
    mask = None
    if mask_shape is not None:
        mask = rng.random(mask_shape) < 0.6
        mask[1:2] = False  # row 1 is padding
        mask = Mask(pairs=jnp.asarray(mask))
    return (q, memory, bias), mask


@functools.partial(jax.jit, static_argnums=0)
def run(kernel, inputs, mask):
    """The values, and gradients of queries, keys, values and bias."""

    def loss(inputs):
        q, memory, bias = inputs
        values = attend(q, memory, view=View(mask=mask, bias=bias), kernel=kernel).values
        weight = jnp.cos(jnp.arange(values.size)).reshape(values.shape)
        return (weight * values.astype(jnp.float32)).sum(), values

    grads, values = jax.grad(loss, has_aux=True)(inputs)
    return values, grads


def check(kernel, shape, dtype="float32", bias_shape=None, mask_shape=None):
    inputs, mask = arrays(shape, dtype, bias_shape, mask_shape)
    want, got = run(plain, inputs, mask), run(kernel, inputs, mask)
    low = {"float32": 1e-6, "bfloat16": 2**-6}[dtype]
    for i, (a, b) in enumerate(zip(jax.tree.leaves(want), jax.tree.leaves(got), strict=True)):
        assert a.dtype == b.dtype
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        assert np.isfinite(b).all()
        size = max(1.0, np.abs(a).max())  # sums over rows and heads are larger
        np.testing.assert_allclose(b, a, rtol=0, atol=(1 if i == 0 else 4) * low * size)


@pytest.mark.slow
@each_kernel
def test_with_bias_and_mask_values_and_gradients_are_those_of_plain(kernel):
    check(kernel, (2, 3, 5, 7, 4), bias_shape=(1, 3, 5, 7), mask_shape=(2, 1, 5, 7))


@pytest.mark.slow
@each_kernel
@settings(deadline=None, max_examples=12)
@given(st.data())
def test_any_shapes_and_broadcasts_give_what_plain_gives(kernel, data):
    b, h, l, m, k = (
        data.draw(st.sampled_from([1, 2])),
        data.draw(st.sampled_from([1, 3])),
        data.draw(st.sampled_from([1, 4, 6])),
        data.draw(st.sampled_from([1, 3, 6, 8])),
        data.draw(st.sampled_from([1, 4])),
    )

    def broadcasting():
        whole = st.tuples(*(st.sampled_from(sorted({1, n})) for n in (b, h, l, m)))
        return data.draw(st.none() | whole)

    dtype = data.draw(st.sampled_from(["float32", "bfloat16"]))
    check(kernel, (b, h, l, m, k), dtype, bias_shape=broadcasting(), mask_shape=broadcasting())


@each_kernel
def test_a_query_that_sees_nothing_gets_the_mean_of_the_values(kernel):
    # Seven keys: blocks of three are filled up; the filling counts for nothing.
    (q, memory, bias), mask = arrays((2, 2, 3, 7, 4), "float32", (1, 2, 3, 7), (2, 1, 1, 7))
    values, grads = run(kernel, (q, memory, bias), mask)
    want = np.broadcast_to(memory.values[1].mean(0), (3, 2, 4))
    np.testing.assert_allclose(values[1], want, atol=1e-6)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(grads))
    np.testing.assert_array_equal(grads[0][1], 0)


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, 4], ids=["first keys", "last keys"])
def test_a_block_that_is_hidden_by_an_infinite_bias_counts_for_nothing(first):
    (q, memory, _), _ = arrays((1, 2, 3, 8, 4), "float32", None, None)
    hidden = (jnp.arange(8) >= first) & (jnp.arange(8) < first + 4)
    bias = jnp.where(hidden, -jnp.inf, 0.0)[None, None, None]
    inputs, kernel = (q, memory, bias), functools.partial(blocked, block=4)
    for a, b in zip(*(jax.tree.leaves(run(f, inputs, None)) for f in (plain, kernel)), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


@pytest.mark.slow
def test_large_logits_of_any_sign_stay_finite_in_every_order_of_blocks():
    (q, memory, _), _ = arrays((1, 1, 2, 6, 4), "float32", None, None)
    bias = jnp.array([-3e4, 2e4, -1e4, 3e4, 0.0, 3e4])[None, None, None]
    inputs, kernel = (q, memory, bias), functools.partial(blocked, block=2)
    for a, b in zip(*(jax.tree.leaves(run(f, inputs, None)) for f in (plain, kernel)), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-2)  # float32 represents 3e4 + logit to 2e-3


def largest_array(kernel, *, backwards):
    """Elements of the largest array that a program on 48 queries and 60 keys computes."""

    def loss(q, memory):
        return kernel(q, memory, mask=None, bias=None, drop=None).values.sum()

    program = jax.grad(loss, (0, 1)) if backwards else loss
    inputs, _ = arrays((1, 2, 48, 60, 2), "float32", None, None)
    sizes = []

    def visit(jaxpr):
        for equation in jaxpr.eqns:
            sizes.extend(v.aval.size for v in equation.outvars)
            for inner in jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, "eqns")):
                if hasattr(inner, "eqns"):
                    visit(getattr(inner, "jaxpr", inner))

    visit(jax.make_jaxpr(program)(*inputs[:2]).jaxpr)
    return max(sizes)


@pytest.mark.parametrize("backwards", [False, True])
def test_blocks_never_hold_all_pairs(backwards):
    assert largest_array(plain, backwards=backwards) == 2 * 48 * 60
    kernel = functools.partial(blocked, block=6)
    assert largest_array(kernel, backwards=backwards) == 2 * 48 * 6


def test_fused_refuses_dropout():
    (q, memory, _), _ = arrays((1, 1, 2, 2, 4), "float32", None, None)
    rates, key = Dropouts(hidden=0.1, attention=0.1), jax.random.key(0)
    with pytest.raises(ValueError, match="attention_dropout_rate"):
        attend(q, memory, dropouts=rates, key=key, kernel=fused)
    # Evaluation has no key, and other rates do not matter.
    assert attend(q, memory, dropouts=rates, kernel=fused).probabilities is None
    attend(q, memory, dropouts=Dropouts(hidden=0.1), key=key, kernel=fused)


def test_a_block_needs_a_key():
    (q, memory, _), _ = arrays((1, 1, 2, 2, 4), "float32", None, None)
    with pytest.raises(ValueError, match="block must be at least 1, got 0"):
        attend(q, memory, kernel=functools.partial(blocked, block=0))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "width", "lengths", "suits"),
    [
        ("bfloat16", 64, (6, 8), True),
        ("float16", 128, (6, 8), True),
        ("float32", 64, (6, 8), False),
        ("bfloat16", 20, (6, 8), False),
        ("bfloat16", 256, (6, 8), False),
        ("bfloat16", 64, (7, 8), False),
        ("bfloat16", 64, (6, 9), False),
    ],
)
def test_fused_takes_cudnn_where_that_can_compute_it(dtype, width, lengths, suits, monkeypatch):
    calls, jax_attention = [], jax.nn.dot_product_attention

    def on_cpu(q, k, v, *, bias, mask, scale, implementation):
        calls.append(implementation)
        assert bias.shape[2:] == mask.shape[2:] == lengths  # cuDNN broadcasts neither
        assert bias.dtype == q.dtype
        return jax_attention(q, k, v, bias=bias, mask=mask, scale=scale, implementation="xla")

    monkeypatch.setattr(jax.nn, "dot_product_attention", on_cpu)
    shape = (2, 1, *lengths, width)
    (q, memory, bias), mask = arrays(shape, dtype, (1, 1, *lengths), (2, 1, 1, lengths[1]))
    q *= np.asarray(width**-0.5, dtype)  # logits of about 1, as rounding is of a logit's size
    want = attend(q, memory, view=View(mask=mask, bias=bias), kernel=fused).values
    assert calls == []  # on this CPU
    monkeypatch.setattr(attention_kernels, "is_ampere", lambda device: True)
    got = attend(q, memory, view=View(mask=mask, bias=bias), kernel=fused).values
    assert calls == ["cudnn"] * suits
    np.testing.assert_allclose(np.float32(got), np.float32(want), atol=0.04)


@pytest.mark.slow
@each_kernel
def test_every_mesh_gives_the_same_values_and_gradients(kernel):
    init = Inits.same(nnx.initializers.normal(0.3))
    make = functools.partial(Attention, 16, 4, d_kv=4, inits=init, dtype="float32", kernel=kernel)
    attention = make(rngs=nnx.Rngs(0))
    x = jax.random.normal(jax.random.key(0), (8, 12, 16))
    bias = jax.random.normal(jax.random.key(1), (1, 4, 12, 12))
    mask = Mask(present=jnp.arange(12) < jnp.arange(4, 12)[:, None])

    def loss(attention, x, bias):
        y = attention(x, attention.keys_values(x), view=View(mask=mask, bias=bias))
        return jnp.square(y.values).sum()

    want = jax.jit(jax.value_and_grad(loss, (0, 1, 2)))(attention, x, bias)
    for mesh in ({"fsdp": 4, "tensor": 2}, {"data": 2, "sequence": 2, "tensor": 2}):
        with make_layout(mesh).active():
            # A separate program: a layout is read when tracing.
            program = jax.jit(jax.value_and_grad(functools.partial(loss), (0, 1, 2)))
            got = program(attention, x, bias)
        for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=4e-6 * np.abs(b).max())


@pytest.fixture
def clean_gin():
    gin.clear_config()
    yield
    gin.clear_config()


@pytest.mark.parametrize("name", ["plain", "fused", "blocked"])
def test_gin_chooses_the_kernel_and_its_block(name, clean_gin):
    gin.parse_config(
        "from __gin__ import dynamic_registration\n"
        "from t5x_like.layers.attention import attention_kernels\n"
        "from t5x_like.models import t5\n"
        f"t5.Config.kernel = @attention_kernels.{name}\n"
        "attention_kernels.blocked.block = 0"
    )
    kernel = gin.get_configurable("t5.Config")().kernel
    (q, memory, _), _ = arrays((1, 1, 2, 2, 4), "float32", None, None)
    if name == "blocked":
        with pytest.raises(ValueError, match=r"blocked\.block must be at least 1, got 0"):
            attend(q, memory, kernel=kernel)
    else:
        want = attend(q, memory, kernel=getattr(attention_kernels, name))
        np.testing.assert_array_equal(attend(q, memory, kernel=kernel).values, want.values)
