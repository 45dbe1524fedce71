import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from t5x_like.core.protocols.data import FeatureSpec, TokenIds
from t5x_like.data.rows.feature_converters import PrefixDecoder
from t5x_like.models import prefix_lm

MODELS = {"1.0": {}, "1.1": {"tied_logits": False}, "umT5": {"relative_bias_per_layer": True}}
EVERY = pytest.mark.parametrize(
    "name", ["1.0", *(pytest.param(name, marks=pytest.mark.slow) for name in ("1.1", "umT5"))]
)


@functools.cache
def make(name):
    config = prefix_lm.Config(
        vocab_size=50,
        d_model=16,
        d_ff=32,
        num_heads=4,
        d_kv=6,
        num_decoder_layers=2,
        **MODELS[name],
    )
    return jax.jit(lambda: prefix_lm.PrefixLm(config, rngs=nnx.Rngs(0)))()


def batch_of(*rows, pack=False):
    """Rows as the data pipeline makes them, from examples with these input and target lengths."""
    rng = np.random.default_rng(0)
    ids = TokenIds(50, pad=0, eos=1)
    features = {"inputs": FeatureSpec(8), "targets": FeatureSpec(6)}
    laid = [
        PrefixDecoder(pack=pack).convert(
            [
                {
                    name: rng.integers(2, 50, n).astype(np.int32)
                    for name, n in zip(features, pair, strict=True)
                }
                for pair in pairs
            ],
            features=features,
            ids=ids,
        )
        for pairs in rows
    ]
    return {name: jnp.stack([row[name] for row in laid]) for name in laid[0]}


logits_of = jax.jit(lambda model, batch: model.logits(batch))


@EVERY
def test_inputs_see_one_another_and_no_target(name):
    model, batch = make(name), batch_of([(5, 4)])
    logits, tokens = logits_of(model, batch), batch["decoder_input_tokens"]

    def first_change(position):
        other = {**batch, "decoder_input_tokens": tokens.at[0, position].set(49)}
        return np.abs(logits_of(model, other) - logits)[0].max(axis=-1) > 1e-6

    # The start and five inputs are read from both sides; the last is at position 5.
    assert first_change(5)[:9].all()
    assert first_change(6)[:9].tolist() == [False] * 6 + [True] * 3


def test_without_a_prefix_a_token_sees_those_before_it_alone():
    model, batch = make("1.0"), batch_of([(5, 4)])
    causal = {name: x for name, x in batch.items() if name != "decoder_causal_attention"}
    other = {**causal, "decoder_input_tokens": causal["decoder_input_tokens"].at[0, 5].set(49)}
    a, b = logits_of(model, causal), logits_of(model, other)
    np.testing.assert_array_equal(a[:, :5], b[:, :5])


@pytest.mark.slow
def test_packed_examples_score_as_each_does_alone():
    model, packed = make("1.0"), batch_of([(3, 2), (4, 3)], pack=True)
    logits = logits_of(model, packed)
    for start, stop in ((0, 5), (5, 12)):
        alone = {
            name: packed[name][:, start:stop]
            for name in ("decoder_input_tokens", "decoder_causal_attention")
        }
        np.testing.assert_allclose(
            logits_of(model, alone), logits[:, start:stop], rtol=1e-5, atol=1e-5
        )


@EVERY
def test_decoding_after_a_prefix_gives_the_logits_of_a_whole_row(name):
    model, batch = make(name), batch_of([(5, 4)], [(5, 4)])
    want = logits_of(model, batch)
    prompt = {name: x[:, :6] for name, x in batch.items()}
    cache = jax.jit(functools.partial(model.prefill, max_length=9))(prompt)
    step = jax.jit(lambda model, *args: model.decode_step(*args))
    for i in range(5, 9):
        logits, cache = step(model, cache, batch["decoder_input_tokens"][:, i], jnp.int32(i))
        np.testing.assert_allclose(logits, want[:, i], rtol=1e-4, atol=1e-4)


def test_targets_alone_are_scored_and_flops_count_what_is_seen():
    model, batch = make("1.0"), batch_of([(5, 4)])
    assert model.weights(batch)["tokens"] == 4
    d, f, j, length, prefix = 16, 32, 24, 9, 6
    pairs = length * (length + 1) / 2 + prefix * (prefix - 1) / 2
    forward = length * (2 * (4 * d * j + 2 * d * f) + d * 50) + 2 * 2 * j * pairs
    assert model.flops(batch) == 6 * forward
    assert model.tokens(batch) == 9


@pytest.mark.slow
def test_a_row_of_several_microbatches_adds_up_and_has_gradients_everywhere():
    model, batch = make("1.0"), batch_of([(5, 4)], [(8, 1)], [(2, 6)])
    weights = model.weights(batch)

    @jax.jit
    @jax.grad
    def grads_of(model, batch):
        return model.loss(batch, None, (), weights)[0]

    whole = grads_of(model, batch)
    parts = [grads_of(model, {k: x[i : i + 1] for k, x in batch.items()}) for i in range(3)]
    summed = jax.tree.map(lambda *xs: sum(xs), *parts)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-6), summed, whole)
    assert all(np.any(x) for x in jax.tree.leaves(whole))
