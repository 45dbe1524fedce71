import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tiny_models import logits_of, loss_of, maker, trained

from t5x_like.inference.decoding.decode import decode
from t5x_like.inference.decoding.settings import Decoding, Specials
from t5x_like.models import bart
from t5x_like.runs.checks import preflight

PAD, EOS = 1, 2
TINY = bart.Config(
    vocab_size=50,
    d_model=16,
    d_ff=32,
    num_heads=4,
    num_encoder_layers=2,
    num_decoder_layers=2,
    max_positions=14,
    dropout_rate=0.0,
    attention_dropout_rate=0.0,
)
MBART = {"pre_norm": True, "scale_embedding": True}


make = maker(bart.Bart, TINY)


@pytest.fixture
def batch():
    """Two rows of 10 and 7 inputs, 6 and 9 targets; the rest of each row is padding."""
    rng = np.random.default_rng(0)

    def text(lengths, width):
        return np.where(
            np.arange(width) < np.array(lengths)[:, None], rng.integers(3, 50, width), 1
        )

    inputs, targets = text((10, 7), 12), text((6, 9), 9)
    batch = {
        "encoder_input_tokens": inputs,
        "decoder_input_tokens": np.pad(targets, ((0, 0), (1, 0)), constant_values=EOS)[:, :-1],
        "decoder_target_tokens": targets,
        "decoder_loss_weights": (targets != PAD).astype(np.float32),
    }
    return {name: jnp.asarray(x) for name, x in batch.items()}


grads_of = jax.jit(jax.grad(loss_of))


def rows_used(table):
    return set(np.flatnonzero(np.abs(table[...]).max(axis=1)))


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, MBART], ids=["bart", "mbart"])
def test_the_first_token_reads_row_2_of_the_positions_and_padding_none(changes, batch):
    grads = grads_of(make(**changes), batch)
    assert rows_used(grads.encoder_entry.positions) == set(range(2, 12))
    assert rows_used(grads.decoder_entry.positions) == set(range(2, 11))


@pytest.mark.slow
def test_a_target_sees_all_inputs_and_the_targets_before_it():
    batch = {
        "encoder_input_tokens": jnp.array([[0, 2, 3, 4, PAD, PAD]]),  # 0 is text
        "decoder_input_tokens": jnp.array([[11, 12, 13, 14]]),
        "decoder_target_tokens": jnp.array([[12, 13, 14, 15]]),
    }

    @jax.jit
    @jax.grad
    def state_grads(model, batch):
        return jnp.square(model.hidden(batch).last[0, 1]).sum()

    assert rows_used(state_grads(make(), batch).embedding.table) == {0, 2, 3, 4, 11, 12}
    batch["encoder_attention_mask"] = jnp.array([[1, 1, 0, 1, 0, 0]])
    assert rows_used(state_grads(make(), batch).embedding.table) == {0, 2, 4, 11, 12}


@pytest.mark.slow
def test_packed_examples_score_as_each_does_alone(batch):
    model, packed = make(), {}
    counts = {
        "encoder": batch["encoder_input_tokens"] != PAD,
        "decoder": batch["decoder_target_tokens"] != PAD,
    }
    for name, x in batch.items():
        both = [row[count] for row, count in zip(x, counts[name[:7]], strict=True)]
        packed[name] = jnp.concatenate(both)[None]
    for side, count in counts.items():
        sizes = np.asarray(count.sum(axis=1))
        packed[f"{side}_segment_ids"] = jnp.asarray(np.repeat([1, 2], sizes))[None]
        packed[f"{side}_positions"] = jnp.asarray(np.concatenate([*map(np.arange, sizes)]))[None]
    got, want = logits_of(model, packed)[0], logits_of(model, batch)
    assert packed["encoder_input_tokens"].shape[1] == 17 > model.config.max_positions
    np.testing.assert_allclose(got[:6], want[0, :6], atol=1e-5)
    np.testing.assert_allclose(got[6:], want[1], atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, MBART], ids=["bart", "mbart"])
def test_cached_decoding_is_decoding(changes, batch):
    model = make(**changes, logits_bias=True)

    @jax.jit
    def cached(model, batch):
        first = batch["decoder_input_tokens"][:, :1]
        cache = model.prefill({**batch, "decoder_input_tokens": first}, max_length=9)

        def step(cache, token_and_position):
            logits, cache = model.decode_step(cache, *token_and_position)
            return cache, logits

        steps = batch["decoder_input_tokens"].T, jnp.arange(9)
        return jax.lax.scan(step, cache, steps)[1].swapaxes(0, 1)

    counts = batch["decoder_target_tokens"] != PAD
    got, want = cached(model, batch), logits_of(model, batch)
    np.testing.assert_allclose(got[counts], want[counts], atol=1e-5)


