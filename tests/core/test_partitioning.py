"""Meshes, specs, batches over devices, layouts of optimizer state."""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import AxisType, PartitionSpec

from t5x_like.core import global_batches, partitioning
from t5x_like.core.partitioning import make_layout

MESHES = ({"data": 8}, {"data": 4, "tensor": 2}, {"data": 2, "fsdp": 2, "tensor": 2})


def test_mesh_axes_are_auto_and_in_the_canonical_order() -> None:
    layout = make_layout({"tensor": 2, "data": -1})
    assert dict(layout.mesh.shape) == {"data": 4, "tensor": 2}
    assert set(layout.mesh.axis_types) == {AxisType.Auto}


@pytest.mark.parametrize(
    ("mesh", "message"),
    [
        ({"dat": 8}, "nearest: data"),
        ({"data": 3}, "does not fit 8 device"),
        ({"data": -1, "tensor": 3}, "does not fit 8 device"),
        ({"data": -1, "fsdp": -1}, "does not fit 8 device"),
        ({"data": 0}, "has size 0"),
    ],
)
def test_a_wrong_mesh_is_refused(mesh: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_layout(mesh)


def test_rules_replace_single_defaults() -> None:
    layout = make_layout({"data": 4, "tensor": 2}, {"embed": ["data", "tensor"]})
    assert layout.spec(("embed", "mlp"), (8, 8)) == PartitionSpec(("data", "tensor"), None)
    with pytest.raises(ValueError, match="names mesh axis 'model'"):
        make_layout({"data": 8}, {"embed": "model"})


def test_specs_are_right_aligned_and_split_only_what_divides() -> None:
    layout = make_layout({"data": 2, "fsdp": 2, "tensor": 2})
    assert layout.spec(("embed", "mlp"), (3, 4, 6)) == PartitionSpec(None, "fsdp", "tensor")
    assert layout.spec(("embed", "mlp"), (4, 5)) == PartitionSpec("fsdp", None)
    assert layout.spec(("mlp", "heads"), (4, 4)) == PartitionSpec("tensor", None)
    assert layout.spec(("batch", None), (2, 7)) == PartitionSpec("data", None)
    assert layout.spec(("batch", None), (8, 7)) == PartitionSpec(("data", "fsdp"), None)
    assert layout.batch_shards == 4
    with pytest.raises(KeyError, match="nearest: embed"):
        layout.spec(("embde",), (4,))


@settings(max_examples=50, deadline=None)
@given(
    mesh=st.sampled_from(MESHES),
    dimensions=st.lists(
        st.tuples(st.sampled_from(sorted(partitioning.DEFAULT_RULES)), st.integers(1, 16)),
        max_size=4,
    ),
)
def test_a_spec_divides_evenly_and_uses_a_mesh_axis_once(
    mesh: dict[str, int], dimensions: list[tuple[str, int]]
) -> None:
    layout = make_layout(mesh)
    spec = layout.spec([name for name, _ in dimensions], [size for _, size in dimensions])
    used = []
    for (_, size), entry in zip(dimensions, spec, strict=True):
        axes = (entry,) if isinstance(entry, str) else entry or ()
        assert size % math.prod(mesh[axis] for axis in axes) == 0
        used += axes
    assert len(used) == len(set(used))


def test_constrain_pins_inside_a_layout_and_does_nothing_outside() -> None:
    x = jnp.zeros((8, 4))
    assert partitioning.constrain(x, "batch", "no such name") is x
    with make_layout({"data": 4, "tensor": 2}).active():
        pinned = jax.jit(lambda x: partitioning.constrain(x, "batch", "mlp"))(x)
        assert pinned.sharding.spec == PartitionSpec("data", "tensor")
        with pytest.raises(ValueError, match="1 axis names"):
            partitioning.constrain(x, "batch")
    assert partitioning.constrain(x, "batch", "mlp") is x


@pytest.mark.parametrize("mesh", MESHES, ids=str)
def test_rows_reach_the_devices_unchanged(mesh: dict[str, int]) -> None:
    layout = make_layout(mesh)
    rows = global_batches.process_rows(layout, 16)
    np.testing.assert_array_equal(rows, np.arange(16))
    local = {"ids": np.arange(48, dtype=np.int32).reshape(16, 3), "w": np.ones(16, np.float32)}
    batch = global_batches.to_global(layout, local, rows=rows, batch_size=16)
    for name, x in local.items():
        np.testing.assert_array_equal(np.asarray(batch[name]), x)
        shards = {shard.data.shape[0] for shard in batch[name].addressable_shards}
        assert shards == {16 // layout.batch_shards}
    with pytest.raises(ValueError, match="Feature 'ids' has shape"):
        global_batches.to_global(layout, {"ids": local["ids"][:8]}, rows=rows, batch_size=16)


def test_a_batch_that_does_not_split_is_refused() -> None:
    layout = make_layout({"data": 4, "tensor": 2})
    global_batches.check_batch(layout, 24, microbatches=2)
    with pytest.raises(ValueError, match=r"multiple of 8 .* Nearest: 16 or 24"):
        global_batches.check_batch(layout, 20, microbatches=2)
    with pytest.raises(ValueError, match="Nearest: 4"):
        global_batches.check_batch(layout, 3)


def test_a_parameter_without_axes_is_named() -> None:
    state = nnx.state({"kernel": nnx.Param(jnp.zeros((2, 2)))})
    with pytest.raises(ValueError, match=r"kernel.* has axes None"):
        partitioning.map_parameters(lambda axes, shape: axes, state)


@dataclasses.dataclass(frozen=True)
class FakeDevice:
    id: int
    slice_index: int
    process_index: int = 0
    platform: str = "cpu"
    device_kind: str = "cpu"


def test_only_replicas_cross_slices() -> None:
    devices = [FakeDevice(i, slice_index=i // 4) for i in range(8)]
    grid = partitioning._device_grid({"replica": 2, "fsdp": 2, "tensor": 2}, devices)
    assert grid.shape == (2, 2, 2)
    assert [{device.slice_index for device in replica.flat} for replica in grid] == [{0}, {1}]
    with pytest.raises(ValueError, match="`replica` a multiple of 2, not 1"):
        partitioning._device_grid({"data": 8}, devices)


@pytest.mark.parametrize(
    ("mesh", "slices", "sizes", "parts"),
    [
        ({"data": -1}, 1, {"replica": 4, "data": 16}, {768: 16, 1024: 64, 776: 1}),
        ({"data": -1}, 4, {"replica": 4, "data": 16}, {768: 16, 1024: 16}),
        ({"data": 64}, 1, {"data": 64}, {768: 64, 1024: 64}),
        ({"data": -1, "tensor": 4}, 1, {"data": 16, "tensor": 4}, {768: 16}),
        ({"replica": 2, "data": -1}, 1, {"replica": 2, "data": 32}, {768: 32}),
    ],
)
def test_on_tpus_parts_of_parameters_fill_a_tile(
    mesh: dict[str, int],
    slices: int,
    sizes: dict[str, int],
    parts: dict[int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        partitioning, "_device_grid", lambda sizes, all: np.reshape(all, [*sizes.values()])
    )
    devices = [FakeDevice(i, slice_index=i * slices // 64, platform="tpu") for i in range(64)]
    layout = make_layout(mesh, devices=devices)
    assert dict(layout.mesh.shape) == sizes
    assert layout.batch_shards == 64 // sizes.get("tensor", 1)
    for rows, expected in parts.items():
        spec = layout.stored((None, None), (rows, 1001)).spec
        axes = () if not spec or spec[0] is None else partitioning._names(spec[0])
        assert math.prod(sizes[axis] for axis in axes) == expected
