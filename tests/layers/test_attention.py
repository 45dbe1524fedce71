import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from t5x_like.layers.attention import Attention, KeysValues, attend


def arrays(dtype="float32", seed=0):
    keys = jax.random.split(jax.random.key(seed), 3)
    q, k, v = (
        jax.random.normal(key, (2, n, 3, 4), dtype) for key, n in zip(keys, (5, 6, 6), strict=True)
    )
    return q, KeysValues(k, v)


def test_attention_is_softmax_of_unscaled_products_plus_bias():
    q, (k, v) = arrays()
    bias = jax.random.normal(jax.random.key(1), (1, 3, 5, 6))
    logits = np.einsum("blhk,bmhk->bhlm", q, k).astype(np.float64) + bias
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    want = np.einsum("bhlm,bmhk->blhk", p, v)
    np.testing.assert_allclose(attend(q, KeysValues(k, v), bias=bias), want, atol=1e-5)


def test_masked_keys_and_values_get_no_gradient():
    q, memory = arrays()
    mask = (jnp.arange(6) < 4)[None, None, None, :]
    grads = jax.grad(lambda memory: jnp.square(attend(q, memory, mask=mask)).sum())(memory)
    for grad in grads:
        np.testing.assert_array_equal(grad[:, 4:], 0)
        assert np.all(np.abs(grad[:, :4]).max(-1) > 0)


def test_a_query_that_sees_nothing_averages_and_stays_finite():
    q, memory = arrays()
    out = attend(q, memory, mask=jnp.zeros((1, 1, 1, 6), bool))
    want = np.broadcast_to(memory.values.mean(1, keepdims=True), out.shape)
    np.testing.assert_allclose(out, want, atol=1e-6)
    grads = jax.grad(lambda q: attend(q, memory, mask=jnp.zeros((6,), bool)).sum())(q)
    assert np.isfinite(grads).all()


def test_softmax_is_float32_under_bfloat16():
    # Logits 256 and 257 are one number in bfloat16.
    q = jnp.array([1.0, 256.0], jnp.bfloat16).reshape(1, 1, 1, 2)
    k = jnp.array([[0.0, 1.0], [1.0, 1.0]], jnp.bfloat16).reshape(1, 2, 1, 2)
    v = jnp.array([[0.0, 0.0], [1.0, 1.0]], jnp.bfloat16).reshape(1, 2, 1, 2)
    out = attend(q, KeysValues(k, v))
    assert out.dtype == jnp.bfloat16
    np.testing.assert_allclose(out.astype(jnp.float32).ravel(), 1 / (1 + np.exp(-1)), atol=2e-3)


def test_dropped_probabilities_are_the_same_for_all_queries_of_a_row_and_head():
    q, memory = arrays()
    same_queries = jnp.broadcast_to(q[:, :1], q.shape)
    out = np.asarray(attend(same_queries, memory, rate=0.5, key=jax.random.key(3)))
    np.testing.assert_allclose(out, np.broadcast_to(out[:, :1], out.shape), rtol=1e-6)
    assert not np.allclose(out, attend(same_queries, memory))


@pytest.mark.parametrize(
    ("name", "variance", "shape"),
    [
        ("query", 1 / (256 * 32), (256, 160)),
        ("key", 1 / 256, (256, 160)),
        ("value", 1 / 256, (256, 160)),
        ("out", 1 / 160, (160, 256)),
    ],
)
def test_initial_scales(name, variance, shape):
    attention = Attention(256, 5, d_kv=32, dtype="float32", rngs=nnx.Rngs(0))
    kernel = np.asarray(getattr(attention, name).kernel[...])
    assert kernel.shape == shape
    np.testing.assert_allclose(kernel.var(), variance, rtol=0.03)


def test_initial_logits_have_unit_variance():
    attention = Attention(128, 4, d_kv=32, dtype="float32", rngs=nnx.Rngs(0))
    x = jax.random.normal(jax.random.key(0), (2, 64, 128))
    q = attention.query(x).reshape(2, 64, 4, 32)
    logits = np.einsum("blhk,bmhk->bhlm", q, attention.keys_values(x).keys)
    np.testing.assert_allclose(logits.var(), 1, rtol=0.1)
