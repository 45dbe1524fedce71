import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from t5x_like.inference.decoding import greedy
from t5x_like.layers.mlp import GatedMlp
from t5x_like.models import t5

TINY = t5.Config(
    vocab_size=40,
    d_model=16,
    d_ff=32,
    num_heads=2,
    d_kv=8,
    num_encoder_layers=2,
    num_decoder_layers=3,
)
LENGTH = 24
INPUTS = jax.random.randint(jax.random.key(0), (5, 14), 1, 40).at[1, 6:].set(0)


@functools.cache
def make(**changes):
    config = dataclasses.replace(TINY, **changes)
    graph = nnx.graphdef(nnx.eval_shape(lambda: t5.T5(config, rngs=nnx.Rngs(1))))
    # Compiled as one program: faster than an operation at a time.
    return nnx.merge(
        graph, jax.jit(lambda: nnx.to_pure_dict(nnx.state(t5.T5(config, rngs=nnx.Rngs(1)))))()
    )


@jax.jit
def empty_cache(model):
    return model.init_cache(model.encode(INPUTS).last, INPUTS, max_length=LENGTH)


def uncached(model, *, eos):
    """Greedy decoding that runs the whole decoder again for each position."""

    @jax.jit
    def scores(inputs):
        batch = {
            "encoder_input_tokens": INPUTS,
            "decoder_input_tokens": inputs,
            "decoder_target_tokens": jnp.ones_like(inputs),
        }
        return model.logits(batch)

    inputs = np.zeros((5, LENGTH + 1), np.int32)
    for position in range(LENGTH):
        inputs[:, position + 1] = scores(inputs[:, :-1])[:, position].argmax(-1)
    out = inputs[:, 1:]
    ended = np.cumsum(out == eos, axis=1) - (out == eos)
    return np.where(ended, 0, out)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"mlp": GatedMlp, "tied_logits": False},
        {"relative_bias_per_layer": True, "scan_unroll": 0},
    ],
    ids=["1.0", "1.1", "umT5 unrolled"],
)
def test_cached_decoding_is_the_argmax_of_the_uncached_model(changes):
    model = make(**changes)
    free = uncached(model, eos=-1)
    eos = int(free[0, 5])  # an id that does occur, so that rows end early
    got = greedy(model, INPUTS, max_length=LENGTH, eos=eos)
    np.testing.assert_array_equal(got, uncached(model, eos=eos))
    np.testing.assert_array_equal(greedy(model, INPUTS, max_length=LENGTH, eos=-1), free)


@pytest.mark.slow
def test_each_step_gives_the_logits_of_the_whole_decoder():
    model = make()
    inputs = jax.random.randint(jax.random.key(2), (5, LENGTH), 0, 40)
    batch = {
        "encoder_input_tokens": INPUTS,
        "decoder_input_tokens": inputs,
        "decoder_target_tokens": jnp.ones_like(inputs),
    }
    want = jax.jit(lambda model: model.logits(batch))(model)
    cache = empty_cache(model)
    step = jax.jit(lambda model, *args: model.decode_step(*args))
    for position in range(LENGTH):
        logits, cache = step(model, cache, inputs[:, position], jnp.asarray(position))
        np.testing.assert_allclose(logits, want[:, position], atol=1e-5)


@pytest.mark.slow
def test_ids_beyond_the_vocabulary_are_never_chosen():
    model = nnx.merge(*nnx.split(make(mlp=GatedMlp, tied_logits=False)))  # a copy, to change
    kernel = model.output.kernel
    kernel[...] = kernel[...].at[:, 30:].multiply(100.0)  # they would win about every time
    assert greedy(model, INPUTS, max_length=LENGTH, eos=-1).max() >= 30
    assert greedy(model, INPUTS, max_length=LENGTH, eos=-1, vocab_size=30).max() < 30


@pytest.mark.slow
def test_encoder_keys_and_values_are_not_computed_in_the_loop():
    # The decoder's cross-attention key matrix may be multiplied with the encoder's output alone.
    model = make()
    cache = empty_cache(model)
    graph, params = nnx.split(model)
    params = nnx.to_pure_dict(params)

    def step(params):
        model = nnx.merge(graph, params)
        return model.decode_step(cache, INPUTS[:, 0], jnp.asarray(0))[0].sum()

    grads = jax.jit(jax.grad(step))(params)["decoder"]["layers"]["cross_attention"]
    np.testing.assert_array_equal(grads["key"]["kernel"], 0)
    np.testing.assert_array_equal(grads["value"]["kernel"], 0)
    assert np.abs(grads["query"]["kernel"]).max() > 0
