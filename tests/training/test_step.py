"""The compiled step: equal on all meshes and microbatches; donation, clipping, averages."""

from __future__ import annotations

import functools
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiny_model as tiny
from flax import nnx

from t5x_like.core import partitioning
from t5x_like.training import step
from t5x_like.training.optimization import optimizers, schedules

SGD = optax.sgd(0.1)


def adafactor() -> optimizers.Optimizer:
    return optimizers.adafactor(schedules.rsqrt(scale=3.0), min_dim_size_to_factor=4)


@functools.cache
def losses_on_one_device(name: str) -> list[float]:
    where = tiny.layout(data=1)
    return tiny.run(tiny.build(OPTIMIZERS[name](), where, gradient_clip=1.0), where, 3)[1]


OPTIMIZERS = {"adafactor": adafactor, "adamw": lambda: optimizers.adamw(1e-2)}


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize(
    "mesh", [{"data": 8}, {"data": 4, "tensor": 2}, {"data": 2, "fsdp": 2, "tensor": 2}], ids=str
)
def test_the_same_losses_on_every_mesh_with_dropout(
    mesh: dict[str, int], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parameters and optimizer are also split over `data` between steps, however small."""
    monkeypatch.setattr(partitioning, "_LEAST_STORED_IN_PARTS", 1)
    where = tiny.layout(**mesh)
    _, losses = tiny.run(tiny.build(OPTIMIZERS[name](), where, gradient_clip=1.0), where, 3)
    np.testing.assert_allclose(losses, losses_on_one_device(name), rtol=2e-5)
    assert len(set(losses)) == 3


def test_between_steps_each_device_holds_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitioning, "_LEAST_STORED_IN_PARTS", 1)
    where = tiny.layout(data=4)
    program = tiny.build(where=where)
    state = program.init(jax.random.key(0))
    wi = state.params["wi"]
    assert wi.shape == (tiny.LAYERS, tiny.D, tiny.F)
    moments = [leaf for leaf in jax.tree.leaves(state.opt_state) if leaf.shape == wi.shape]
    assert len(moments) == 2
    for leaf in (wi, *moments):
        assert leaf.addressable_shards[0].data.shape == (tiny.LAYERS, tiny.D // 4, tiny.F)


@pytest.mark.parametrize("microbatches", [1, 4])
def test_gradients_are_reduced_once_whatever_the_microbatches(microbatches: int) -> None:
    """No loop of the compiled step has a collective; the tiny model's layers are a loop too."""
    where = tiny.layout(data=4, tensor=1)
    program = tiny.build(where=where, microbatches=microbatches, dropout=0.0)
    text = program.lower({name: x[0] for name, x in tiny.rows(0).items()}).compile().as_text()
    assert "all-reduce(" in text
    assert "while(" in text
    computations = dict(
        re.findall(r"^%?([\w.\-]+) \(.*?\{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL)
    )

    def inside(name: str) -> str:
        body = computations.get(name, "")
        called = re.findall(r"(?:calls|to_apply|body|condition)=%?([\w.\-]+)", body)
        return body + "".join(map(inside, called))

    bodies = re.findall(r"body=%?([\w.\-]+)", text)
    reduced = [name for name in bodies if "all-reduce(" in inside(name)]
    # With one batch, each layer's gradient is reduced in the loop of its backward pass.
    assert bool(reduced) == (microbatches == 1)


@pytest.mark.slow
@pytest.mark.parametrize("mesh", [{"data": 1}, {"data": 2, "tensor": 2}], ids=str)
def test_four_microbatches_equal_one(mesh: dict[str, int]) -> None:
    """The two terms have unequal masks, so that averages over microbatches would be wrong."""
    shares = tiny.rows(0)["mask_far"].reshape(-1, 4).sum(0)
    assert len(set(shares)) > 1, "the microbatches must differ in weight"
    where = tiny.layout(**mesh)
    whole, parts = (
        tiny.build(SGD, where, dropout=0.0, microbatches=microbatches) for microbatches in (1, 4)
    )
    state, losses = tiny.run(whole, where, 3)
    split_state, split_losses = tiny.run(parts, where, 3)
    np.testing.assert_allclose(split_losses, losses, rtol=2e-5)
    for a, b in zip(jax.tree.leaves(split_state), jax.tree.leaves(state), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


def test_what_was_looked_at_is_not_traced_again(monkeypatch: pytest.MonkeyPatch) -> None:
    traced, loss = [], tiny.Tiny.loss

    def counted(*args: Any) -> tuple[Any, ...]:
        traced.append(1)
        return loss(*args)

    monkeypatch.setattr(tiny.Tiny, "loss", counted)
    where = tiny.layout(data=2, tensor=2)
    program = tiny.build(SGD, where)
    program.trace({name: x[0] for name, x in tiny.rows(0).items()})
    assert traced == [1]
    tiny.run(program, where, 2)
    assert traced == [1]


def test_metrics_of_microbatches_add_up() -> None:
    where = tiny.layout(data=1)
    results = []
    for microbatches in (1, 4):
        program = tiny.build(SGD, where, dropout=0.0, microbatches=microbatches)
        results.append(
            program.step(program.init(jax.random.key(0)), tiny.batch(where, 0), jax.random.key(1))
        )
    (_, whole), (_, parts) = results
    for name in ("loss", "far"):
        np.testing.assert_allclose(parts[name], whole[name], rtol=2e-5)
    assert float(parts["tokens"][0]) == tiny.rows(0)["mask_near"].sum()


def test_a_row_keeps_its_carry() -> None:
    """Row 3's past changes row 3 alone, with microbatches and shards too."""
    where = tiny.layout(data=2)
    program = tiny.build(optax.sgd(0.0), where, dropout=0.0, microbatches=4)

    def second_carry(change: float) -> np.ndarray:
        first = tiny.rows(0)
        first["x"][3] += change
        state = program.init(jax.random.key(0))
        for rows in (first, tiny.rows(1)):
            state, _ = program.step(state, jax.device_put(rows), jax.random.key(1))
        return np.asarray(state.carry)

    changed = np.abs(second_carry(1.0) - second_carry(0.0)).max(axis=1) > 0
    np.testing.assert_array_equal(np.flatnonzero(changed), [3])
    assert program.abstract_state.carry.sharding.spec[0] == "data"


@pytest.mark.filterwarnings("error")
def test_the_state_is_donated() -> None:
    where = tiny.layout(data=4, tensor=2)
    program = tiny.build(adafactor(), where, ema_decay=0.9)
    before = program.init(jax.random.key(0))
    after, _ = program.step(before, tiny.batch(where, 0), jax.random.key(1))
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(before))
    for leaf, want in zip(
        jax.tree.leaves(after), jax.tree.leaves(program.abstract_state), strict=True
    ):
        assert leaf.sharding.is_equivalent_to(want.sharding, leaf.ndim)
        assert (leaf.shape, leaf.dtype) == (want.shape, want.dtype)


def test_clipping_is_over_all_parameters_together() -> None:
    where = tiny.layout(data=1)
    program = tiny.build(optax.sgd(1.0), where, gradient_clip=0.01)
    state = program.init(jax.random.key(0))
    before = jax.device_get(state.params)
    state, metrics = program.step(state, tiny.batch(where, 0), jax.random.key(1))
    moved = jax.tree.map(np.subtract, jax.device_get(state.params), before)
    assert float(metrics["grad_norm"][0]) > 1
    np.testing.assert_allclose(float(optax.tree.norm(moved)), 0.01, rtol=1e-3)


def test_dropout_follows_key_and_step() -> None:
    where = tiny.layout(data=1)
    program = tiny.build(optax.sgd(0.0), where, dropout=0.5)

    def loss(seed: int, done: int) -> float:
        state = program.init(jax.random.key(0))
        state = step.dataclasses.replace(state, step=jnp.int32(done))
        metrics = program.step(state, tiny.batch(where, 0), jax.random.key(seed))[1]
        return float(metrics["loss"][0])

    assert loss(1, 0) == loss(1, 0)
    assert len({loss(1, 0), loss(1, 1), loss(2, 0)}) == 3


def test_the_average_of_parameters_lags() -> None:
    where = tiny.layout(data=1)
    program = tiny.build(SGD, where, ema_decay=0.75)
    state = program.init(jax.random.key(0))
    want = jax.device_get(state.params)
    for n in range(2):
        state, _ = program.step(state, tiny.batch(where, n), jax.random.key(1))
        want = jax.tree.map(lambda a, p: 0.75 * a + 0.25 * np.asarray(p), want, state.params)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5), state.ema, want)
    assert state.eval_params is state.ema


