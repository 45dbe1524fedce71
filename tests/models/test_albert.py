import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tiny_models import initialised, logits_of, trained

from t5x_like.core.abilities import ALL
from t5x_like.models import albert
from t5x_like.training.optimization.gradients import gradients

TINY = albert.Config(
    vocab_size=50,
    d_model=16,
    d_ff=32,
    d_embedding=8,
    num_heads=4,
    num_layers=3,
    max_positions=12,
    init_std=0.3,
)


def abstract(config):
    return nnx.eval_shape(lambda: albert.Albert(config, rngs=nnx.Rngs(0)))


def make(**changes):
    return initialised(albert.Albert, dataclasses.replace(TINY, **changes))


def batch_of(rows=4, seed=0):
    """Rows of 12, 9, 6, ... tokens with 1, 2, 3, ... masked ones, and pairs in both orders."""
    rng = np.random.default_rng(seed)
    lengths, masked = 12 - 3 * (np.arange(rows) % 4), 1 + np.arange(rows) % 4
    counts = (np.arange(12) < lengths[:, None]).astype(np.int32)
    batch = {
        "encoder_input_tokens": rng.integers(5, 50, (rows, 12)) * counts,
        "encoder_attention_mask": counts,
        "encoder_token_type_ids": (np.arange(12) >= 2).astype(np.int32) * counts,
        "masked_positions": rng.integers(0, 3, (rows, 4)),
        "masked_targets": rng.integers(5, 50, (rows, 4)),
        "masked_loss_weights": (np.arange(4) < masked[:, None]).astype(np.float32),
        "sentence_order_label": np.arange(rows) % 2,
    }
    return {name: jnp.asarray(x) for name, x in batch.items()}


def count(*modules):
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(modules))


@pytest.mark.parametrize(
    ("width", "sharing", "parameters"),
    [
        (128, "all", 11_683_584),
        (128, "attention", 63_647_232),
        (128, "ffn", 37_686_528),
        (128, "none", 89_650_176),
        (None, "all", 31_114_752),
        (None, "attention", 83_078_400),
        (None, "ffn", 57_117_696),
        (None, "none", 109_081_344),
    ],
)
def test_counts_of_the_table_of_what_is_shared(width, sharing, parameters):
    model = abstract(albert.Config(d_embedding=width, sharing=sharing))  # ALBERT, table 4
    assert count(model.encoder, model.sentence.pooler) == parameters


@pytest.mark.slow
@pytest.mark.parametrize("microbatches", [2, 4])
def test_microbatches_with_unequal_masks_give_the_same_gradients(microbatches):
    graph, params = nnx.split(make())
    batch = batch_of(rows=8)

    def run(n):
        grads, metrics, _ = jax.jit(
            lambda params: gradients(
                graph,
                nnx.to_pure_dict(params),
                batch=batch,
                key=jax.random.key(0),
                carry=(),
                microbatches=n,
            )
        )(params)
        return grads, metrics

    whole, parts = run(1), run(microbatches)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6), parts, whole)
    assert {"loss", "tokens", "flops", "mlm_loss", "sentence_accuracy"} <= set(whole[1])


@pytest.mark.slow
def test_padding_is_not_seen_and_tokens_and_types_are():
    model, batch = make(), batch_of()
    logits = logits_of(model, batch)
    counts = batch["encoder_attention_mask"] > 0
    changed = {**batch, "encoder_input_tokens": batch["encoder_input_tokens"] + (1 - counts)}
    np.testing.assert_array_equal(logits_of(model, changed)[counts], logits[counts])
    for name in ("encoder_input_tokens", "encoder_token_type_ids"):
        changed = {**batch, name: batch[name].at[0, 11].set(0)}
        assert np.abs(logits_of(model, changed)[0, 0] - logits[0, 0]).max() > 1e-4


def test_the_order_of_sentences_is_learned_from_its_own_label():
    model, batch = make(), batch_of()
    swapped = {**batch, "sentence_order_label": 1 - batch["sentence_order_label"]}
    model_loss = jax.jit(lambda batch: model.loss(batch, None, (), model.weights(batch)))
    (one, metrics, _), (other, _, _) = model_loss(batch), model_loss(swapped)
    assert abs(one - other) > 1e-3
    mean = [metrics[name][0] / metrics[name][1] for name in ("mlm_loss", "sentence_loss")]
    np.testing.assert_allclose(one, sum(mean), rtol=1e-6)
    assert "next_sentence_label" not in batch


@pytest.mark.slow
def test_states_and_probabilities_of_every_layer_as_it_runs():
    model, batch = make(sharing="attention", num_groups=2, inner_layers=2), batch_of()
    hidden = functools.partial(model.encoder.hidden, want=ALL)
    hidden = jax.jit(hidden)(batch)
    assert hidden.states.shape == (7, 4, 12, 16)
    assert hidden.attention.shape == (6, 4, 4, 12, 12)
    np.testing.assert_array_equal(hidden.states[-1], hidden.last)
    padding = batch["encoder_attention_mask"][1] == 0
    assert np.all(hidden.attention[:, 1, :, :, padding] == 0)


def test_the_masked_heads_width_is_that_of_the_embeddings():
    model = abstract(TINY)
    assert model.mlm.dense.kernel.shape == (16, 8)
    assert model.encoder.trunk.project.bias.shape == (16,)
    assert abstract(dataclasses.replace(TINY, d_embedding=None)).encoder.trunk.project is None
    mapped = abstract(dataclasses.replace(TINY, d_embedding=16))  # as Hugging Face's of this width
    assert mapped.encoder.trunk.project.kernel.shape == (16, 16)


def test_flops_count_shared_layers_each_time_they_run():
    model, batch = make(), batch_of(rows=1)
    d, f, e, length, masked = 16, 32, 8, 12, 1
    layer = 4 * d * d + 2 * d * f
    forward = length * (e * d + 3 * layer) + 3 * 2 * d * length**2
    forward += masked * (d * e + e * 50) + d * d + 2 * d
    assert model.flops(batch) == 6 * forward


@pytest.mark.slow
def test_one_batch_overfits():
    losses, _ = trained(make(init_std=0.1), batch_of(), steps=60, rate=1e-2)
    assert losses[-1] < losses[0] / 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sharing": "norms"}, "sharing must be one of all, attention, ffn, none"),
        ({"num_groups": 4}, "num_groups must be at most num_layers=3"),
        ({"num_groups": 2, "sharing": "none"}, "num_groups counts groups that share"),
        ({"inner_layers": 0}, "inner_layers must be at least 1"),
    ],
)
def test_impossible_configurations_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(TINY, **changes)
