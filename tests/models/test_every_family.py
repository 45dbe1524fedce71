"""What holds for every model that is pretrained: microbatches, meshes, ways to run the layers."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from tiny_families import FAMILIES, ROWS

from t5x_like.evaluation.evaluator import evaluate
from t5x_like.partitioning import make_layout, process_rows, to_global
from t5x_like.training import step

pytestmark = pytest.mark.slow

ONE = make_layout({"data": 1}, devices=jax.devices()[:1])
MESH = make_layout({"data": 4, "tensor": 2})


def losses(family, layout, *, steps=3, microbatches=1, **changes):
    """Of a few steps from the same start, and what the last of them ends with."""
    program = step.build(
        family.make(**changes),
        optax.sgd(0.05),
        layout,
        batch_size=ROWS,
        microbatches=microbatches,
    )
    state, found = program.init(jax.random.key(0)), []
    for i in range(steps):
        rows = process_rows(layout, ROWS)
        batch = family.batch(np.random.default_rng(i))
        arrays = to_global(layout, batch, rows=rows, batch_size=ROWS)
        state, metrics = program.step(state, arrays, jax.random.key(1))
        value, weight = metrics["loss"]
        found.append(float((value / weight).sum()))
    return np.array(found), jax.device_get(state)


@functools.cache
def alone(name):
    return losses(FAMILIES[name], ONE)


def same(state, other, atol=2e-6):
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=atol),
        (state.params, state.carry),
        (other.params, other.carry),
    )


# Each microbatch would draw samples of its own: test_electra.py takes the likeliest ones.
SAMPLING = ("electra", "electra_all_tokens")

# Of several families with the same layers, one tells how these are compiled and typed.
SAME_LAYERS = ("electra_all_tokens", "bert_decoder", "bart_decoder")
OWN_LAYERS = [name for name in FAMILIES if name not in SAME_LAYERS]


@pytest.mark.parametrize("name", [name for name in FAMILIES if name not in SAMPLING])
def test_four_microbatches_are_one_batch(name):
    found, state = losses(FAMILIES[name], ONE, microbatches=4)
    np.testing.assert_allclose(found, alone(name)[0], rtol=2e-6)
    same(state, alone(name)[1])


@pytest.mark.parametrize("name", FAMILIES)
def test_eight_devices_train_as_one(name):
    found, state = losses(FAMILIES[name], MESH)
    np.testing.assert_allclose(found, alone(name)[0], rtol=2e-5)
    assert found[-1] != found[0]
    same(state, alone(name)[1], atol=2e-5)


@pytest.mark.parametrize("name", OWN_LAYERS)
def test_unrolled_and_computed_again_is_the_same(name):
    policy = jax.checkpoint_policies.nothing_saveable
    found, state = losses(FAMILIES[name], ONE, scan_unroll=0, remat=policy)
    np.testing.assert_allclose(found, alone(name)[0], rtol=2e-5)
    same(state, alone(name)[1], atol=2e-5)


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


@pytest.mark.parametrize("name", OWN_LAYERS)
def test_bfloat16_is_close_and_parameters_stay_float32(name):
    found, state = losses(FAMILIES[name], ONE, steps=1, dtype="bfloat16")
    np.testing.assert_allclose(found, alone(name)[0][:1], rtol=0.03)
    assert {leaf.dtype for leaf in jax.tree.leaves(state.params)} == {np.dtype("float32")}