def test_the_average_of_the_last_steps_is_their_mean() -> None:
    where = tiny.layout(data=1)
    program = tiny.build(SGD, where, average_from=2)
    state = program.init(jax.random.key(0))
    after = []
    for n in range(5):
        state, _ = program.step(state, tiny.batch(where, n), jax.random.key(1))
        after.append(jax.device_get(state.params))
        want = jax.tree.map(lambda *x: np.mean(x, axis=0), *(after[2:] or after[-1:]))
        jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5), state.ema, want)
    assert state.eval_params is state.ema


def test_evaluation_is_deterministic_and_leaves_the_state() -> None:
    where = tiny.layout(data=2)
    program = tiny.build(SGD, where, dropout=0.5)
    state = program.init(jax.random.key(0))
    first, second = (program.evaluation()(state.params, tiny.batch(where, 5)) for _ in range(2))
    assert float(first["loss"][0]) == float(second["loss"][0])
    assert not state.params["wi"].is_deleted()


def test_evaluation_gives_on_what_the_model_carries() -> None:
    where = tiny.layout(data=2)
    program = tiny.build(SGD, where)
    params = program.init(jax.random.key(0)).params
    batch, evaluate = tiny.batch(where, 5), program.evaluation()
    first, second = (float(evaluate(params, batch)["loss"][0]) for _ in range(2))
    _, carry = program.evaluate(params, batch, program.initial_carry())
    assert second == float(program.evaluate(params, batch, carry)[0]["loss"][0]) != first


