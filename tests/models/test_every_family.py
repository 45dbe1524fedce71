"""Facts about every pretrained model: microbatches, meshes, ways to run the layers."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from tiny_families import FAMILIES, ROWS

from t5x_like.core.abilities import CountsFlops, can
from t5x_like.core.global_batches import process_rows, to_global
from t5x_like.core.partitioning import make_layout
from t5x_like.core.protocols.members import lacking
from t5x_like.core.protocols.model import Model
from t5x_like.evaluation.evaluator import evaluate
from t5x_like.layers.adapters import lora
from t5x_like.training import step
from t5x_like.training.compute_parameters import narrowest_dtype

pytestmark = pytest.mark.slow

ONE = make_layout({"data": 1}, devices=jax.devices()[:1])
MESH = make_layout({"data": 4, "tensor": 2})


def losses(family, layout, *, start=None, steps=3, microbatches=1, **changes):
    """Losses of a few steps from `start` or the family's own state, and the last state."""
    program = built(family, layout, microbatches=microbatches, **changes)
    if start is None:
        state = program.init(jax.random.key(0))
    else:
        places = jax.tree.map(lambda leaf: leaf.sharding, program.abstract_state)
        state = jax.device_put(start, places)
    found = []
    for i in range(steps):
        rows = process_rows(layout, ROWS)
        batch = family.batch(np.random.default_rng(i))
        arrays = to_global(layout, batch, rows=rows, batch_size=ROWS)
        state, metrics = program.step(state, arrays, jax.random.key(1))
        value, weight = metrics["loss"]
        found.append(float((value / weight).sum()))
    return np.array(found), jax.device_get(state)


def built(family, layout, *, microbatches=1, **changes):
    return step.build(
        family.make(**changes),
        optax.sgd(0.05),
        layout,
        step.StepOptions(batch_size=ROWS, microbatches=microbatches),
    )


@functools.cache
def fresh(name):
    return jax.device_get(built(FAMILIES[name], ONE).init(jax.random.key(0)))


@functools.cache
def alone(name):
    return losses(FAMILIES[name], ONE, start=fresh(name))


def same(state, other, atol=2e-6):
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=atol),
        (state.params, state.carry),
        (other.params, other.carry),
    )


# Each microbatch would draw its own samples: test_electra.py takes the likeliest ones.
SAMPLING = ("electra", "electra_all_tokens", "deberta_v3")

# Of families with the same kind of layers, one is tested: an encoder, one whose layers share,
# two streams, an encoder-decoder, a decoder.
KINDS_OF_LAYERS = ("bert", "albert", "xlnet", "t5", "gpt")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in KINDS_OF_LAYERS else [pytest.mark.matrix])
        for name in FAMILIES
        if name not in SAMPLING
    ],
)
def test_four_microbatches_are_one_batch(name):
    """That the terms of each family add up is what `test_four_batches_evaluate_as_one` says."""
    found, state = losses(FAMILIES[name], ONE, start=fresh(name), microbatches=4)
    np.testing.assert_allclose(found, alone(name)[0], rtol=2e-6)
    same(state, alone(name)[1])


