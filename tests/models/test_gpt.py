import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tiny_models import initialised, logits_of, loss_of, trained

from t5x_like.core.abilities import ALL
from t5x_like.core.protocols.data import FeatureSpec, TokenIds
from t5x_like.data.rows.feature_converters import Decoder
from t5x_like.layers.heads import label_heads
from t5x_like.models import gpt
from t5x_like.models.double_heads import DoubleHeads
from t5x_like.training.optimization.gradients import gradients

GPT2 = gpt.Config(
    vocab_size=50,
    d_model=16,
    d_ff=32,
    num_heads=4,
    num_layers=2,
    max_positions=12,
    dropout_rate=0.0,
    attention_dropout_rate=0.0,
    init_std=0.3,
)
GPT = dataclasses.replace(GPT2, pre_norm=False)
BOTH = pytest.mark.parametrize(
    "config", [pytest.param(GPT, marks=pytest.mark.slow), GPT2], ids=["gpt", "gpt2"]
)


def make(config=GPT2, **changes):
    return initialised(gpt.Gpt, dataclasses.replace(config, **changes))


def batch_of(*rows, pack=False):
    """Rows as the data pipeline makes them, from examples of these lengths; the end is 1."""
    rng = np.random.default_rng(0)
    ids, features = TokenIds(50, pad=0, eos=1), {"targets": FeatureSpec(12)}
    laid = [
        Decoder(pack=pack).convert(
            [{"targets": rng.integers(2, 50, n).astype(np.int32)} for n in lengths],
            features=features,
            ids=ids,
        )
        for lengths in rows
    ]
    return {name: jnp.stack([row[name] for row in laid]) for name in laid[0]}


decode_step = jax.jit(lambda model, *args: model.decode_step(*args))


@pytest.mark.slow
def test_a_fresh_model_knows_nothing_and_starts_with_small_residuals():
    config = gpt.Config(vocab_size=2000, d_model=64, d_ff=256, num_heads=4, num_layers=8)
    model, batch = make(config), batch_of([12], [7])
    np.testing.assert_allclose(jax.jit(loss_of)(model, batch), np.log(2000), rtol=0.02)
    layers = model.stack.layers
    for kernel in (layers.attention.out.kernel, layers.mlp.wo.kernel):
        np.testing.assert_allclose(kernel[...].std(), 0.02 / 4, rtol=0.03)
    np.testing.assert_allclose(layers.attention.query.kernel[...].std(), 0.02, rtol=0.03)
    first = dataclasses.replace(config, pre_norm=False)
    np.testing.assert_allclose(make(first).stack.layers.mlp.wo.kernel[...].std(), 0.02, rtol=0.03)


@BOTH
def test_a_token_sees_those_before_it_alone(config):
    model, batch = make(config), batch_of([12], [9])
    logits = logits_of(model, batch)
    tokens = batch["decoder_input_tokens"]
    changed = logits_of(model, {**batch, "decoder_input_tokens": tokens.at[:, 5].set(49)})
    np.testing.assert_array_equal(changed[:, :5], logits[:, :5])
    assert np.abs(changed[:, 5:] - logits[:, 5:]).max(axis=(0, 2)).min() > 1e-3


@pytest.mark.slow
def test_packed_examples_score_as_each_does_alone():
    model = make()
    packed = batch_of([4, 7], pack=True)
    logits = logits_of(model, packed)
    for start, stop in ((0, 4), (4, 11)):
        alone = {"decoder_input_tokens": packed["decoder_input_tokens"][:, start:stop]}
        np.testing.assert_allclose(
            logits_of(model, alone), logits[:, start:stop], rtol=1e-5, atol=1e-5
        )


@BOTH
def test_cached_decoding_gives_the_logits_of_a_whole_row(config):
    model = make(config)
    tokens = batch_of([8], [8])["decoder_input_tokens"][:, :8]
    want = logits_of(model, {"decoder_input_tokens": tokens})
    prefill = jax.jit(functools.partial(model.prefill, max_length=9))
    for length in (1, 5):
        cache = prefill({"decoder_input_tokens": tokens[:, :length]})
        for i in range(length - 1, 8):
            logits, cache = decode_step(model, cache, tokens[:, i], jnp.int32(i))
            np.testing.assert_allclose(logits, want[:, i], rtol=1e-4, atol=1e-4)


def test_more_positions_than_there_are_vectors_for_are_refused():
    model, tokens = make(), jnp.ones((1, 13), jnp.int32)
    message = "rows of 13 tokens do not fit max_positions: at most 12 do"
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(model.logits, {"decoder_input_tokens": tokens})
    with pytest.raises(ValueError, match=message):
        model.prefill({"decoder_input_tokens": tokens[:, :5]}, max_length=13)


@pytest.mark.slow
@pytest.mark.parametrize("microbatches", [2, 4])
def test_unequal_microbatches_give_the_same_gradients(microbatches):
    graph, params = nnx.split(make())
    batch = batch_of([12], [3], [7], [1])

    def run(n):
        return jax.jit(
            lambda params: gradients(
                graph,
                nnx.to_pure_dict(params),
                batch=batch,
                key=jax.random.key(0),
                carry=(),
                microbatches=n,
            )[:2]
        )(params)

    whole, parts = run(1), run(microbatches)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6), parts, whole)


@pytest.mark.parametrize("pack", [False, True])
def test_tokens_and_flops_are_counted_whatever_pads(pack):
    model, batch = make(), batch_of([7], pack=pack)
    d, f, length = 16, 32, 7
    forward = (
        length * (2 * (4 * d * d + 2 * d * f) + d * 50) + 2 * 2 * d * length * (length + 1) / 2
    )
    assert model.flops(batch) == 6 * forward
    assert model.tokens(batch) == 7
    other = {**batch, "decoder_target_tokens": batch["decoder_target_tokens"].at[0, 7:].set(1)}
    assert model.tokens(other) == 7


def test_two_heads_count_their_texts_without_padding():
    config = dataclasses.replace(GPT2, pad_id=0)
    head = functools.partial(
        label_heads.SequenceHead, num_labels=1, pool=label_heads.last_that_counts
    )
    model = nnx.eval_shape(
        lambda: DoubleHeads(functools.partial(gpt.Gpt, config), head, rngs=nnx.Rngs(0))
    )
    lengths = np.array([[7, 12], [0, 0]])
    batch = {"decoder_input_tokens": (np.arange(12) < lengths[..., None]).astype(np.int32)}
    d, f, pairs = 16, 32, 7 * 8 / 2 + 12 * 13 / 2
    body = 19 * (2 * (4 * d * d + 2 * d * f) + d * 50) + 2 * 2 * d * pairs
    assert model.counted(batch) == {"tokens": 19, "flops": 6 * (body + 2 * d)}


def test_states_and_probabilities():
    model, batch = make(), batch_of([12], [9])
    hidden = functools.partial(model.hidden, want=ALL)
    hidden = jax.jit(hidden)(batch)
    assert hidden.states.shape == (3, 2, 12, 16)
    assert hidden.attention.shape == (2, 2, 4, 12, 12)
    np.testing.assert_array_equal(hidden.states[-1], hidden.last)
    assert np.all(np.triu(hidden.attention, 1) == 0)


@pytest.mark.slow
@BOTH
def test_one_batch_overfits(config):
    losses, _ = trained(make(config, init_std=0.1), batch_of([12], [9]), steps=100, rate=1e-2)
    assert losses[-1] < 0.1
