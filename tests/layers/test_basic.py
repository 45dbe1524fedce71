import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from t5x_like.layers.basic import Embedding, Linear, RMSNorm, dropout, param, subkeys

ONES = nnx.initializers.ones


def test_parameter_keeps_its_axis_names_when_layers_are_stacked():
    def make(key):
        return Linear((3, 4), ("embed", "mlp"), init=ONES, dtype="float32", rngs=nnx.Rngs(key))

    stacked = jax.vmap(make)(jax.random.split(jax.random.key(0), 5))
    assert stacked.kernel.shape == (5, 3, 4)
    assert stacked.kernel.get_metadata("axes") == ("embed", "mlp")


def test_parameter_needs_a_name_for_each_dimension():
    with pytest.raises(ValueError, match="as many axis names"):
        param(ONES, (2, 3), axes=("embed",), rngs=nnx.Rngs(0))


def test_norm_of_zeros_is_zeros_and_of_anything_else_has_unit_root_mean_square():
    norm = RMSNorm(8, dtype="float32", rngs=nnx.Rngs(0))
    np.testing.assert_array_equal(norm(jnp.zeros((2, 8))), 0)
    # Not centred: a constant vector stays one.
    x = jnp.stack([jnp.full(8, 3.0), jnp.arange(8.0)])
    np.testing.assert_allclose(jnp.square(norm(x)).mean(-1), 1, rtol=1e-5)
    np.testing.assert_allclose(norm(x)[0], 1, rtol=1e-6)


def test_norm_takes_its_mean_in_float32():
    x = jnp.full((4096,), 1.0, jnp.bfloat16)  # a bfloat16 sum of squares would stop at 256
    norm = RMSNorm(4096, dtype="bfloat16", rngs=nnx.Rngs(0))
    assert norm(x).dtype == jnp.bfloat16
    np.testing.assert_array_equal(norm(x).astype(jnp.float32), 1)


def test_products_are_in_the_computation_dtype_and_gradients_in_float32():
    layer = Linear((4, 2), ("embed", "mlp"), init=ONES, dtype="bfloat16", rngs=nnx.Rngs(0))
    assert layer(jnp.ones((3, 4))).dtype == jnp.bfloat16
    grads = jax.grad(lambda layer: layer(jnp.ones((3, 4))).sum().astype(jnp.float32))(layer)
    assert grads.kernel[...].dtype == jnp.float32


def test_embedding_gradients_of_repeated_tokens_add_up_in_float32():
    table = Embedding(3, 1, init=ONES, rngs=nnx.Rngs(0))
    tokens = jnp.ones((1, 1000), jnp.int32)  # in bfloat16 a sum of ones stops at 256
    grads = jax.grad(lambda t: t(tokens, dtype=jnp.bfloat16).astype(jnp.float32).sum())(table)
    np.testing.assert_array_equal(grads.table[...][:, 0], [0, 1000, 0])


def test_dropout_without_a_key_or_a_rate_changes_nothing():
    x = jnp.ones((4, 5))
    assert dropout(x, None, rate=0.5) is x
    assert dropout(x, jax.random.key(0), rate=0.0) is x


def test_dropout_keeps_the_mean_and_drops_at_its_rate():
    y = dropout(jnp.ones((200, 500)), jax.random.key(0), rate=0.2)
    np.testing.assert_allclose((y == 0).mean(), 0.2, atol=0.01)
    np.testing.assert_allclose(y[y != 0], 1.25, rtol=1e-6)


def test_dropout_mask_is_one_along_shared_dimensions_alone():
    y = np.asarray(dropout(jnp.ones((8, 6, 32)), jax.random.key(0), rate=0.5, shared=(1,)))
    np.testing.assert_array_equal(y, np.broadcast_to(y[:, :1], y.shape))
    assert len(np.unique(y[:, 0], axis=0)) == 8


def test_subkeys_are_all_different_or_all_none():
    assert subkeys(None, 3) == [None] * 3
    keys = [jax.random.key_data(key) for key in subkeys(jax.random.key(0), 3)]
    assert len(np.unique(keys, axis=0)) == 3
