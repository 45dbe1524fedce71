"""Checkpoints in buckets: exact, whole or absent, damaged ones set aside."""

from __future__ import annotations

import functools

import jax
import numpy as np
import pytest
import tiny_model as tiny

from t5x_like.core.buckets import storage
from t5x_like.training import step
from t5x_like.training.checkpointing import checksums
from t5x_like.training.checkpointing.checkpoints import Checkpoints
from t5x_like.training.optimization import optimizers, schedules

pytestmark = pytest.mark.slow


@functools.cache
def program() -> step.Program:
    tx = optimizers.adafactor(schedules.rsqrt(), min_dim_size_to_factor=4)
    return tiny.build(tx, tiny.layout(data=4, tensor=2))


def test_the_newest_whole_step_is_restored_and_damage_set_aside(bucket: str) -> None:
    directory = f"{bucket}/run/checkpoints"
    where, state, states = tiny.layout(data=4, tensor=2), program().init(jax.random.key(0)), {}
    checkpoints = Checkpoints(directory)
    for n in (1, 2, 3):
        state, _ = tiny.run(program(), where, 1, state=state)
        checkpoints.save(n, state, metadata={"position": n})
        checkpoints.wait()
        states[n] = jax.tree.map(np.asarray, state.params)
    checkpoints.close()
    assert checksums.verify(storage.path(f"{directory}/3")) == []

    weights = max(
        (info["size"], name)
        for name, info in storage.files_below(f"{directory}/3").items()
        if name.startswith("params/")
    )[1]
    content = bytearray(storage.read(f"{directory}/3/{weights}"))
    content[len(content) // 2] ^= 4
    storage.write(f"{directory}/3/{weights}", bytes(content))
    # A step without Orbax's last file was not saved whole.
    storage.remove(f"{directory}/2/commit_success.txt")

    again = Checkpoints(directory)
    assert again.steps() == [1, 3]
    restored = again.restore_latest(lambda _: program().abstract_state)
    assert restored is not None
    assert (restored.step, restored.metadata["position"]) == (1, 1)
    jax.tree.map(np.testing.assert_array_equal, restored.state.params, states[1])
    assert again.steps() == [1]
    assert any(name.startswith("damaged/3-") for name in storage.files_below(directory))
    state, _ = tiny.run(program(), where, 1, state=restored.state)
    again.prepare()
    again.rank(1, {"a/loss": 1.0}, phase=0)
    again.save(2, state, metadata={"position": 2}, metrics={"a/loss": 2.0})
    again.close()
    assert Checkpoints(directory).saved() == {"steps": [1, 2], "best": 1}
