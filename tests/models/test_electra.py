import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tiny_models import maker, trained

from t5x_like.models import bert, electra

TINY = electra.Config(
    vocab_size=50,
    d_model=16,
    d_ff=32,
    num_heads=4,
    num_layers=2,
    d_embedding=8,
    max_positions=12,
    generator_width=0.5,
    dropout_rate=0.0,
    attention_dropout_rate=0.0,
)
EQUAL_SIZE = {"generator_width": 1.0}
REPLACE_MLM = {"discriminator": bert.Bert, "discriminator_weight": 1.0}
ALL_TOKENS = {"discriminator": electra.AllTokens, "discriminator_weight": 1.0}


make = maker(electra.Electra, TINY)


@pytest.fixture
def batch(encoder_batch):
    """A batch with a position that two slots share."""
    positions = encoder_batch["masked_positions"].at[2].set(jnp.array([3, 1, 3]))
    targets = encoder_batch["masked_targets"].at[2].set(jnp.array([20, 30, 20]))
    return {**encoder_batch, "masked_positions": positions, "masked_targets": targets}


@jax.jit
def run(model, batch, key=None):
    return model.loss(batch, key, (), model.weights(batch))[:2]


loss_and_grads = jax.jit(jax.value_and_grad(lambda *args: run(*args)[0]))
predictions = jax.jit(lambda model, batch: model.predictions(batch))
replaced = jax.jit(lambda model, *args: model.replaced(*args))


def read_by_discriminator(model, batch, key=None):
    return replaced(model, batch, predictions(model, batch), key)


def count(module):
    return sum(leaf.size for leaf in jax.tree.leaves(module))


def originals(batch):
    """Row by row, the batch's tokens with the masked ones put back."""
    tokens = np.array(batch["encoder_input_tokens"])
    for row, slot in np.argwhere(batch["masked_loss_weights"] > 0):
        tokens[row, batch["masked_positions"][row, slot]] = batch["masked_targets"][row, slot]
    return tokens


@pytest.mark.slow
def test_the_loss_is_the_generators_plus_50_times_the_discriminators(batch):
    model = make()
    loss, metrics = run(model, batch)
    log_p = np.asarray(jax.nn.log_softmax(predictions(model, batch)), np.float64)
    rows, slots = np.nonzero(batch["masked_loss_weights"])
    generator = -log_p[rows, slots, batch["masked_targets"][rows, slots]]
    found = read_by_discriminator(model, batch)
    tokens = np.asarray(found["encoder_input_tokens"])
    np.testing.assert_array_equal(found["encoder_original_tokens"], originals(batch))
    is_replaced = tokens != originals(batch)
    positions = np.asarray(batch["masked_positions"])[rows, slots]
    at_slots = np.zeros_like(is_replaced)
    at_slots[rows, positions] = True
    assert 0 < is_replaced.sum() <= at_slots.sum() == 6
    assert not np.any(is_replaced & ~at_slots)
    logits = np.asarray(model.discriminator.logits(found), np.float64)
    nll = np.log1p(np.exp(np.where(is_replaced, -logits, logits)))
    counts = np.asarray(batch["encoder_attention_mask"]) > 0
    np.testing.assert_allclose(loss, generator.mean() + 50 * nll[counts].mean(), rtol=1e-5)
    suspected = (logits > 0) & counts
    sums = {
        "generator_loss": (generator.sum(), 7),
        "discriminator_loss": (nll[counts].sum(), 30),
        "discriminator_accuracy": ((suspected == is_replaced)[counts].sum(), 30),
        "replaced_precision": ((suspected & is_replaced).sum(), suspected.sum()),
        "replaced_recall": ((suspected & is_replaced).sum(), is_replaced.sum()),
        "tokens": (30, 1),
        "generator_pseudo_perplexity": (generator.sum(), 7),
        "loss": ([generator.sum(), 50 * nll[counts].sum()], [7, 30]),
    }
    for name, pair in sums.items():
        np.testing.assert_allclose(metrics[name], pair, rtol=1e-5, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [{}, REPLACE_MLM, ALL_TOKENS],
    ids=["electra", "replace_mlm", "all_tokens"],
)
def test_microbatches_with_unequal_masks_add_up(changes, batch, assert_microbatches_add_up):
    # Cold enough that the likeliest token is the sample, whatever the key.
    assert_microbatches_add_up(make(**changes, temperature=1e-6), batch)


@pytest.mark.slow
def test_without_a_key_samples_are_those_of_the_row_wherever_it_is(batch):
    model = make()
    found = read_by_discriminator(model, batch)["encoder_input_tokens"]
    turned = jax.tree.map(lambda x: x[::-1], batch)
    np.testing.assert_array_equal(
        read_by_discriminator(model, turned)["encoder_input_tokens"][::-1], found
    )
    one, other = (
        read_by_discriminator(model, batch, jax.random.key(i))["encoder_input_tokens"]
        for i in (0, 1)
    )
    assert (one != other).any()


