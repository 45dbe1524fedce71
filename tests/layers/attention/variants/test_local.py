"""Dropout of near keys and of keys beside them."""

import jax
import jax.numpy as jnp
import numpy as np

from t5x_like.core.counter_random import COUNTER
from t5x_like.layers.attention.attention_kernels import KeysValues
from t5x_like.layers.attention.masks import Mask
from t5x_like.layers.attention.windowed import Beside, with_keys_beside
from t5x_like.layers.basics.dropout import Dropping


def test_dropout_keeps_the_mean_and_drops_its_share_of_all_keys():
    """Values are one-hot, so that what is attended are the probabilities: 40 near, 8 beside."""
    length, beside, rate = 40, 8, 0.25
    q = jnp.zeros((1, length, 1, 4))
    one_hot = jnp.eye(length + beside)[None, :, None]
    near = KeysValues(jnp.zeros((1, length, 1, 4)), one_hot[:, :length])
    others = KeysValues(jnp.zeros((1, beside, 1, 4)), one_hot[:, length:])

    @jax.jit
    def attended(seed):
        return with_keys_beside(
            q,
            near,
            mask=Mask(window=(5, 5)),
            block=12,
            near_bias=None,
            beside=Beside(others, Mask()),
            drop=Dropping(jax.random.key(seed, impl=COUNTER), rate, shared=False),
        )[0, :, 0]

    drawn = np.stack([attended(seed) for seed in range(300)])
    near_keys = np.abs(np.subtract.outer(np.arange(length), np.arange(length))) <= 5
    seen = np.concatenate([near_keys, np.ones((length, beside), bool)], axis=1)
    clean = seen / seen.sum(axis=1, keepdims=True)
    assert np.all(drawn[:, ~seen] == 0)
    error = clean.max() * (rate / (1 - rate) / len(drawn)) ** 0.5
    np.testing.assert_allclose(drawn.mean(axis=0), clean, atol=5 * error)
    dropped = (drawn[:, seen] == 0).mean()
    assert abs(dropped - rate) < 5 * (rate * (1 - rate) / drawn[:, seen].size) ** 0.5
