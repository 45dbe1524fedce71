"""Frozen parameters, which nothing changes and which have no state; patterns without a match."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import tiny_model as tiny

from t5x_like.training.checkpointing import checkpoints
from t5x_like.training.optimization import freezing, optimizers
from t5x_like.training.optimization.parameter_paths import by_path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "microbatches"), [("adamw", 1), ("adafactor", 4), ("lamb", 4)], ids=str
)
def test_frozen_parameters_stay_bit_for_bit_and_the_others_do_not_notice(
    kind: str, microbatches: int
) -> None:
    """Neither decay nor the average moves them; their gradients are in no norm."""
    where = tiny.layout(data=2)
    options = {
        "gradient_clip": 0.01,
        "ema_decay": 0.9,
        "microbatches": microbatches,
        "dropout": 0.0,
    }
    optimizer = getattr(optimizers, kind)(0.1)
    program = tiny.build(optimizer, where, frozen=["w[io]$"], **options)
    first = jax.device_get(program.init(jax.random.key(0)))
    state, metrics = program.step(
        program.init(jax.random.key(0)), tiny.batch(where, 0), jax.random.key(1)
    )
    for name in ("wi", "wo"):
        np.testing.assert_array_equal(state.params[name], first.params[name])
        np.testing.assert_array_equal(state.ema[name], first.params[name])
    assert np.abs(state.params["scale"] - first.params["scale"]).max() > 1e-4
    assert not any("w" in name.split(".")[-1] for name in by_path(program.abstract_state.opt_state))
    whole = tiny.build(optimizer, where, **options)
    all_norm = whole.step(whole.init(jax.random.key(0)), tiny.batch(where, 0), jax.random.key(1))
    assert 0 < float(metrics["grad_norm"][0]) < 0.9 * float(all_norm[1]["grad_norm"][0])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["adafactor", "lamb"])
def test_frozen_layers_stay_bit_for_bit(kind: str) -> None:
    """As whole parameters do, whatever the decay is; the last layer trains as it does alone."""
    where = tiny.layout(data=2)
    program = tiny.build(getattr(optimizers, kind)(0.1), where, frozen=["w@0-1"], ema_decay=0.9)
    first = jax.device_get(program.init(jax.random.key(0)))
    state, _ = tiny.run(program, where, 2)
    for name in ("wi", "wo"):
        for now in (state.params[name], state.ema[name]):
            np.testing.assert_array_equal(now[:2], first.params[name][:2])
            assert np.abs(now[2] - first.params[name][2]).max() > 1e-4
    assert np.abs(state.params["scale"] - first.params["scale"]).max() > 1e-4


@pytest.mark.slow
def test_a_run_with_frozen_parts_resumes_bit_for_bit(tmp_path: Path) -> None:
    where = tiny.layout(data=2, tensor=2)
    program = tiny.build(optimizers.lamb(0.1), where, frozen=["wi"], ema_decay=0.9, layer_decay=0.5)
    state, _ = tiny.run(program, where, 2)
    store = checkpoints.Checkpoints(tmp_path)
    store.save(2, state, metadata={})
    store.wait()
    restored = store.restore_latest(lambda _: program.abstract_state).state
    tiny.assert_same(restored, state)
    for leaf, want in zip(
        jax.tree.leaves(restored), jax.tree.leaves(program.abstract_state), strict=True
    ):
        assert leaf.sharding.is_equivalent_to(want.sharding, leaf.ndim)
    want = tiny.run(program, where, 2, state=state)[1]
    assert tiny.run(program, where, 2, state=restored)[1] == want


def test_patterns_are_searched_in_dotted_paths() -> None:
    tree = {
        "encoder": {"embedding": {"table": 1}, "layers": {"mlp": {"wi": 2}}},
        "head": {"bias": 3},
    }
    mask = freezing.trainable_mask(tree, [r"encoder.embedding", r"^head\."])
    assert [name for name, kept in by_path(mask).items() if kept] == ["encoder.layers.mlp.wi"]
    assert freezing.merge(*freezing.split(tree, mask)) == tree
    assert all(jax.tree.leaves(freezing.trainable_mask(tree, ())))


@pytest.mark.parametrize(
    ("frozen", "message"),
    [
        (["encoder.embeddings"], r"'encoder.embeddings' in its path; nearest: encoder.embedding"),
        (["zzzz"], "it has encoder, head"),
        (["head", "encoder"], "nothing is left to train"),
        (["(head"], "not a regular expression"),
        ("head", "list of patterns"),
        (["encoder@1-2"], "freezes layers 1 to 2 of encoder.embedding.table, but none of them is"),
        (["head@0-7"], "freezes layers 0 to 7 of head.bias, but the last layer is 3; layers are"),
    ],
)
def test_patterns_that_cannot_be_meant_are_refused(frozen: Any, message: str) -> None:
    tree = {"encoder": {"embedding": {"table": 1}}, "head": {"bias": 3}}
    with pytest.raises(ValueError, match=message):
        freezing.trainable_mask(tree, frozen, {"head.bias": np.arange(4)})
