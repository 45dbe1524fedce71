import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_like.core.counter_random import COUNTER
from t5x_like.layers.basics.dropout import Dropouts, dropout, dropout_hidden, residual, subkeys

X = jnp.ones((8, 6, 32))


def test_dropout_without_a_key_or_a_rate_changes_nothing():
    x = jnp.ones((4, 5))
    assert dropout(x, None, rate=0.5) is x
    assert dropout(x, jax.random.key(0), rate=0.0) is x


def test_dropout_keeps_the_mean_and_drops_at_its_rate():
    y = dropout(jnp.ones((200, 500)), jax.random.key(0), rate=0.2)
    np.testing.assert_allclose((y == 0).mean(), 0.2, atol=0.01)
    np.testing.assert_allclose(y[y != 0], 1.25, rtol=1e-4)  # the rate is rounded


def test_dropout_mask_is_one_along_shared_dimensions_alone():
    y = np.asarray(dropout(jnp.ones((8, 6, 32)), jax.random.key(0), rate=0.5, shared=(1,)))
    np.testing.assert_array_equal(y, np.broadcast_to(y[:, :1], y.shape))
    assert len(np.unique(y[:, 0], axis=0)) == 8


def test_subkeys_are_all_different_or_all_none():
    assert subkeys(None, 3) == [None] * 3
    keys = [jax.random.key_data(key) for key in subkeys(jax.random.key(0), 3)]
    assert len(np.unique(keys, axis=0)) == 3


@pytest.mark.parametrize("shared", [False, True])
def test_the_residual_stream_shares_its_mask_over_positions_where_asked(shared):
    y = np.asarray(dropout_hidden(X, jax.random.key(0), dropouts=Dropouts(0.5, shared=shared)))
    assert (y == y[:, :1]).all() == shared
    assert len(np.unique(y[:, 0], axis=0)) == 8  # never shared over rows


def test_each_site_has_its_own_rate():
    rates = Dropouts(hidden=0.0, attention=0.9, mlp=0.9)
    np.testing.assert_array_equal(dropout_hidden(X, jax.random.key(0), dropouts=rates), X)


def test_what_is_added_is_dropped_and_what_it_is_added_to_is_not():
    y = residual(10 * X, X, dropouts=Dropouts(0.5), key=jax.random.key(0))
    assert set(np.unique(y)) == {10.0, 12.0}
    np.testing.assert_array_equal(residual(10 * X, X, dropouts=Dropouts(0.5), key=None), 11)


@pytest.mark.parametrize("impl", ["threefry2x32", COUNTER], ids=["threefry", "counter"])
def test_dropped_elements_get_no_gradient_and_kept_ones_the_scale(impl):
    def f(x):
        return dropout(x, jax.random.key(0, impl=impl), rate=0.75)

    np.testing.assert_array_equal(jax.grad(lambda x: f(x).sum())(X), f(X))


def test_counted_numbers_are_drawn_again_and_their_mask_is_not_stored():
    key = jax.random.key(0, impl=COUNTER)
    stored = jax.eval_shape(lambda x: jax.vjp(lambda x: dropout(x, key, rate=0.5), x)[1], X)
    assert all(leaf.size <= 2 for leaf in jax.tree.leaves(stored))


def test_dropout_keeps_the_dtype():
    assert dropout(X.astype(jnp.bfloat16), jax.random.key(0), rate=0.1).dtype == jnp.bfloat16


def test_the_mean_is_kept_exactly_whatever_the_rate_is_rounded_to():
    for rate in (1e-3, 0.1, 0.3, 0.9):
        y = dropout(jnp.ones((1000, 1001)), jax.random.key(1), rate=rate)
        kept = y != 0
        spread = np.sqrt(rate / (1 - rate) / y.size)  # std of the mean
        assert abs(float(kept.mean()) - (1 - rate)) < 5 * np.sqrt(rate * (1 - rate) / y.size)
        assert abs(float(y.mean(dtype=jnp.float32)) - 1) < 5 * spread


def test_elements_of_a_row_are_drawn_independently():
    # Where two numbers come from one random word, neither predicts the other.
    keep = np.asarray(dropout(jnp.ones((20_000, 8)), jax.random.key(2), rate=0.5) != 0)
    correlation = np.corrcoef(keep.T.astype(float))
    np.testing.assert_allclose(correlation, np.eye(8), atol=5 / np.sqrt(20_000))