@pytest.mark.slow
def test_a_generator_that_knows_replaces_nothing_and_one_that_may_not_always_does(batch):
    targets = batch["masked_targets"][..., None] == jnp.arange(50)
    knows = jnp.where(targets, 50.0, 0.0)
    found = replaced(make(), batch, knows)
    np.testing.assert_array_equal(found["encoder_input_tokens"], originals(batch))
    found = replaced(make(exclude_original=True), batch, knows)
    differs = found["encoder_input_tokens"] != originals(batch)
    np.testing.assert_array_equal(differs.sum(axis=1), [1, 2, 2, 1, 0])


@pytest.mark.slow
@pytest.mark.parametrize("sharing", ["none", "all"])
def test_each_half_teaches_the_other_what_they_share_alone(sharing, batch):
    @jax.jit
    def gradients(model):
        def sums(model):
            return {name: term.sum for name, term in model.terms(batch, None, ())[0].items()}

        _, pull = jax.vjp(sums, model)
        zeros = {"generator": 0.0, "discriminator": 0.0}
        return [pull({**zeros, name: 1.0})[0] for name in zeros]

    def learns(tree):
        return [np.any(x != 0) for x in jax.tree.leaves(tree)]

    of_generator, of_discriminator = gradients(make(sharing=sharing, **EQUAL_SIZE))
    assert not any(learns(of_discriminator.generator))
    assert all(learns(of_generator.generator))
    assert not any(learns(of_generator.discriminator.head))
    body = learns(of_generator.discriminator.encoder)
    assert all(body) if sharing == "all" else not any(body)


SIZES = {"words": 50 * 8, "others": (12 + 2) * 8 + 2 * 8}


def test_what_is_shared_is_stored_once():
    model = make(sharing="none", d_embedding=None, **EQUAL_SIZE)
    assert count(model.generator.encoder) == count(model.discriminator.encoder)
    apart = make(sharing="tokens", **EQUAL_SIZE)
    trunk = count(apart.discriminator.encoder.trunk)
    assert count(apart.generator.encoder) == SIZES["others"] + trunk
    assert count(make(**EQUAL_SIZE).generator.encoder) == trunk
    tied = make(sharing="all", **EQUAL_SIZE)
    assert count(tied.generator) == count(tied.generator.mlm)


def test_a_generator_apart_has_embeddings_as_wide_as_itself():
    config = dataclasses.replace(TINY, sharing="none", generator_depth=0.5).of_generator
    assert (config.width, config.d_model, config.num_heads, config.d_ff) == (8, 8, 2, 16)
    assert config.num_layers == 1
    wide = dataclasses.replace(TINY, d_embedding=None)
    assert wide.of_generator.width == 16
    assert dataclasses.replace(wide, sharing="none").of_generator.width == 8


@pytest.mark.slow
@pytest.mark.parametrize("sharing", ["none", "tokens", "embeddings", "all"])
def test_the_halves_are_models_of_their_own(sharing, batch):
    model = make(sharing=sharing, **EQUAL_SIZE)
    generator = model.whole_generator()
    graph, state = nnx.split(generator)
    config = model.config.of_generator
    alone = nnx.eval_shape(lambda: electra.Generator(config, rngs=nnx.Rngs(0)))
    assert graph == nnx.graphdef(alone)
    generator = nnx.merge(graph, nnx.to_pure_dict(state))
    logits = generator.logits(batch)
    rows, slots = np.nonzero(batch["masked_loss_weights"])
    at_slots = logits[rows, batch["masked_positions"][rows, slots]]
    np.testing.assert_allclose(predictions(model, batch)[rows, slots], at_slots, atol=1e-5)
    loss, metrics = run(generator, batch)
    np.testing.assert_allclose(loss, np.divide(*run(model, batch)[1]["generator_loss"]), rtol=1e-5)
    found = read_by_discriminator(model, batch)
    loss, metrics = run(model.discriminator, found)
    np.testing.assert_allclose(metrics["loss"], run(model, batch)[1]["discriminator_loss"])


@pytest.mark.slow
def test_the_discriminator_is_scored_where_the_batch_says(batch):
    model = make()
    weights = jnp.zeros((5, 12)).at[1, 1].set(1).at[2, 3].set(1)
    _, metrics = run(model, {**batch, "discriminator_loss_weights": weights})
    logits = model.discriminator.logits(read_by_discriminator(model, batch))
    tokens = read_by_discriminator(model, batch)["encoder_input_tokens"]
    labels = tokens != originals(batch)
    want = sum(
        np.log1p(np.exp(-logits[at] if labels[at] else logits[at])) for at in [(1, 1), (2, 3)]
    )
    np.testing.assert_allclose(metrics["discriminator_loss"], (want, 2), rtol=1e-5)


@pytest.mark.slow
def test_replace_mlm_predicts_the_masked_tokens_from_a_text_with_samples(batch):
    model = make(**REPLACE_MLM)
    loss, metrics = run(model, batch)
    found = read_by_discriminator(model, batch)
    alone = run(model.discriminator, found)[0]
    np.testing.assert_allclose(np.divide(*metrics["mlm_loss"]), alone, rtol=1e-5)
    assert metrics["mlm_loss"][1] == 7
    generator = np.divide(*metrics["generator_loss"])
    np.testing.assert_allclose(loss, generator + alone, rtol=1e-5)


