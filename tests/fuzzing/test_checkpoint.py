"""A step of a run: metadata, metrics, checksums, Orbax's own files and arrays."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from mutations import of_bytes, of_json, one_of

from t5x_like.training.checkpointing.checkpoints import Checkpoints

METADATA = {"seed": 0, "config": "A = 1", "data": {"position": 3, "files": ["a", "b"]}}


def params():
    return {"a": {"b": np.arange(40, dtype=np.float32)}, "c": np.ones((3, 4), np.float32)}


def make(folder):
    checkpoints = Checkpoints(folder / "run")
    checkpoints.save_params(7, params(), metadata=METADATA)
    checkpoints.close()


def read(folder):
    import jax

    one = jax.sharding.SingleDeviceSharding(jax.devices("cpu")[0])
    shapes = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=one), params()
    )
    checkpoints = Checkpoints(folder)
    try:
        checkpoints.metadata()
        checkpoints.abstract_params()
        found = checkpoints.open_params(shapes)
        for leaf in jax.tree.leaves(found.state):
            np.asarray(leaf)
        checkpoints.restore_params(shapes)
        checkpoints.prepare()
    finally:
        checkpoints.close()


def damage(draw, files):
    name = draw(st.sampled_from(sorted(files)))
    is_json = files[name].lstrip()[:1] in (b"{", b"[")
    damaged = one_of(draw, files, of_json if is_json and draw(st.booleans()) else of_bytes, [name])
    if draw(st.booleans()):
        # Whoever wrote the files, or an accident before the checksums were there.
        damaged = {name: one for name, one in damaged.items() if "checksums." not in name}
    return damaged


def test_damaged_steps(fuzz):
    fuzz(__file__, damage)
