import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_like.layers.losses.cross_entropy import token_sums

B, L, V = 3, 4, 11
LOGITS = 3 * jax.random.normal(jax.random.key(0), (B, L, V))
TARGETS = jax.random.randint(jax.random.key(1), (B, L), 0, V)
WEIGHTS = jax.random.uniform(jax.random.key(2), (B, L)).at[0, :2].set(0.0)


def reference(logits, smoothing):
    """Cross entropy with a smoothed distribution minus its entropy, and log Z: float64 [B, L]."""
    logits = np.asarray(logits, np.float64)
    log_z = np.log(np.exp(logits).sum(-1))
    soft = np.full((B, L, V), smoothing / (V - 1))
    np.put_along_axis(soft, np.asarray(TARGETS)[..., None], 1 - smoothing, -1)
    entropy = -(soft * np.log(np.where(soft > 0, soft, 1))).sum(-1)
    return -(soft * (logits - log_z[..., None])).sum(-1) - entropy, log_z


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_sums_are_those_of_the_definition(smoothing):
    nll, log_z = reference(LOGITS, smoothing)
    sums = token_sums(LOGITS, TARGETS, weights_BL=WEIGHTS, label_smoothing=smoothing)
    np.testing.assert_allclose(sums.cross_entropy, (nll * WEIGHTS).sum(), rtol=1e-5)
    np.testing.assert_allclose(sums.nll, (reference(LOGITS, 0.0)[0] * WEIGHTS).sum(), rtol=1e-5)
    np.testing.assert_allclose(sums.squared_log_z, (log_z**2 * WEIGHTS).sum(), rtol=1e-5)
    right = (LOGITS.argmax(-1) == TARGETS) * WEIGHTS
    np.testing.assert_allclose(sums.correct, right.sum(), rtol=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_gradient_is_that_of_the_plain_expression(smoothing):
    def ours(logits):
        sums = token_sums(logits, TARGETS, weights_BL=WEIGHTS, label_smoothing=smoothing)
        return sums.cross_entropy + 0.1 * sums.squared_log_z

    def plain(logits):
        log_p = jax.nn.log_softmax(logits)
        hot = jax.nn.one_hot(TARGETS, V)
        soft = hot * (1 - smoothing) + (1 - hot) * smoothing / (V - 1)
        z = jax.nn.logsumexp(logits, axis=-1)
        return ((-(soft * log_p).sum(-1) + 0.1 * z**2) * WEIGHTS).sum()

    np.testing.assert_allclose(jax.grad(ours)(LOGITS), jax.grad(plain)(LOGITS), atol=1e-6)


def test_smoothed_loss_can_reach_zero():
    off = 0.1 / (V - 1)
    logits = jnp.log(jnp.where(jax.nn.one_hot(TARGETS, V) > 0, 0.9, off))
    sums = token_sums(logits, TARGETS, weights_BL=WEIGHTS, label_smoothing=0.1)
    np.testing.assert_allclose(sums.cross_entropy, 0, atol=1e-5)


def test_large_logits_stay_finite():
    sums, grads = jax.value_and_grad(
        lambda x: token_sums(x, TARGETS, weights_BL=WEIGHTS).cross_entropy
    )(LOGITS * 1e4)
    assert np.isfinite(sums)
    assert np.isfinite(grads).all()


def test_unweighted_tokens_get_no_gradient():
    grads = jax.grad(lambda x: token_sums(x, TARGETS, weights_BL=WEIGHTS).cross_entropy)(LOGITS)
    np.testing.assert_array_equal(grads[0, :2], 0)
    assert np.all(np.abs(grads[1:]).max(-1) > 0)
