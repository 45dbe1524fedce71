"""Decoding with caches is the uncached model's, whatever is beside a text; draws have its law."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from t5x_like.inference.decoding.decode import decode
from t5x_like.inference.decoding.settings import Decoding, Specials
from t5x_like.layers.basics.mlp import GatedMlp
from t5x_like.models import gpt, prefix_lm, t5, xlnet

SIZES = {"vocab_size": 40, "d_model": 16, "d_ff": 32, "num_heads": 2}
TINY = t5.Config(**SIZES, d_kv=8, num_encoder_layers=2, num_decoder_layers=3)
LENGTH = 14

INPUTS = np.array(jax.random.randint(jax.random.key(0), (5, 14), 1, 40).at[1, 6:].set(0))
PROMPTS = [INPUTS[0, :9], INPUTS[1, :1], INPUTS[2, :4], INPUTS[3, :9], INPUTS[4, :2]]
ALONE = {
    "gpt": (gpt.Gpt, gpt.Config(**SIZES, num_layers=2, max_positions=32)),
    "prefix LM": (prefix_lm.PrefixLm, prefix_lm.Config(**SIZES, d_kv=8, num_decoder_layers=2)),
    "XLNet": (xlnet.XLNet, xlnet.Config(**SIZES, num_layers=2)),
    "XLNet, one bias": (xlnet.XLNet, xlnet.Config(**SIZES, num_layers=2, untie_r=False)),
}


@functools.cache
def make(cls, config):
    """A model whose parameters are large, so that what it writes depends on what it reads."""
    config = dataclasses.replace(config, dtype="float32")
    graph = nnx.graphdef(nnx.eval_shape(lambda: cls(config, rngs=nnx.Rngs(1))))
    # Compiled as one program: faster than an operation at a time.
    params = jax.jit(lambda: nnx.to_pure_dict(nnx.state(cls(config, rngs=nnx.Rngs(1)))))()
    params = jax.tree.map(lambda x: x * 4 if cls is not t5.T5 and x.ndim > 1 else x, params)
    return nnx.merge(graph, params)


def make_t5(**changes):
    return make(t5.T5, dataclasses.replace(TINY, **changes))


def answered(model, *, eos=-1, length=LENGTH, vocab_size=None, **settings):
    """Answers of an encoder-decoder: int32 [5, answers, length]."""
    batch = {"encoder_input_tokens": INPUTS, "decoder_input_tokens": np.zeros((5, 1), np.int32)}
    decoding = Decoding(max_new_tokens=length, **settings)
    return decode(model, batch, decoding=decoding, specials=Specials(eos, 0, vocab_size))


def prompted(model, prompts=PROMPTS, *, eos=-1, length=LENGTH, **settings):
    """Continuations by a decoder alone, of prompts that end together."""
    longest = max(map(len, prompts))
    rows = [np.pad(prompt, (longest - len(prompt), 0)) for prompt in prompts]
    counts = [np.arange(longest) >= longest - len(prompt) for prompt in prompts]
    batch = {
        "decoder_input_tokens": np.array(rows, np.int32),
        "decoder_segment_ids": np.array(counts, np.int32),
    }
    if isinstance(model, prefix_lm.PrefixLm):
        batch["decoder_causal_attention"] = batch["decoder_segment_ids"]
    decoding = Decoding(max_new_tokens=length, **settings)
    return decode(model, batch, decoding=decoding, specials=Specials(eos))


def uncached(scores, prompt, steps):
    """The likeliest tokens by `scores`, from tokens to the logits of the next, and their log p."""
    tokens, total = [*map(int, prompt)], 0.0
    for _ in range(steps):
        log_p = jax.nn.log_softmax(scores(np.array(tokens, np.int32)))
        tokens.append(int(log_p.argmax()))
        total += float(log_p.max())
    return tokens[len(prompt) :], total


def whole_t5(model, row, tokens):
    batch = {
        "encoder_input_tokens": INPUTS[row : row + 1],
        "decoder_input_tokens": tokens[None],
        "decoder_target_tokens": np.ones((1, len(tokens)), np.int32),
    }
    return model.logits(batch)[0, -1]


def whole_alone(model, prompt_length, tokens):
    """Logits after `tokens` from the model's own forward pass."""
    length = len(tokens)
    if not isinstance(model, xlnet.XLNet):
        batch = {"decoder_input_tokens": tokens[None]}
        if isinstance(model, prefix_lm.PrefixLm):
            seen = np.arange(length) < prompt_length
            batch["decoder_causal_attention"] = seen.astype(np.int32)[None]
        return model.logits(batch)[0, -1]
    order = np.arange(length + 1)[None]
    return model.logits(
        {
            "encoder_input_tokens": jnp.append(tokens, 0)[None],
            "encoder_attention_mask": np.ones((1, length + 1), np.int32),
            "masked_positions": np.array([[length]]),
            "permutation_query_order": order,
            "permutation_key_order": order,
            "backward": np.zeros(1, np.int32),
        }
    )[0, 0]


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
def test_an_encoder_decoder_writes_the_argmax_of_the_whole_model(changes):
    model = make_t5(**changes)
    whole = jax.jit(whole_t5, static_argnums=1)
    want = [uncached(functools.partial(whole, model, row), [0], 6)[0] for row in range(5)]
    free = np.asarray(answered(model).tokens)[:, 0]
    assert free[:, :6].tolist() == want
    eos = int(free[0, 5])  # an id that does occur, so that rows end early
    ended = np.cumsum(free == eos, axis=1) - (free == eos)
    np.testing.assert_array_equal(answered(model, eos=eos).tokens[:, 0], np.where(ended, 0, free))