@pytest.mark.slow
def test_what_follows_the_end_of_an_answer_is_padding(batch):
    model = make(logits_bias=True)
    ends = model.logits_bias[...].at[EOS].set(100.0)
    model.logits_bias[...] = ends
    asked = {**batch, "decoder_input_tokens": batch["decoder_input_tokens"][:, :1]}
    found = decode(model, asked, decoding=Decoding(max_new_tokens=4), specials=Specials(EOS, PAD))
    np.testing.assert_array_equal(found.tokens[:, 0], [[EOS, PAD, PAD, PAD]] * 2)


@pytest.mark.slow
def test_the_bias_of_the_logits_is_added_and_not_trained(batch):
    model = make(logits_bias=True)
    bias = model.logits_bias[...]
    logits = logits_of(model, batch)
    model.logits_bias[...] = jnp.zeros(50)
    np.testing.assert_allclose(logits, logits_of(model, batch) + bias, atol=1e-5)
    assert not np.any(grads_of(model, batch).logits_bias[...])


@pytest.mark.slow
def test_scaled_embeddings_are_those_of_a_larger_table(batch):
    model, scaled = make(), make(scale_embedding=True)
    model.embedding.table[...] *= 4  # the square root of d_model
    states_of = jax.jit(lambda model: model.hidden(batch).last)
    np.testing.assert_allclose(states_of(scaled), states_of(model), atol=1e-5)


# Embeddings of both sides, and two and three parts of their layers; one and two with attention.
@pytest.mark.parametrize(("name", "places"), [("dropout_rate", 7), ("attention_dropout_rate", 3)])
def test_a_rate_reaches_its_places(name, places, batch, monkeypatch):
    rates = []

    def record(x, key, *, rate, shared=()):
        assert not shared
        rates.append(rate)
        return x

    for layer in ("dropout", "mlp"):
        monkeypatch.setattr(f"t5x_like.layers.basics.{layer}.dropout", record)
    model = make(**{name: 0.3}, activation_dropout_rate=0.2)
    # Scanned layers are traced once.
    jax.eval_shape(model.logits, batch, jax.random.key(0))
    assert rates.count(0.3) == places
    assert rates.count(0.2) == 2


def test_the_vector_of_padding_starts_at_zero():
    config = dataclasses.replace(TINY, num_encoder_layers=1, num_decoder_layers=1, pad_id=3)
    table = jax.jit(lambda: bart.Bart(config, rngs=nnx.Rngs(0)).embedding.table[...])()
    assert set(np.flatnonzero(np.abs(table).max(axis=1) == 0)) == {3}
    np.testing.assert_allclose(table.std(), 0.02, rtol=0.1)


def test_a_reader_begins_with_the_last_token_of_its_text(monkeypatch):
    reader, read = make(bart.Reader), []
    monkeypatch.setattr(bart.Bart, "hidden", lambda self, batch, *_, **__: read.append(batch))
    tokens = jnp.array([[0, 7, 8, 9, EOS], [0, 5, EOS, PAD, PAD]])
    shifted = [[EOS, 0, 7, 8, 9], [EOS, 0, 5, EOS, PAD]]
    reader.hidden({"encoder_input_tokens": tokens})
    reader.hidden({"encoder_input_tokens": tokens, "encoder_attention_mask": tokens < 9})
    np.testing.assert_array_equal(read[0]["decoder_input_tokens"], shifted)
    np.testing.assert_array_equal(read[0]["decoder_target_tokens"], tokens)
    assert read[1]["decoder_target_tokens"][0, 3] == PAD


def test_a_row_longer_than_the_positions_is_refused(batch):
    long = {**batch, "encoder_input_tokens": jnp.zeros((2, 15), int)}
    with pytest.raises(ValueError, match="15 tokens do not fit max_positions: at most 14 do"):
        jax.eval_shape(make().logits, long)
    jax.eval_shape(functools.partial(make().prefill, max_length=14), batch)
    with pytest.raises(ValueError, match="15 tokens do not fit max_positions"):
        jax.eval_shape(functools.partial(make().prefill, max_length=15), batch)


@pytest.mark.slow
def test_a_vocabulary_that_pads_with_another_id_is_refused():
    def model(**changes):
        return bart.Bart(dataclasses.replace(TINY, **changes), rngs=nnx.Rngs(0))

    preflight.vocabulary_fits(model(), 50, 1)
    preflight.vocabulary_fits(model(pad_id=0), 50, None)
    for pad in (0, None):
        with pytest.raises(ValueError, match=r"pads with 0.*--gin\.bart\.Config\.pad_id=0"):
            preflight.vocabulary_fits(model(), 50, pad)


@pytest.mark.slow
def test_one_batch_overfits(batch):
    losses, _ = trained(make(), batch, steps=80, rate=1e-2)
    assert losses[-1] < 0.1
