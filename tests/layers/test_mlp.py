import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from t5x_like.layers.mlp import GatedMlp, Mlp

X = jax.random.normal(jax.random.key(0), (2, 3, 8))


def test_mlp_is_relu_between_two_matrices():
    mlp = Mlp(8, 16, dtype="float32", rngs=nnx.Rngs(0))
    want = np.maximum(X @ mlp.wi.kernel[...], 0) @ mlp.wo.kernel[...]
    np.testing.assert_allclose(mlp(X, rate=0.0, key=None), want, atol=1e-5)


def test_gated_mlp_multiplies_the_tanh_form_of_gelu_with_a_plain_projection():
    mlp = GatedMlp(8, 16, dtype="float32", rngs=nnx.Rngs(0))
    a, b = X @ mlp.wi_0.kernel[...], X @ mlp.wi_1.kernel[...]
    gelu = 0.5 * a * (1 + np.tanh(np.sqrt(2 / np.pi) * (a + 0.044715 * a**3)))
    np.testing.assert_allclose(mlp(X, rate=0.0, key=None), gelu * b @ mlp.wo.kernel[...], atol=1e-5)


def test_hidden_units_are_dropped_at_all_positions_of_a_row():
    mlp = Mlp(8, 64, dtype="float32", rngs=nnx.Rngs(0), activation=jnp.ones_like)
    y = np.asarray(mlp(X, rate=0.5, key=jax.random.key(1)))
    np.testing.assert_allclose(y, np.broadcast_to(y[:, :1], y.shape), rtol=1e-5)
    assert not np.allclose(y[0], y[1])
