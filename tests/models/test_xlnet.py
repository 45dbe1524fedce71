import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from tiny_models import logits_of, maker

from t5x_like.core.abilities import ALL, Want
from t5x_like.layers.families.xlnet_inputs import Reading
from t5x_like.layers.heads.label_heads import SequenceHead, last_that_counts
from t5x_like.models import xlnet
from t5x_like.models.answering import Answering
from t5x_like.models.finetuned import FineTuned
from t5x_like.objectives.noise.permutation import visibility

VOCAB, ROWS, LENGTH, MEMORY = 50, 3, 12, 5
TINY = xlnet.Config(
    vocab_size=VOCAB,
    d_model=16,
    d_ff=32,
    num_heads=4,
    num_layers=2,
    dropout_rate=0.0,
    attention_dropout_rate=0.0,
)
TARGETS = np.array([[1, 4, 8], [2, 3, 0], [10, 0, 0]])  # 0: none


make = maker(xlnet.XLNet, TINY)


@pytest.fixture
def batch():
    """Orders as the objective draws them: the first half sees nothing of the second half."""
    rng = np.random.default_rng(0)
    orders = []
    for targets in TARGETS:
        masked = np.isin(np.arange(LENGTH), targets[targets > 0])
        orders.append(visibility(masked, [5, 9, 11], split=6, block=None, rng=rng))
    query, key = map(np.stack, zip(*orders, strict=True))
    arrays = {
        "encoder_input_tokens": rng.integers(5, VOCAB, (ROWS, LENGTH)),
        "encoder_attention_mask": np.ones((ROWS, LENGTH), np.int32),
        "encoder_token_type_ids": np.repeat([[0] * 8 + [1] * 3 + [2]], ROWS, axis=0),
        "masked_positions": TARGETS,
        "masked_targets": rng.integers(5, VOCAB, TARGETS.shape),
        "masked_loss_weights": (TARGETS > 0).astype(np.float32),
        "permutation_query_order": query,
        "permutation_key_order": key,
        "backward": np.array([0, 1, 0]),
        "reset_memory": np.array([0, 0, 1]),
    }
    return {name: jnp.asarray(x) for name, x in arrays.items()}


@pytest.fixture
def memory():
    shape = (ROWS, TINY.num_layers, MEMORY, TINY.d_model)
    return jnp.asarray(np.random.default_rng(1).normal(size=shape), jnp.float32)


def loss_of(model, batch, carry, key=None):
    return model.loss(batch, key, carry, model.weights(batch))


loss_and_carry = jax.jit(loss_of)


@pytest.mark.slow
def test_the_loss_is_the_mean_over_predicted_tokens(batch):
    model = make()
    loss, metrics, carry = loss_and_carry(model, batch, ())
    log_p = np.asarray(jax.nn.log_softmax(logits_of(model, batch)), np.float64)
    found = [
        -log_p[row, slot, batch["masked_targets"][row, slot]]
        for row, slot in zip(*np.nonzero(TARGETS), strict=True)
    ]
    assert len(found) == 6
    np.testing.assert_allclose(loss, np.mean(found), rtol=1e-5)
    for name in ("loss", "pseudo_perplexity"):
        np.testing.assert_allclose(metrics[name], (sum(found), 6), rtol=1e-5)
    assert metrics["tokens"] == (ROWS * LENGTH, 1)
    assert carry == ()


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
def test_a_prediction_sees_what_comes_before_it_in_the_order_alone(causal, batch):
    query, key = (np.asarray(batch[f"permutation_{end}_order"]) for end in ("query", "key"))
    tokens, slots = batch["encoder_input_tokens"], list(zip(*np.nonzero(TARGETS), strict=True))
    shallow, deep = make(num_layers=1, causal=causal), make(num_layers=3, causal=causal)
    before = [np.asarray(logits_of(model, batch)) for model in (shallow, deep)]
    for j in range(LENGTH):
        other = {**batch, "encoder_input_tokens": tokens.at[:, j].set((tokens[:, j] + 7) % VOCAB)}
        one, all_layers = (
            np.any(logits_of(model, other) != logits, axis=-1)
            for model, logits in zip((shallow, deep), before, strict=True)
        )
        for row, slot in slots:
            i = TARGETS[row, slot]
            sees = query[row, i] > key[row, j] and (j <= i or not causal)
            assert one[row, slot] == sees, (row, i, j)
            assert not (i == j and all_layers[row, slot]), "its own token leaks"


