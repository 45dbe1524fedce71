import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tiny_models import logits_of, loss_and_grads, maker, metrics_of, trained

from t5x_like.core.abilities import ALL
from t5x_like.models import bert
from t5x_like.runs.checks import preflight

TINY = bert.Config(
    vocab_size=50,
    d_model=16,
    d_ff=32,
    num_heads=4,
    num_layers=3,
    max_positions=12,
    dropout_rate=0.0,
    attention_dropout_rate=0.0,
)
ROBERTA = {
    "max_positions": 14,
    "padding_position": 1,
    "type_vocab_size": 1,
    "sentence_head": False,
    "initializer": nnx.initializers.normal,
}


make = maker(bert.Bert, TINY)


@pytest.fixture
def padded_with_1(encoder_batch):
    tokens = jnp.where(
        encoder_batch["encoder_attention_mask"] > 0, encoder_batch["encoder_input_tokens"], 1
    )
    return {**encoder_batch, "encoder_input_tokens": tokens}


@jax.jit
@jax.grad
def logit_grads(model, batch):
    """Gradients of the logits of the second row's first token."""
    return jnp.square(model.logits(batch)[1, 0]).sum()


@pytest.mark.slow
def test_the_loss_is_the_mean_over_masked_tokens_plus_that_over_pairs(encoder_batch):
    model, batch = make(), encoder_batch
    loss, metrics, carry = metrics_of(model, batch)
    logits = np.asarray(jax.nn.log_softmax(logits_of(model, batch)), np.float64)
    masked = [(0, 5), (1, 1), (1, 7), (2, 1), (2, 3), (2, 4), (3, 1)]
    targets = batch["masked_targets"][batch["masked_loss_weights"] > 0]
    mlm = [-logits[row, at, t] for (row, at), t in zip(masked, targets, strict=True)]
    pairs = np.asarray(jax.nn.log_softmax(model.sentence_logits(batch)), np.float64)
    sentence = [-pairs[row, label] for row, label in enumerate([0, 1, 1, 0])]
    np.testing.assert_allclose(loss, np.mean(mlm) + np.mean(sentence), rtol=1e-5)
    np.testing.assert_allclose(metrics["mlm_loss"], (sum(mlm), 7), rtol=1e-5)
    np.testing.assert_allclose(metrics["sentence_loss"], (sum(sentence), 4), rtol=1e-5)
    right = sum(logits[row, at].argmax() == t for (row, at), t in zip(masked, targets, strict=True))
    assert metrics["mlm_accuracy"] == (right, 7)
    assert metrics["tokens"] == (30, 1)
    assert carry == ()


@pytest.mark.slow
def test_a_token_sees_all_tokens_of_its_row_and_no_padding(encoder_batch):
    tokens = jnp.arange(60).reshape(5, 12) % 50
    batch = {**encoder_batch, "encoder_input_tokens": tokens}
    model = make(type_vocab_size=0)
    grads = logit_grads(model, batch)
    # The head scores with the table: that gradient alone reaches every row of the table.
    embedded = jax.jit(
        jax.grad(lambda m: jnp.square(m.encoder.hidden(batch).last[1, 0] @ jnp.ones(16)).sum())
    )(model)
    rows = np.abs(embedded.encoder.embedding.tokens.table[...]).max(axis=1)
    assert set(np.flatnonzero(rows)) == set(range(12, 21))
    positions = np.abs(grads.encoder.embedding.positions[...]).max(axis=1)
    assert set(np.flatnonzero(positions)) == set(range(9))


@pytest.mark.parametrize("buckets", [0, 8])
def test_relative_biases_tell_the_order_of_tokens(buckets, encoder_batch):
    model = make(relative_buckets=buckets)
    model.encoder.embedding.positions[...] *= 0
    tokens = encoder_batch["encoder_input_tokens"].at[0, 1:4].set(jnp.array([11, 12, 13]))
    swapped = tokens.at[0, 1:4].set(jnp.array([13, 12, 11]))
    types = jnp.zeros_like(tokens)
    one, other = (
        logits_of(
            model, {**encoder_batch, "encoder_input_tokens": x, "encoder_token_type_ids": types}
        )
        for x in (tokens, swapped)
    )
    assert np.allclose(one[0, 4], other[0, 4], atol=1e-4) == (buckets == 0)
    np.testing.assert_allclose(one[1:], other[1:], atol=1e-6)


@pytest.mark.slow
def test_token_types_are_rows_of_their_own_table(encoder_batch):
    model, batch = make(), encoder_batch
    types = np.abs(logit_grads(model, batch).encoder.embedding.types[...]).max(axis=1)
    assert (types > 0).all()
    other = {**batch, "encoder_token_type_ids": 1 - batch["encoder_token_type_ids"]}
    assert np.abs(logits_of(model, other) - logits_of(model, batch)).max() > 0.1
    del other["encoder_token_type_ids"]  # as if all 0
    zeros = {**batch, "encoder_token_type_ids": jnp.zeros((5, 12), int)}
    np.testing.assert_array_equal(logits_of(model, other), logits_of(model, zeros))


@pytest.mark.slow
def test_positions_of_a_roberta_count_tokens_from_2(padded_with_1):
    model = make(**ROBERTA)
    grads = logit_grads(model, padded_with_1).encoder.embedding.positions[...]
    assert set(np.flatnonzero(np.abs(grads).max(axis=1))) == set(range(2, 11))
    # Padding on the left, with its mask, moves nothing.
    rolled = {name: jnp.roll(x, 3, axis=1) for name, x in padded_with_1.items() if x.ndim == 2}
    logits = logits_of(model, padded_with_1)
    np.testing.assert_allclose(logits_of(model, rolled)[1, 3:], logits[1, :9], atol=1e-5)