@pytest.mark.slow
@pytest.mark.parametrize("name", ALONE)
def test_prompts_of_several_lengths_are_continued_as_by_the_whole_model(name):
    model = make(*ALONE[name])
    found = prompted(model, length=5)
    whole = jax.jit(whole_alone, static_argnums=1)
    for row in (0, 1, 4):
        prompt = PROMPTS[row]
        tokens, log_p = uncached(functools.partial(whole, model, len(prompt)), prompt, 5)
        assert found.tokens[row, 0].tolist() == tokens
        np.testing.assert_allclose(found.scores[row, 0], log_p, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt", "XLNet"])
def test_beams_of_several_prompts_are_those_of_each_alone(name):
    model = make(*ALONE[name])
    settings = {"num_beams": 3, "num_return_sequences": 2, "eos": 7}
    together = prompted(model, **settings)
    for row in (1, 2):
        alone = prompted(model, [PROMPTS[row]], **settings)
        np.testing.assert_array_equal(together.tokens[row], alone.tokens[0])
        np.testing.assert_allclose(together.scores[row], alone.scores[0], rtol=1e-4)


@pytest.mark.slow
def test_the_best_beam_is_the_likeliest_sequence():
    # With as many beams as there are beginnings, beam search finds the best of all sequences.
    model = make_t5(vocab_size=6, mlp=GatedMlp)
    found = answered(model, length=2, num_beams=6, length_penalty=0.0)
    whole = jax.jit(whole_t5, static_argnums=1)
    for row in range(2):
        first = jax.nn.log_softmax(whole(model, row, np.zeros(1, np.int32)))
        both = np.array([
            first[a] + jax.nn.log_softmax(whole(model, row, np.array([0, a], np.int32)))
            for a in range(6)
        ])  # fmt: skip
        assert tuple(found.tokens[row, 0]) == np.unravel_index(both.argmax(), both.shape)
        np.testing.assert_allclose(found.scores[row, 0], both.max(), rtol=1e-4)


@pytest.mark.slow
def test_draws_have_the_law_of_the_model_and_its_rules():
    model = make_t5()
    whole = jax.jit(whole_t5, static_argnums=1)
    answers, temperature = 3000, 2.0
    logits = np.asarray(whole(model, 0, np.zeros(1, np.int32)), np.float64) / temperature
    p = np.exp(logits - logits.max())
    p /= p.sum()
    order = np.argsort(-p)
    nucleus = order[: np.searchsorted(np.cumsum(p[order]), 0.5) + 1]
    for rule, kept in (({}, order), ({"top_k": 3}, order[:3]), ({"top_p": 0.5}, nucleus)):
        want = np.zeros(40)
        want[kept] = p[kept] / p[kept].sum()
        found = answered(
            model, length=1, do_sample=True, temperature=temperature,
            num_return_sequences=answers, seed=3, **rule,
        ).tokens[0, :, 0]  # fmt: skip
        shares = np.bincount(found, minlength=40) / answers
        assert np.all(np.abs(shares - want) < 5 * np.sqrt(want / answers) + 1e-9)


@pytest.mark.slow
def test_a_draw_depends_on_the_text_and_the_seed_alone():
    model = make(*ALONE["gpt"])
    together = np.asarray(prompted(model, do_sample=True, temperature=3.0).tokens)
    alone = prompted(model, [PROMPTS[2]], do_sample=True, temperature=3.0).tokens
    np.testing.assert_array_equal(together[2], alone[0])
    other = prompted(model, do_sample=True, temperature=3.0, seed=1).tokens
    assert np.any(together != other, axis=(1, 2)).all()


@pytest.mark.slow
def test_rules_hold():
    model = make_t5()
    eos = int(np.asarray(answered(model).tokens)[0, 0, 0])
    found = np.asarray(answered(model, eos=eos, min_new_tokens=4).tokens)[:, 0]
    assert not np.any(found[:, :4] == eos)
    free = np.asarray(answered(model, no_repeat_ngram_size=2, num_beams=2).tokens)[:, 0]
    for row in free:
        pairs = list(itertools.pairwise(row))
        assert len(set(pairs)) == len(pairs)
    once = np.asarray(answered(model, repetition_penalty=1e6).tokens)[:, 0]
    assert all(len(set(row.tolist())) == LENGTH for row in once)


@pytest.mark.slow
def test_ids_beyond_the_vocabulary_are_never_chosen():
    model = nnx.merge(*nnx.split(make_t5(mlp=GatedMlp, tied_logits=False)))  # a copy, to change
    kernel = model.output.kernel
    kernel[...] = kernel[...].at[:, 30:].multiply(100.0)  # they would win about every time
    assert answered(model).tokens.max() >= 30
    assert answered(model, vocab_size=30).tokens.max() < 30
    assert answered(model, vocab_size=30, num_beams=2).tokens.max() < 30


@pytest.mark.slow
def test_encoder_keys_and_values_are_not_computed_in_the_loop():
    # The decoder's cross-attention key matrix may be multiplied with the encoder's output alone.
    model = make_t5()
    batch = {"encoder_input_tokens": INPUTS, "decoder_input_tokens": np.zeros((5, 1), np.int32)}
    cache = jax.jit(lambda model: model.prefill(batch, max_length=LENGTH))(model)
    graph, params = nnx.split(model)
    params = nnx.to_pure_dict(params)

    def step(params):
        model = nnx.merge(graph, params)
        return model.decode_step(cache, jnp.asarray(INPUTS[:, 0]), jnp.asarray(0))[0].sum()

    grads = jax.jit(jax.grad(step))(params)["decoder"]["layers"]["cross_attention"]
    np.testing.assert_array_equal(grads["key"]["kernel"], 0)
    np.testing.assert_array_equal(grads["value"]["kernel"], 0)
    assert np.abs(grads["query"]["kernel"]).max() > 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens must be at least 1"),
        ({"forced_eos_token_id": [1, 2]}, r"forced_eos_token_id must be the id of one token"),
        ({"min_new_tokens": 65}, "min_new_tokens=65 is above max_new_tokens=64"),
        ({"temperature": 0.7}, "temperature has no effect on the likeliest token"),
        ({"num_return_sequences": 2}, "needs num_beams of at least as many, or do_sample"),
        ({"num_beams": 2, "num_return_sequences": 3}, "is more than the 2 sequences"),
        ({"do_sample": True, "top_p": 0.0}, "top_p must be above 0"),
        ({"num_beams": 2, "early_stopping": "soon"}, "True, False or 'never'"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Decoding(**settings)