@pytest.mark.slow
@pytest.mark.parametrize(("reuse_len", "kept"), [(None, 6), (0, 12), (3, 3)])
def test_memory_is_what_the_layers_read_before(reuse_len, kept, batch, memory):
    model = make(mem_len=MEMORY, reuse_len=reuse_len)
    _, _, carry = loss_and_carry(model, batch, memory)
    old = memory.at[2].set(0.0)  # reset
    states = model.encoder.read(xlnet.permuted(batch), old, want=Want(states=True)).content.states
    for layer in range(TINY.num_layers):
        both = jnp.concatenate([old[:, layer], states[layer, :, :kept]], axis=1)
        np.testing.assert_allclose(carry[:, layer], both[:, -MEMORY:], atol=1e-5)
    assert model.initial_carry(ROWS).shape == carry.shape

    def remembered(model):
        return jnp.square(loss_of(model, batch, memory)[2]).sum()

    assert not any(np.any(g) for g in jax.tree.leaves(jax.jit(jax.grad(remembered))(model)))


@pytest.mark.slow
def test_memory_is_seen_unless_it_is_reset(batch, memory):
    model = make(mem_len=MEMORY, num_layers=1)

    @jax.jit
    def logits(memory):
        return model._predicted(batch, None, memory)[0].logits()

    changed = jnp.any(logits(memory[:, :1]) != logits(-memory[:, :1]), axis=(1, 2))
    np.testing.assert_array_equal(changed, [True, True, False])