@pytest.mark.slow
def test_learning_rate_and_parameter_count() -> None:
    where = tiny.layout(data=1)
    program = tiny.build(optimizers.adamw(schedules.constant(1.0, warmup_steps=10)), where)
    assert program.parameter_count == 3 * 2 * 8 * 16 + 8
    state, rates = program.init(jax.random.key(0)), []
    for n in range(3):
        state, metrics = program.step(state, tiny.batch(where, n), jax.random.key(1))
        rates.append(float(metrics["learning_rate"][0]))
    np.testing.assert_allclose(rates, [0, 0.1, 0.2], rtol=1e-6)
    assert "learning_rate" not in tiny.run_metrics(tiny.build(SGD, where), where)


def test_what_cannot_work_is_refused_before_compiling() -> None:
    with pytest.raises(ValueError, match="multiple of 32"):
        tiny.build(SGD, tiny.layout(data=8), microbatches=4)

    class Counting(tiny.Tiny):
        def __init__(self, *, rngs: nnx.Rngs) -> None:
            super().__init__(rngs=rngs)
            self.calls = nnx.Variable(jnp.zeros(()))

    with pytest.raises(ValueError, match="may hold parameters only"):
        step.build(Counting, SGD, tiny.layout(data=1), step.StepOptions(batch_size=16))
    with jax.threefry_partitionable(False), pytest.raises(ValueError, match="threefry"):
        tiny.build(SGD)
