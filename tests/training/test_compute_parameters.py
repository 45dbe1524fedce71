"""Gradients on their way back to stored parameters."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from t5x_like.core.partitioning import Layout, make_layout
from t5x_like.training.compute_parameters import ComputeParameters

SHAPES = {
    "table": (301, 256),  # 301 rows do not divide: 32 columns on each of 8 devices
    "matrix": (512, 256),
    "vector": (256,),
}


def _parameters() -> nnx.State:
    names = {2: ("vocab", "embed"), 1: ("embed",)}
    return nnx.State(
        {
            name: nnx.Param(
                jax.ShapeDtypeStruct(shape, jnp.float32),
                axes=names[len(shape)],
                compute_dtype=jnp.bfloat16,
            )
            for name, shape in SHAPES.items()
        }
    )


def test_narrow_parts_are_known_on_tpus_and_change_no_gradient(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layout = make_layout({"data": 8}, devices=jax.devices()[:8])
    assert not any(ComputeParameters.of(_parameters(), layout).narrow.values())
    monkeypatch.setattr(Layout, "platform", property(lambda self: "tpu"))
    compute = ComputeParameters.of(_parameters(), layout)
    assert compute.narrow == {"table": True, "matrix": False, "vector": False}
    draw = np.random.default_rng(0)
    given = {name: draw.normal(size=shape).astype(jnp.bfloat16) for name, shape in SHAPES.items()}
    got = jax.jit(compute.scatter)(given)
    for name, want in given.items():
        assert got[name].dtype == jnp.float32
        assert got[name].sharding.is_equivalent_to(compute.stored[name], want.ndim)
        np.testing.assert_array_equal(got[name], want.astype(np.float32))


def test_with_fsdp_parts_stay_as_a_step_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Layout, "platform", property(lambda self: "tpu"))
    layout = make_layout({"fsdp": 8}, devices=jax.devices()[:8])
    compute = ComputeParameters.of(_parameters(), layout)
    assert not any(compute.narrow.values())
    assert compute.stored == compute.gathered