@pytest.mark.slow
def test_a_backward_row_is_the_reversed_text_read_forward(batch):
    encoder, tokens = make(clamp_len=3).encoder, batch["encoder_input_tokens"]
    types, ones = batch["encoder_token_type_ids"], jnp.ones(ROWS, bool)
    read = jax.jit(lambda reading: encoder.read(reading).content.last)
    forward = read(Reading(tokens, types, backward=~ones))
    backward = read(Reading(tokens[:, ::-1], types[:, ::-1], backward=ones))
    np.testing.assert_allclose(backward[:, ::-1], forward, atol=1e-5)
    assert jnp.abs(read(Reading(tokens, types, backward=ones)) - forward).max() > 1e-2
    np.testing.assert_allclose(read(Reading(tokens, types)), forward, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
def test_padding_on_the_left_changes_nothing(causal, batch):
    encoder = make(causal=causal).encoder
    counts = batch["encoder_attention_mask"].at[:, :4].set(0)
    states = jax.jit(lambda batch: encoder.hidden(batch).last)
    padded = states({**batch, "encoder_attention_mask": counts})[:, 4:]
    short = states({name: x[:, 4:] for name, x in batch.items() if name.startswith("encoder")})
    np.testing.assert_allclose(padded, short, atol=1e-5)


@pytest.mark.slow
def test_same_length_sees_as_many_positions_as_there_is_memory(batch, memory):
    encoder = make(causal=True, same_length=True, num_layers=1).encoder
    reading = Reading(batch["encoder_input_tokens"])
    streams = encoder.read(reading, memory[:, :1], want=Want(attention=True))
    seen = streams.content.attention[0] > 0
    assert seen.shape == (ROWS, TINY.num_heads, LENGTH, MEMORY + LENGTH)
    np.testing.assert_array_equal(seen.sum(axis=-1), MEMORY + 1)


def test_states_and_attention_of_both_streams_are_returned(batch):
    def read(model):
        return model.encoder.read(xlnet.permuted(batch), want=ALL)

    streams = jax.eval_shape(read, make())
    for stream, length in ((streams.content, LENGTH), (streams.query, 3)):
        assert stream.last.shape == (ROWS, length, 16)
        assert stream.states.shape == (3, ROWS, length, 16)
        assert stream.attention.shape == (2, ROWS, 4, length, LENGTH)
    assert streams.memory is None


def test_layers_may_share_the_biases_of_queries():
    def size(untie_r):
        config = dataclasses.replace(TINY, untie_r=untie_r)
        model = nnx.eval_shape(lambda: xlnet.XLNet(config, rngs=nnx.Rngs(0)))
        return sum(leaf.size for leaf in jax.tree.leaves(nnx.state(model)))

    assert size(True) - size(False) == 3 * TINY.d_model * (TINY.num_layers - 1)


def test_flops_count_what_is_seen(batch):
    counts = batch["encoder_attention_mask"].at[0, 10:].set(0).at[2].set(0)
    weights = batch["masked_loss_weights"].at[2].set(0)
    batch |= {"encoder_attention_mask": counts, "masked_loss_weights": weights}
    query, key = (np.asarray(batch[f"permutation_{end}_order"]) for end in ("query", "key"))
    content = (query[:, :, None] > key[:, None]) | np.eye(LENGTH, dtype=bool)
    pairs = 0
    for row, length in enumerate((10, 12)):
        pairs += content[row, :length, :length].sum() + length * MEMORY
        for i in TARGETS[row][TARGETS[row] > 0]:
            pairs += (query[row, i] > key[row, :length]).sum() + MEMORY
    square, tokens, targets = 16 * 16, 22, 5
    layer = (2 * square + 2 * 16 * 32) * (tokens + targets) + 2 * square * (tokens + 2 * MEMORY)
    layer += 2 * square * (2 * LENGTH + MEMORY) + 3 * 16 * pairs
    products = 2 * layer + targets * 16 * VOCAB
    model = make(mem_len=MEMORY)
    np.testing.assert_allclose(jax.jit(model.flops)(batch), 6 * products, rtol=1e-6)


def trained(model, batch, carry, steps):
    graph, params = nnx.split(model, nnx.Param)
    params, optimizer = nnx.to_pure_dict(params), optax.adam(3e-3)

    @jax.jit
    def step(params, state, carry, key):
        def loss(params):
            value, _, new = loss_of(nnx.merge(graph, params), batch, carry, key)
            return value, new

        (value, carry), grads = jax.value_and_grad(loss, has_aux=True)(params)
        updates, state = optimizer.update(grads, state)
        return optax.apply_updates(params, updates), state, carry, value

    state, losses = optimizer.init(params), []
    for i in range(steps):
        params, state, carry, value = step(params, state, carry, jax.random.key(i))
        losses.append(float(value))
    return losses


@pytest.mark.slow
def test_training_with_dropout_and_memory_lowers_the_loss(batch):
    model = make(mem_len=MEMORY, dropout_rate=0.1, attention_dropout_rate=0.1, untie_r=False)
    losses = trained(model, batch, model.initial_carry(ROWS), 40)
    assert np.mean(losses[-5:]) < 0.5 * losses[0]


@pytest.mark.slow
def test_fine_tuning_learns_classes_from_the_last_token(batch):
    def head(d_model, **more):
        return SequenceHead(d_model, 3, pool=last_that_counts, activation=jnp.tanh, **more)

    model = FineTuned(lambda rngs: xlnet.Encoder(TINY, rngs=rngs), head, rngs=nnx.Rngs(0))
    losses = trained(model, {**batch, "labels": jnp.array([2, 0, 1])}, (), 40)
    assert losses[-1] < 0.2 * losses[0]


@pytest.mark.slow
def test_answers_are_learned_and_parts_of_a_batch_add_up(batch):
    batch |= {
        "start_positions": jnp.array([2, -1, 7]),
        "end_positions": jnp.array([4, -1, 7]),
        "is_impossible": jnp.array([0.0, 0.0, 1.0]),
        "answer_mask": jnp.ones((ROWS, LENGTH), jnp.int32).at[:, 0].set(0),
    }
    model = Answering(lambda rngs: xlnet.Encoder(TINY, rngs=rngs), rngs=nnx.Rngs(0))
    weights = model.weights(batch)
    assert (weights["spans"], weights["answerable"]) == (4, 2)
    loss = jax.jit(lambda batch: model.loss(batch, None, (), weights))
    whole, metrics, _ = loss(batch)
    assert metrics["spans_loss"][1] == 4
    parts = [loss({name: x[i : i + 1] for name, x in batch.items()})[0] for i in range(ROWS)]
    np.testing.assert_allclose(sum(parts), whole, rtol=1e-6)
    assert parts[1] == 0  # a row to leave out
    answers = jax.jit(model.answers)(batch)
    assert answers.starts.shape == (ROWS, 5)
    assert answers.ends.shape == (ROWS, 5, 5)
    assert jnp.all(answers.starts > 0)
    assert jnp.all(answers.ends > 0)
    losses = trained(model, batch, (), 40)
    assert losses[-1] < 0.2 * losses[0]


def test_same_length_is_of_a_causal_model():
    with pytest.raises(ValueError, match=r"same_length=True needs causal=True"):
        dataclasses.replace(TINY, same_length=True)