@pytest.mark.slow
def test_all_tokens_predicts_or_copies_every_token(batch):
    model = make(**ALL_TOKENS)
    _, metrics = run(model, batch)
    found = read_by_discriminator(model, batch)
    second = model.discriminator
    p = np.asarray(jax.nn.softmax(second.logits(found)), np.float64)
    gate = second.gate(second.encoder.hidden(found).last)
    copy = np.asarray(jax.nn.sigmoid(gate), np.float64)
    p = copy * (np.arange(50) == found["encoder_input_tokens"][..., None]) + (1 - copy) * p
    of_targets = np.take_along_axis(p, originals(batch)[..., None], axis=-1)[..., 0]
    counts = np.asarray(batch["encoder_attention_mask"]) > 0
    np.testing.assert_allclose(metrics["mlm_loss"], (-np.log(of_targets)[counts].sum(), 30), 1e-5)
    right = (p.argmax(-1) == originals(batch))[counts].sum()
    np.testing.assert_allclose(metrics["mlm_accuracy"], (right, 30))


@pytest.mark.slow
def test_a_uniform_generator_has_no_parameters_and_draws_all_tokens(batch):
    model = make(uniform_generator=True)
    assert count(model) == count(model.discriminator)
    loss, metrics = run(model, batch)
    np.testing.assert_allclose(loss, 50 * np.divide(*metrics["discriminator_loss"]), rtol=1e-6)
    np.testing.assert_allclose(np.divide(*metrics["loss"]), loss, rtol=1e-6)
    many = jax.tree.map(lambda x: jnp.tile(x, (400, *[1] * (x.ndim - 1))), batch)
    many["encoder_input_tokens"] += jnp.arange(2000)[:, None]
    samples = replaced(model, many, predictions(model, many))["encoder_input_tokens"][::5, 5]
    assert set(np.asarray(samples).tolist()) == set(range(50))


@pytest.mark.slow
def test_padding_and_its_slots_change_nothing(batch):
    model = make(temperature=1e-6)
    padding = batch["encoder_attention_mask"] == 0
    slots = batch["masked_loss_weights"] == 0
    changed = {
        **batch,
        "encoder_input_tokens": jnp.where(padding, 49, batch["encoder_input_tokens"]),
        "masked_positions": jnp.where(slots, 2, batch["masked_positions"]),
        "masked_targets": jnp.where(slots, 48, batch["masked_targets"]),
    }
    np.testing.assert_allclose(run(model, changed)[0], run(model, batch)[0], rtol=1e-6)
    nothing = jax.tree.map(jnp.zeros_like, batch)
    loss, grads = loss_and_grads(model, nothing)
    assert loss == 0
    assert all(np.all(x == 0) for x in jax.tree.leaves(grads))


@pytest.mark.slow
def test_dropout_falls_in_both_halves(batch):
    model = make(dropout_rate=0.2, attention_dropout_rate=0.1)
    np.testing.assert_array_equal(run(model, batch)[0], run(make(), batch)[0])
    one, other = (run(model, batch, jax.random.key(i))[1] for i in (0, 1))
    for name in ("generator_loss", "discriminator_loss"):
        assert one[name][0] != other[name][0]


def test_flops_count_both_halves_without_padding_and_empty_slots():
    weights = np.array([[1, 1, 0]])
    batch = {
        "encoder_attention_mask": jnp.array([[1] * 5 + [0] * 2]),
        "masked_loss_weights": jnp.array(weights),
    }

    def encoder(d, f):
        return 5 * 8 * d + 2 * (5 * (4 * d * d + 2 * d * f) + 2 * d * 25)

    generator = encoder(8, 16) + 2 * (8 * 8 + 8 * 50)
    discriminator = encoder(16, 32) + 5 * (16 * 16 + 16)
    model = make()
    # A generator as wide as its embeddings needs no projection.
    assert model.flops(batch) == 6 * (generator - 5 * 8 * 8 + discriminator)
    everywhere = encoder(16, 32) + 5 * (16 * 8 + 8 * 50 + 16)
    model = make(**ALL_TOKENS)
    assert model.flops(batch) == 6 * (generator - 5 * 8 * 8 + everywhere)


@pytest.mark.slow
def test_a_few_steps_lower_the_loss_of_both_halves(batch):
    _, metrics = trained(make(), batch, steps=150, rate=3e-3, key=jax.random.key(0))
    for name, factor in (("generator_loss", 0.4), ("discriminator_loss", 0.5)):
        losses = np.divide(*metrics[name])
        assert losses[-10:].mean() < factor * losses[:10].mean()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sharing": "words"}, "sharing must be one of none, tokens, embeddings, all, got 'words'"),
        (
            {"sharing": "all"},
            'sharing="all" needs generator_width=1 and generator_depth=1, got 0.5',
        ),
        ({"temperature": 0.0}, "temperature must be above 0, got 0.0"),
    ],
)
def test_impossible_configurations_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        make(**changes)
