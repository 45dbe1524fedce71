import math

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from t5x_like.layers.basics import activations
from t5x_like.layers.basics.modules import Embedding
from t5x_like.layers.heads.masked_lm import (
    MaskedLanguageHead,
    at_positions,
    masked_sums,
)

VOCAB, D, E = 13, 6, 4  # embeddings narrower than the states
NORMAL = nnx.initializers.normal(0.5)
X = jax.random.normal(jax.random.key(0), (2, 7, D))
BATCH = {
    "masked_positions": jnp.array([[1, 4, 6], [3, 0, 0]]),  # slots of padding point to position 0
    "masked_targets": jnp.array([[5, 12, 0], [7, 0, 0]]),
    "masked_loss_weights": jnp.array([[1.0, 1.0, 0.5], [1.0, 0.0, 0.0]]),
}


def make():
    rngs = nnx.Rngs(0)
    head = MaskedLanguageHead(
        (D, E),
        VOCAB,
        init=NORMAL,
        activation=activations.gelu,
        epsilon=1e-5,
        dtype="float32",
        rngs=rngs,
    )
    head.bias[...] = jax.random.normal(jax.random.key(1), (VOCAB,))
    head.dense.bias[...] = jax.random.normal(jax.random.key(2), (E,))
    return head, Embedding(VOCAB, E, init=NORMAL, rngs=rngs)


def reference(head, table):
    """Logits at every position in float64."""
    h = np.float64(X) @ np.float64(head.dense.kernel[...]) + np.float64(head.dense.bias[...])
    h = h * (1 + np.vectorize(math.erf)(h / np.sqrt(2))) / 2
    h = h - h.mean(-1, keepdims=True)
    h = h / np.sqrt((h**2).mean(-1, keepdims=True) + 1e-5)
    return h @ np.float64(table.table[...]).T + np.float64(head.bias[...])


def test_the_head_is_dense_gelu_norm_and_products_with_the_table():
    head, table = make()
    np.testing.assert_allclose(head(X, table), reference(head, table), atol=1e-5)


def test_logits_at_some_positions_are_those_rows_of_all_logits():
    head, table = make()
    positions = BATCH["masked_positions"]
    got = head(at_positions(X, positions), table)
    want = np.take_along_axis(np.asarray(head(X, table)), np.asarray(positions)[..., None], axis=1)
    np.testing.assert_allclose(got, want, atol=1e-6)


def test_sums_are_over_masked_tokens_by_their_weights():
    head, table = make()
    sums = masked_sums(head, at_positions(X, BATCH["masked_positions"]), table, batch=BATCH)
    positions, targets, weights = (
        np.asarray(BATCH[f"masked_{name}"]) for name in ("positions", "targets", "loss_weights")
    )
    logits = np.take_along_axis(reference(head, table), positions[..., None], axis=1)
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    nll = -np.take_along_axis(log_p, targets[..., None], axis=-1)[..., 0]
    np.testing.assert_allclose(sums.cross_entropy, (nll * weights).sum(), rtol=1e-5)
    np.testing.assert_allclose(sums.correct, ((logits.argmax(-1) == targets) * weights).sum())


def test_states_get_gradients_at_masked_positions_alone():
    head, table = make()

    def loss(x):
        x = at_positions(x, BATCH["masked_positions"])
        return masked_sums(head, x, table, batch=BATCH).cross_entropy

    grads = jax.grad(loss)(X)
    got = {tuple(at) for at in np.argwhere(np.abs(grads).max(-1) > 0)}
    assert got == {(0, 1), (0, 4), (0, 6), (1, 3)}


def test_a_position_masked_twice_gets_the_sum_of_both_gradients():
    def grad(positions):
        return jax.grad(lambda x: jnp.square(at_positions(x, positions)).sum())(X)

    np.testing.assert_allclose(
        grad(jnp.array([[2, 2], [1, 3]]))[0, 2], 2 * grad(jnp.array([[2], [1]]))[0, 2], rtol=1e-6
    )
