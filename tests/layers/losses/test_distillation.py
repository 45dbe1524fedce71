import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t5x_like.layers.losses.distillation import cosine_distances, kl_divergences

rng = np.random.default_rng(0)
A, B = jnp.asarray(rng.normal(0, 3, (2, 3, 20))), jnp.asarray(rng.normal(0, 3, (2, 3, 20)))


def test_equal_logits_do_not_diverge():
    np.testing.assert_allclose(kl_divergences(A, A, temperature=2.0), 0, atol=1e-6)


@settings(max_examples=10, deadline=None)
@given(st.floats(-50, 50), st.floats(-50, 50), st.sampled_from([0.5, 1.0, 2.0, 7.0]))
def test_divergences_are_those_of_the_definition_whatever_is_added_to_logits(a, b, temperature):
    p, q = (np.exp(np.asarray(x, np.float64) / temperature) for x in (A, B))
    p, q = p / p.sum(-1, keepdims=True), q / q.sum(-1, keepdims=True)
    want = temperature**2 * (p * np.log(p / q)).sum(-1)
    got = kl_divergences(A + a, B + b, temperature=temperature)
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)


def test_hot_gradients_tend_to_differences_of_centred_logits():
    grads = jax.grad(lambda b: kl_divergences(A, b, temperature=1e3).sum())(B)
    centred = [x - x.mean(-1, keepdims=True) for x in (A, B)]
    np.testing.assert_allclose(grads, (centred[1] - centred[0]) / 20, atol=2e-3)


@pytest.mark.parametrize("factor", [3.0, -3.0])
def test_cosine_distances_are_of_directions(factor):
    np.testing.assert_allclose(cosine_distances(A, factor * A), 1 - np.sign(factor), atol=1e-6)


def test_a_cosine_with_nothing_has_a_finite_gradient():
    zero = jnp.zeros((1, 1, 20))
    np.testing.assert_array_equal(cosine_distances(zero, A[:1, :1]), 1)
    grads = jax.grad(lambda x: cosine_distances(x, A[:1, :1]).sum())(zero)
    assert np.isfinite(grads).all()
