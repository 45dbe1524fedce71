import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_like.core.counter_random import COUNTER
from t5x_like.layers.heads.copy_gate import copied_or_predicted
from t5x_like.layers.heads.replaced_tokens import (
    concordant,
    detection_sums,
    put,
    row_keys,
    sample_tokens,
)

VOCAB, ROWS, SLOTS = 300, 50, 400  # three blocks; the last one is not full


@functools.cache
def logits():
    """Logits of one distribution with a few likely tokens in different blocks."""
    found = np.random.default_rng(0).normal(size=VOCAB)
    found[[3, 127, 128, 299]] += 3
    return found.astype(np.float32)


@functools.cache
def frequencies(temperature=1.0, excluded=None, impl="threefry2x32"):
    shape = (ROWS, SLOTS)
    samples = jax.jit(sample_tokens, static_argnames="temperature")(
        jnp.broadcast_to(logits(), (*shape, VOCAB)),
        keys_B=jax.random.split(jax.random.key(0, impl=impl), ROWS),
        temperature=temperature,
        excluded_BK=None if excluded is None else jnp.full(shape, excluded),
    )
    return np.bincount(np.ravel(samples), minlength=VOCAB) / (ROWS * SLOTS)


@pytest.mark.slow
@pytest.mark.parametrize(("temperature", "excluded"), [(1.0, None), (0.5, None), (1.0, 127)])
@pytest.mark.parametrize("impl", ["threefry2x32", COUNTER], ids=["threefry", "counter"])
def test_samples_follow_the_softmax(temperature, excluded, impl):
    p = np.exp(np.float64(logits()) / temperature)
    if excluded is not None:
        p[excluded] = 0
    p /= p.sum()
    found = frequencies(temperature, excluded, impl)
    chi_squared = ROWS * SLOTS * ((found - p) ** 2)[p > 0] / p[p > 0]
    freedom = np.count_nonzero(p) - 1
    assert abs(chi_squared.sum() - freedom) < 5 * np.sqrt(2 * freedom)
    assert np.all(found[p == 0] == 0)


@pytest.mark.slow
def test_a_low_temperature_takes_the_likeliest_and_passes_no_gradient():
    many = jax.random.normal(jax.random.key(1), (4, 5, VOCAB))

    def take(x):
        keys_B = jax.random.split(jax.random.key(0), 4)
        return sample_tokens(x, keys_B=keys_B, temperature=1e-6)

    np.testing.assert_array_equal(take(many), many.argmax(axis=-1))
    grads = jax.grad(lambda x: take(x).astype(jnp.float32).sum() + 0 * x.sum())(many)
    assert not grads.any()


@pytest.mark.slow
def test_the_key_of_a_row_depends_on_its_tokens_and_not_on_its_place():
    tokens = jnp.array([[5, 6, 7], [6, 5, 7], [5, 6, 7], [5, 6, 8]])
    data = jax.random.key_data(row_keys(jax.random.key(0), tokens))
    assert len({tuple(row) for row in np.asarray(data).tolist()}) == 3
    np.testing.assert_array_equal(data[0], data[2])
    alone = jax.random.key_data(row_keys(jax.random.key(0), tokens[3:]))
    np.testing.assert_array_equal(data[3:], alone)
    assert (jax.random.key_data(row_keys(jax.random.key(1), tokens)) != data).any()


def test_the_later_of_two_values_at_one_position_counts_and_none_without_weight():
    tokens = jnp.array([[10, 11, 12, 13], [20, 21, 22, 23]])
    values = jnp.array([[1, 2, 3], [4, 5, 6]])
    positions = jnp.array([[2, 0, 2], [3, 3, 0]])
    weights = jnp.array([[1.0, 1.0, 1.0], [0.5, 0.0, 0.0]])
    found = put(tokens, values, positions_BK=positions, weights_BK=weights)
    np.testing.assert_array_equal(found, [[2, 11, 3, 13], [20, 21, 22, 4]])


def test_sums_of_detection():
    found = np.array([[2.0, -1.0, 0.5, -3.0], [-2.0, 4.0, 1.0, 100.0]], np.float32)
    replaced = np.array([[1, 1, 0, 0], [0, 1, 0, 0]], bool)
    weights = np.array([[1, 1, 1, 1], [2, 1, 1, 0]], np.float32)
    sums = detection_sums(jnp.array(found), jnp.array(replaced), weights_BL=jnp.array(weights))
    p = 1 / (1 + np.exp(-np.float64(found)))
    nll = -np.where(replaced, np.log(p), np.log(1 - p, where=weights > 0, out=np.zeros_like(p)))
    np.testing.assert_allclose(sums.cross_entropy, (nll * weights).sum(), rtol=1e-6)
    assert sums[1:] == (5, 2, 4, 3)


def test_a_copy_gate_adds_to_the_token_read():
    rng = np.random.default_rng(0)
    scores, gate = rng.normal(size=(6, 9, 7)) * 3, rng.normal(size=(6, 9)) * 2
    read, targets = rng.integers(0, 7, (6, 9)), rng.integers(0, 7, (6, 9))
    p = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    copy = 1 / (1 + np.exp(-gate))[..., None]
    p = copy * (np.arange(7) == read[..., None]) + (1 - copy) * p
    run = jax.jit(copied_or_predicted)
    nll, right = run(
        jnp.float32(scores), gate_BL=jnp.float32(gate), read_BL=read, targets_BL=targets
    )
    want = -np.log(np.take_along_axis(p, targets[..., None], -1))[..., 0]
    np.testing.assert_allclose(nll, want, rtol=1e-5)
    np.testing.assert_array_equal(right, p.argmax(-1) == targets)
    assert 0 < right.sum() < right.size


def test_pairs_in_order_are_the_area_under_the_curve():
    """The same as scikit-learn's, with ties; tokens without weight do not count."""
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(0)
    logits = rng.integers(-4, 5, (8, 40)).astype(np.float32) / 2
    replaced = rng.random((8, 40)) < 0.2
    weights = (rng.random((8, 40)) < 0.7).astype(np.float32)
    wins, pairs = concordant(logits, replaced, weights_BL=weights)
    counts = weights > 0
    expected = metrics.roc_auc_score(replaced[counts], logits[counts])
    assert float(wins / pairs) == pytest.approx(expected, abs=1e-6)
    none = concordant(logits, np.zeros_like(replaced), weights_BL=weights)
    assert [float(x) for x in none] == [0.0, 0.0]