OF_OTHERS_LAYERS = (
    *("roberta", "spanbert", "distilbert", "electra_all_tokens", "neobert", "led", "prefix_lm"),
    *("gpt_two_heads", "bert_decoder", "modernbert_decoder", "bart_decoder", "canine_s"),
)
"""Families whose layers are those of another: what is sharded is the same."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.matrix] if name in OF_OTHERS_LAYERS else [])
        for name in FAMILIES
    ],
)
def test_eight_devices_train_as_one(name):
    found, state = losses(FAMILIES[name], MESH)
    np.testing.assert_allclose(found, alone(name)[0], rtol=2e-5)
    assert found[-1] != found[0]
    same(state, alone(name)[1], atol=2e-5)


@pytest.mark.parametrize("name", KINDS_OF_LAYERS)
def test_unrolled_and_computed_again_is_the_same(name):
    """Dropout is on; its keys differ by layer."""
    rates = {"dropout_rate": 0.1} | ({} if name == "t5" else {"attention_dropout_rate": 0.1})
    changes = {"scan_unroll": 0, "remat": jax.checkpoint_policies.nothing_saveable}
    run = functools.partial(losses, FAMILIES[name], ONE, start=fresh(name), steps=2, **rates)
    (want, wanted), (found, state) = run(), run(**changes)
    np.testing.assert_allclose(found, want, rtol=2e-5)
    same(state, wanted, atol=2e-5)


@pytest.mark.parametrize("name", KINDS_OF_LAYERS)
def test_each_low_rank_matrix_has_a_key_for_its_dropout(name, monkeypatch):
    """Without dropout of the model itself; only traced."""
    family, keys = FAMILIES[name], []
    monkeypatch.setattr(lora, "dropout", lambda x, key, rate: keys.append((key, rate)) or x)
    model = lora.adapt(family.make()(rngs=nnx.Rngs(0)), rngs=nnx.Rngs(1), lora_dropout=0.1)
    batch = family.batch(np.random.default_rng(0))
    carry = model.initial_carry(ROWS)
    for key in (None, jax.random.key(0)):
        keys.clear()
        jax.eval_shape(lambda key=key: model.loss(batch, key, carry, model.weights(batch))[0])
        assert keys
        assert {(of is None, rate) for of, rate in keys} == {(key is None, 0.1)}


@pytest.mark.parametrize("name", FAMILIES)
def test_four_batches_evaluate_as_one(name):
    family = FAMILIES[name]
    graph, params = nnx.split(family.make()(rngs=nnx.Rngs(0)))
    batch = family.batch(np.random.default_rng(0))
    batch["reset_memory"] = np.ones(ROWS, np.int32)

    @jax.jit
    def evaluated(params, batch):
        model = nnx.merge(graph, params)
        carry = model.initial_carry(len(batch["reset_memory"]))
        scalar, metrics, _ = model.loss(batch, None, carry, model.weights(batch))
        return metrics | {"scalar": (scalar, jnp.float32(1))}

    parts = [{key: x[i : i + ROWS // 4] for key, x in batch.items()} for i in range(0, ROWS, 4)]
    whole, found = evaluate(evaluated, params, [batch]), evaluate(evaluated, params, parts)
    assert whole["loss"] == pytest.approx(whole.pop("scalar") - whole.get("z_loss", 0.0), rel=1e-5)
    for metric in whole.keys() - {"tokens", "flops"}:
        assert found[metric] == pytest.approx(whole[metric], rel=1e-5), metric


HEAD_MASKS = {
    "bert": {"encoder_head_mask": "attention"},
    "xlnet": {"encoder_head_mask": "attention"},
    "gpt": {"decoder_head_mask": "attention"},
    "t5": {
        "encoder_head_mask": "attention",
        "decoder_head_mask": "self_attention",
        "cross_head_mask": "cross_attention",
    },
}
"""{family: {feature of a batch: the attention whose heads it multiplies}}."""


@pytest.mark.parametrize("name", HEAD_MASKS)
def test_a_head_that_is_masked_gives_nothing(name):
    """As if its rows of the output matrix were 0, in one layer; each row has its own mask."""
    family = FAMILIES[name]
    graph, params = nnx.split(family.make()(rngs=nnx.Rngs(0)))
    params = jax.tree.map(lambda x: 3 * x, params)  # so that heads weigh more
    config = nnx.merge(graph, params).config
    batch = family.batch(np.random.default_rng(0))

    @jax.jit
    def loss(params, batch):
        model = nnx.merge(graph, params)
        return model.loss(batch, None, model.initial_carry(ROWS), model.weights(batch))[0]

    layers = {
        "attention": getattr(config, "num_layers", getattr(config, "num_encoder_layers", None)),
        **dict.fromkeys(("self_attention", "cross_attention"), 2),
    }
    for feature, attention in HEAD_MASKS[name].items():
        masks = {
            other: np.ones((ROWS, layers[HEAD_MASKS[name][other]], config.num_heads), np.float32)
            for other in HEAD_MASKS[name]
        }

        def without(path, leaf, attention=attention):
            if f"['{attention}']['out']['kernel']" not in jax.tree_util.keystr(path):
                return leaf
            return leaf.at[1, : config.d_kv].set(0)

        pure = jax.tree_util.tree_map_with_path(without, nnx.to_pure_dict(params))
        cut = jax.tree.map(lambda x: x, params)
        nnx.replace_by_pure_dict(cut, pure)
        want = loss(cut, batch | masks)
        masks[feature][:, 1, 0] = 0
        assert float(loss(params, batch | masks)) == pytest.approx(float(want), rel=1e-6)
        assert float(want) != pytest.approx(float(loss(params, batch)), rel=1e-5)


@pytest.mark.parametrize("name", KINDS_OF_LAYERS)
def test_bfloat16_is_close(name):
    found, _ = losses(FAMILIES[name], ONE, start=in_bfloat16(name), steps=1, dtype="bfloat16")
    np.testing.assert_allclose(found, alone(name)[0][:1], rtol=0.03)


def in_bfloat16(name):
    """Parameters are the same; what is carried has the type of the activations."""
    carry = jax.tree.map(lambda x: x.astype(jnp.bfloat16), fresh(name).carry)
    return dataclasses.replace(fresh(name), carry=carry)


@pytest.mark.parametrize("name", FAMILIES)
def test_in_bfloat16_parameters_and_metrics_stay_float32(name):
    """The loss is traced, not run: types that do not fit are found all the same."""
    program = built(FAMILIES[name], ONE, dtype="bfloat16")
    batch = FAMILIES[name].batch(np.random.default_rng(0))
    state, metrics = jax.eval_shape(program.step, program.abstract_state, batch, jax.random.key(1))
    assert {leaf.dtype for leaf in jax.tree.leaves(state.params)} == {np.dtype("float32")}
    assert {leaf.dtype for leaf in jax.tree.leaves(metrics)} == {np.dtype("float32")}
    assert {leaf.dtype for leaf in jax.tree.leaves(state.carry)} <= {np.dtype(jnp.bfloat16)}

    def last(params, batch):
        model = nnx.merge(program.graphdef, params)
        whole = hasattr(model, "hidden")
        reader = model if whole else getattr(model, "encoder", None) or model.body
        return reader.hidden(batch).last

    if name == "gpt_two_heads":
        batch = {part: x[:, 0] for part, x in batch.items() if x.ndim > 1}
    batch = jax.tree.map(jnp.asarray, batch)
    assert jax.eval_shape(last, state.params, batch).dtype == jnp.bfloat16


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_a_run_says_of_a_model_holds(dtype):
    """Its dtype is read from its parameters, and plans ask it for its operations."""
    for family in FAMILIES.values():
        model = nnx.eval_shape(lambda family=family: family.make(dtype=dtype)(rngs=nnx.Rngs(0)))
        assert narrowest_dtype(nnx.state(model, nnx.Param)) == dtype
        assert can(model, CountsFlops)
        assert not lacking(model, Model)
