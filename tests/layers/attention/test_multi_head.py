import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from t5x_like.layers.attention.attention_kernels import KeysValues
from t5x_like.layers.attention.masks import Mask
from t5x_like.layers.attention.multi_head import Attention, Inits, attend
from t5x_like.layers.attention.view import View
from t5x_like.layers.basics.dropout import Dropouts


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
    np.testing.assert_allclose(
        attend(q, KeysValues(k, v), view=View(bias=bias)).values, want, atol=1e-5
    )


def test_masked_keys_and_values_get_no_gradient():
    q, memory = arrays()
    view = View(mask=Mask(present=jnp.arange(6)[None] < 4))
    grads = jax.grad(lambda memory: jnp.square(attend(q, memory, view=view).values).sum())(memory)
    for grad in grads:
        np.testing.assert_array_equal(grad[:, 4:], 0)
        assert np.all(np.abs(grad[:, :4]).max(-1) > 0)


def test_a_query_that_sees_nothing_averages_and_stays_finite():
    q, memory = arrays()
    blind = View(mask=Mask(present=jnp.zeros((1, 6), bool)))
    out, p = attend(q, memory, view=blind)
    np.testing.assert_allclose(p, np.full((2, 3, 5, 6), 1 / 6), rtol=1e-6)
    want = np.broadcast_to(memory.values.mean(1, keepdims=True), out.shape)
    np.testing.assert_allclose(out, want, atol=1e-6)
    grads = jax.grad(lambda q: attend(q, memory, view=blind).values.sum())(q)
    assert np.isfinite(grads).all()


def test_softmax_is_float32_under_bfloat16():
    # Logits 256 and 257 are the same number in bfloat16.
    q = jnp.array([1.0, 256.0], jnp.bfloat16).reshape(1, 1, 1, 2)
    k = jnp.array([[0.0, 1.0], [1.0, 1.0]], jnp.bfloat16).reshape(1, 2, 1, 2)
    v = jnp.array([[0.0, 0.0], [1.0, 1.0]], jnp.bfloat16).reshape(1, 2, 1, 2)
    out = attend(q, KeysValues(k, v)).values
    assert out.dtype == jnp.bfloat16
    np.testing.assert_allclose(out.astype(jnp.float32).ravel(), 1 / (1 + np.exp(-1)), atol=2e-3)


def test_probabilities_are_those_before_dropout():
    q, memory = arrays()
    rates = Dropouts(attention=0.5)
    out, p = attend(q, memory, dropouts=rates, key=jax.random.key(3))
    plain, want = attend(q, memory)
    assert not np.allclose(out, plain)
    np.testing.assert_array_equal(p, want)
    np.testing.assert_allclose(p.sum(-1), 1, rtol=1e-6)


@pytest.mark.parametrize("shared", [False, True])
def test_dropped_probabilities_are_the_same_for_all_queries_of_a_head_where_shared(shared):
    q, memory = arrays()
    same_queries = jnp.broadcast_to(q[:, :1], q.shape)
    rates = Dropouts(attention=0.5, shared=shared)
    out = np.asarray(attend(same_queries, memory, dropouts=rates, key=jax.random.key(3)).values)
    assert np.allclose(out, out[:, :1], rtol=1e-6) == shared
    assert not np.allclose(out[0, :, 0], out[0, :, 1])
    assert not np.allclose(out, attend(same_queries, memory).values)


def test_without_a_key_or_a_rate_a_kernel_gets_nothing_to_drop_with():
    seen = []

    def kernel(q, memory, *, mask, bias, drop):
        seen.append(drop)

    attend(*arrays(), dropouts=Dropouts(attention=0.5), kernel=kernel)
    attend(*arrays(), dropouts=Dropouts(hidden=0.5), key=jax.random.key(0), kernel=kernel)
    attend(*arrays(), dropouts=Dropouts(attention=0.5), key=jax.random.key(0), kernel=kernel)
    assert seen[:2] == [None, None]
    assert callable(seen[2])


def make(**options):
    rngs = nnx.Rngs(0)
    inits = Inits.same(nnx.initializers.normal(0.3))
    return Attention(12, 3, d_kv=5, dtype="float32", rngs=rngs, **{"inits": inits, **options})


def test_each_projection_starts_as_told():
    inits = Inits(*(nnx.initializers.constant(i) for i in range(4)))
    attention = make(inits=inits)
    for i, name in enumerate(("query", "key", "value", "out")):
        kernel = getattr(attention, name).kernel[...]
        assert kernel.shape == ((12, 15) if name != "out" else (15, 12))
        np.testing.assert_array_equal(kernel, i)


def test_attention_is_the_projections_around_attend():
    attention = make(bias=True, scale=5**-0.5)
    for i, name in enumerate(("query", "key", "value", "out")):
        bias = getattr(attention, name).bias
        bias[...] = jax.random.normal(jax.random.key(i), bias.shape)
    x, y = (jax.random.normal(jax.random.key(i), (2, n, 12)) for i, n in ((7, 4), (8, 6)))
    got, p = attention(x, attention.keys_values(y))

    def project(name, x):
        part = getattr(attention, name)
        return (x @ np.float64(part.kernel[...]) + part.bias[...]).reshape(*x.shape[:2], 3, 5)

    q, k, v = project("query", x), project("key", y), project("value", y)
    logits = np.einsum("blhk,bmhk->bhlm", q, k) / np.sqrt(5)
    weights = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    mixed = np.einsum("bhlm,bmhk->blhk", weights, v).reshape(2, 4, 15)
    np.testing.assert_allclose(p, weights, atol=1e-5)
    want = mixed @ np.float64(attention.out.kernel[...]) + attention.out.bias[...]
    np.testing.assert_allclose(got, want, atol=1e-5)


def test_a_group_of_heads_reads_one_head_of_keys_and_values():
    """As if the matrices of keys and values held that head once for each head of the group."""
    init, rngs = nnx.initializers.normal(0.5), nnx.Rngs(0)
    sizes = {"d_kv": 3, "inits": Inits.same(init), "dtype": "float32", "rngs": rngs}
    grouped, whole = (Attention(8, 4, **sizes, num_kv_heads=kv) for kv in (2, None))
    for name in ("query", "key", "value", "out"):
        kernel = getattr(grouped, name).kernel[...]
        if name in ("key", "value"):
            kernel = jnp.repeat(kernel.reshape(8, 2, 3), 2, axis=1).reshape(8, 12)
        getattr(whole, name).kernel[...] = kernel
    x = jax.random.normal(jax.random.key(0), (2, 5, 8))
    found, want = (one(x, one.keys_values(x)).values for one in (grouped, whole))
    np.testing.assert_allclose(found, want, atol=1e-6)
    with pytest.raises(ValueError, match="does not divide num_heads=4"):
        Attention(8, 4, **sizes, num_kv_heads=3)