def test_the_sentence_head_reads_the_first_state(encoder_batch):
    model = make()
    hidden = model.encoder.hidden(encoder_batch).last
    pooler, out = model.sentence.pooler.dense, model.sentence.out
    pooled = np.tanh(hidden[:, 0] @ pooler.kernel[...] + pooler.bias[...])
    want = pooled @ out.kernel[...] + out.bias[...]
    np.testing.assert_allclose(model.sentence_logits(encoder_batch), want, atol=1e-5)
    assert make(sentence_head=False).sentence is None


@pytest.mark.slow
def test_initial_scales():
    wide = dataclasses.replace(TINY, vocab_size=2000, d_model=64, d_ff=256)
    model = bert.Bert(wide, rngs=nnx.Rngs(0))
    kernels = (
        model.encoder.embedding.tokens.table,
        model.encoder.trunk.stack.layers.mlp.wi.kernel,
        model.mlm.dense.kernel,
    )
    for kernel in kernels:  # cut at two deviations of the uncut normal
        np.testing.assert_allclose(kernel[...].std(), 0.0176, rtol=0.05)
        assert np.abs(kernel[...]).max() <= 0.04
    uncut = bert.Bert(dataclasses.replace(wide, **ROBERTA), rngs=nnx.Rngs(0))
    np.testing.assert_allclose(uncut.encoder.embedding.tokens.table[...].std(), 0.02, rtol=0.05)
    np.testing.assert_array_equal(model.mlm.bias[...], 0)


@pytest.mark.slow
def test_dropout_needs_a_key_and_falls_where_it_should(encoder_batch, monkeypatch):
    model = make(dropout_rate=0.1, attention_dropout_rate=0.2)
    plain = logits_of(make(), encoder_batch)
    np.testing.assert_array_equal(logits_of(model, encoder_batch), plain)
    one, other = (logits_of(model, encoder_batch, jax.random.key(i)) for i in (0, 1))
    assert np.abs(one - plain).max() > 0.1
    assert np.abs(one - other).max() > 0.1

    sites = []

    def record(x, key, *, rate, shared=()):
        if key is not None and rate:
            sites.append((x.shape, rate))
        return x

    for module in ("dropout", "mlp"):
        monkeypatch.setattr(f"t5x_like.layers.basics.{module}.dropout", record)
    jax.eval_shape(model.logits, encoder_batch, jax.random.key(0))
    x = ((5, 12, 16), 0.1)
    # The embedding; then in a layer (scanned: traced once) attention and what its parts add.
    assert sites == [x, ((5, 4, 12, 12), 0.2), x, x]


def test_hidden_states_and_attention_are_returned_where_asked_for(encoder_batch):
    model = make()
    hidden = model.encoder.hidden(encoder_batch, want=ALL)
    assert hidden.states.shape == (4, 5, 12, 16)
    assert hidden.attention.shape == (3, 5, 4, 12, 12)
    np.testing.assert_array_equal(hidden.states[-1], hidden.last)
    np.testing.assert_allclose(hidden.attention.sum(-1), 1, rtol=1e-5)
    assert not hidden.attention[1, 1, :, :, 9:].any()
    assert model.encoder.hidden(encoder_batch).states is None


@pytest.mark.slow
def test_a_batch_of_padding_alone_has_loss_zero_and_finite_gradients(encoder_batch):
    batch = jax.tree.map(jnp.zeros_like, encoder_batch)
    loss, grads = loss_and_grads(make(), batch)
    assert loss == 0
    assert all(np.all(x == 0) for x in jax.tree.leaves(grads))


def test_flops_count_what_is_neither_padding_nor_empty(encoder_batch):
    d, f, v = 16, 32, 50
    pairs = 12**2 + 9**2 + 6**2 + 3**2
    layers = 3 * (30 * (4 * d * d + 2 * d * f) + 2 * d * pairs)
    heads = 7 * (d * d + d * v) + 4 * (d * d + 2 * d)
    assert make().flops(encoder_batch) == 3 * 2 * (layers + heads)


@pytest.mark.slow
def test_a_few_steps_lower_the_loss(encoder_batch):
    losses, _ = trained(make(), encoder_batch, steps=60, rate=3e-3)
    assert losses[-1] < 0.1 * losses[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_heads": 3}, "num_heads=3 does not divide d_model=16"),
        ({"type_vocab_size": -1}, "type_vocab_size must be at least 0"),
        ({"relative_buckets": -1}, "relative_buckets must be at least 0"),
        ({"max_positions": 11}, "rows of 12 tokens do not fit max_positions: at most 11 do"),
        ({"max_positions": 13, "padding_position": 1}, "at most 11 do"),
    ],
)
def test_impossible_configurations_are_refused(changes, message, encoder_batch):
    with pytest.raises(ValueError, match=message):
        make(**changes).logits(encoder_batch)


def test_a_roberta_needs_a_vocabulary_with_its_padding():
    def model(**changes):
        config = dataclasses.replace(TINY, **ROBERTA | changes)
        return nnx.eval_shape(lambda: bert.Bert(config, rngs=nnx.Rngs(0)))

    preflight.vocabulary_fits(model(), 50, pad=1)
    with pytest.raises(ValueError, match=r"set --gin\.bert\.Config\.padding_position=0$"):
        preflight.vocabulary_fits(model(), 50, pad=0)
    preflight.vocabulary_fits(model(padding_position=0), 50, pad=0)
    preflight.vocabulary_fits(model(padding_position=None), 50, pad=0)
