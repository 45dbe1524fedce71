import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from t5x_like.layers.basics import activations
from t5x_like.layers.heads import label_heads

EOS, PAD = 2, 0
# Padded on the right, on the left, full, with two ends, only padding.
TOKENS = jnp.array(
    [
        [7, 8, EOS, PAD, PAD],
        [PAD, PAD, 7, 8, EOS],
        [7, 8, 9, 7, EOS],
        [7, EOS, 8, EOS, PAD],
        [PAD] * 5,
    ]
)
COUNTS = (TOKENS != PAD).astype(jnp.int32)
X = jax.random.normal(jax.random.key(0), (5, 5, 6))
INIT = nnx.initializers.normal(0.5)


@pytest.mark.parametrize(
    ("pool", "places"),
    [
        (label_heads.first, [0, 0, 0, 0, 0]),
        (label_heads.last_that_counts, [2, 4, 4, 3, None]),
        (label_heads.LastOf(EOS), [2, 4, 4, 3, None]),
        (label_heads.LastOf(8), [1, 3, 1, 2, None]),
    ],
    ids=["first", "last that counts", "last end", "last eight"],
)
def test_each_pool_takes_the_state_of_its_position(pool, places):
    got = pool(X, TOKENS, COUNTS)
    assert got.shape == (5, 6)
    assert np.isfinite(got).all()
    for row, place in enumerate(places):
        if place is not None:  # a row of padding gives some state, but has no weight
            np.testing.assert_array_equal(got[row], X[row, place])


def test_what_counts_is_said_by_the_counts_and_not_by_the_tokens():
    np.testing.assert_array_equal(label_heads.last_that_counts(X, TOKENS, TOKENS == 7)[2], X[2, 3])


def make(**options):
    options = {"pool": label_heads.first, "activation": activations.tanh, **options}
    return label_heads.SequenceHead(6, 3, init=INIT, dtype="float32", rngs=nnx.Rngs(0), **options)


def test_a_sequence_head_is_dense_of_tanh_of_dense_of_a_state():
    head = make()
    head.pooler.dense.bias[...] = jnp.arange(6.0) / 6
    head.out.bias[...] = jnp.arange(3.0)
    inner = np.asarray(X[:, 0]) @ np.asarray(head.pooler.dense.kernel[...]) + np.arange(6) / 6
    want = np.tanh(inner) @ np.asarray(head.out.kernel[...]) + np.arange(3)
    np.testing.assert_allclose(head(X, TOKENS, COUNTS), want, atol=1e-5)


def test_pooler_and_bias_can_be_left_out():
    head = make(activation=None, bias=False)
    assert set(nnx.to_pure_dict(nnx.state(head))) == {"out"}
    want = np.asarray(X[:, 0]) @ np.asarray(head.out.kernel[...])
    np.testing.assert_allclose(head(X, TOKENS, COUNTS), want, atol=1e-5)


@pytest.mark.parametrize("rates", [(0.5, 0.0), (0.0, 0.5)])
def test_dropout_is_before_the_pooler_and_after_it(rates):
    same, key = jnp.ones((64, 1, 6)), jax.random.key(0)
    tokens = jnp.ones((64, 1), jnp.int32)
    head = make(dropout_rates=rates)
    head.pooler.dense.kernel[...] = jnp.eye(6)
    head.out.kernel[...] = jnp.eye(6, 3)
    got = np.asarray(head(same, tokens, tokens, key)).astype(np.float64)
    # Zeros of either kind; kept values are doubled before tanh or after it.
    kept = np.tanh(2.0) if rates[0] else 2 * np.tanh(1.0)
    np.testing.assert_allclose(np.unique(got.round(4)), [0, round(kept, 4)])
    np.testing.assert_allclose(head(same, tokens, tokens), np.tanh(1.0), rtol=1e-5)


def test_a_token_head_scores_each_position_alone():
    head = label_heads.TokenHead(
        6, 2, init=INIT, dtype="float32", rngs=nnx.Rngs(0), dropout_rate=0.5
    )
    want = np.asarray(X) @ np.asarray(head.out.kernel[...])
    np.testing.assert_allclose(head(X, TOKENS, COUNTS), want, atol=1e-5)
    assert not np.allclose(head(X, TOKENS, COUNTS, jax.random.key(0)), want)


def test_logits_are_float32_whatever_the_computation_is():
    for head in (
        label_heads.SequenceHead(
            6,
            2,
            pool=label_heads.first,
            init=INIT,
            activation=None,
            dtype="bfloat16",
            rngs=nnx.Rngs(0),
        ),
        label_heads.TokenHead(6, 2, init=INIT, dtype="bfloat16", rngs=nnx.Rngs(0)),
    ):
        assert head(X.astype(jnp.bfloat16), TOKENS, COUNTS).dtype == jnp.float32
