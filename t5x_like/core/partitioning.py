"""Device meshes, and the mesh axes that each named dimension of an array is split over.

Models name dimensions ("embed", "mlp"); a `Layout` maps the names to mesh axes; nothing else in the
package knows a mesh axis by name. Axes are Auto: XLA propagates layouts, `constrain` pins them.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from t5x_like.core.devices.chosen import devices as all_devices
from t5x_like.core.spelling import nearest

MeshAxes = str | tuple[str, ...] | None

MESH_AXES = ("replica", "data", "fsdp", "sequence", "tensor")
"""Outermost first, so that `tensor`, which communicates most, gets the nearest devices."""

DEFAULT_RULES: Mapping[str, MeshAxes] = {
    "batch": ("replica", "data", "fsdp"),
    "length": "sequence",
    "layers": None,
    "vocab": "tensor",
    "positions": None,
    "embed": "fsdp",
    "embed_act": None,
    "mlp": "tensor",
    "heads": "tensor",
    "kv": None,
    "joined_kv": "tensor",
    "relpos_buckets": None,
    "stored": "data",
}
"""Of arrays: parameters, activations, batches. `stored` is not a dimension: parameters and
optimizer states are also split over its axes between steps, wherever a dimension allows
(`Layout.stored`)."""

_LEAST_STORED_IN_PARTS = 2**16
"""Elements. Gathering a smaller array costs more than keeping it whole saves."""

_TILE_ROWS = 16
"""Rows of a tile of 16-bit numbers on TPUs. Parts of a matrix with fewer rows are gathered by
all-reduces of mostly zeros. A `data` of size -1 has at most so many chips (`make_layout`)."""

_ACTIVE: contextvars.ContextVar[Layout | None] = contextvars.ContextVar("layout", default=None)


@dataclasses.dataclass(frozen=True)
class Layout:
    """A mesh, and the mesh axes that each logical axis is split over.

    `is_replica`: whether it is that of one of several replicas (`within_replica`). `reserved`: the
    bytes of each device that are taken while a step computes gradients; activations get the rest.
    """

    mesh: Mesh
    rules: Mapping[str, MeshAxes]
    is_replica: bool = False
    reserved: float = 0.0

    def mesh_axes(self, name: str | None) -> tuple[str, ...]:
        """The axes of this mesh that the rule for `name` asks for; `None` is never split.

        Raises:
          KeyError: no rule has this name.
        """
        if name is None:
            return ()
        if name not in self.rules:
            raise KeyError(
                f"No rule for logical axis {name!r}" + nearest(name, self.rules, of="axes")
            )
        rule = self.rules[name]
        wanted = (rule,) if isinstance(rule, str) else (rule or ())
        return tuple(axis for axis in wanted if axis in self.mesh.shape)

    def spec(self, axes: Sequence[str | None], shape: Sequence[int]) -> PartitionSpec:
        """How an array is split. Names are right-aligned; extra leading dimensions are "layers".

        A mesh axis is used once, by the leftmost dimension that asks for it, and only where it
        divides the dimension: JAX up to 0.10 left such a dimension whole, 0.12 raises.
        """
        names = ("layers",) * (len(shape) - len(axes)) + tuple(axes)
        taken: set[str] = set()
        entries: list[MeshAxes] = []
        for name, size in zip(names, shape, strict=True):
            use: list[str] = []
            parts = 1
            for axis in self.mesh_axes(name):
                parts *= self.mesh.shape[axis]
                if axis not in taken and size % parts == 0:
                    use.append(axis)
                else:
                    break
            taken.update(use)
            entries.append(use[0] if len(use) == 1 else (tuple(use) or None))
        return PartitionSpec(*entries)

    def sharding(self, axes: Sequence[str | None], shape: Sequence[int]) -> NamedSharding:
        return NamedSharding(self.mesh, self.spec(axes, shape))

    def stored(self, axes: Sequence[str | None], shape: Sequence[int]) -> NamedSharding:
        """How a parameter is split between steps: as in a step, and over the axes of `stored`.

        Each device then updates its share (ZeRO, Rajbhandari et al., 2020, section 5.1). The first
        dimension that divides is split; "layers" is not, so that each layer's gradient can be
        reduced by itself. On TPUs outer axes are left out where parts would not fill a tile.
        """
        spec = self.spec(axes, shape)
        layers = len(shape) - len(axes)
        taken = {axis for entry in spec for axis in _names(entry)}
        more = tuple(
            axis
            for axis in self.mesh_axes("stored")
            if axis not in taken and self.mesh.shape[axis] > 1
        )
        if math.prod(shape) < _LEAST_STORED_IN_PARTS:
            more = ()
        least = self._parts(more[-1:])
        for d, (entry, size) in enumerate(zip(spec, shape, strict=True)):
            rows = size // self._parts(_names(entry))
            if least > 1 and d >= layers and rows % least == 0:
                split = (*_names(entry), *self._fitting(more, rows))
                split_entry = split[0] if len(split) == 1 else split
                return NamedSharding(
                    self.mesh, PartitionSpec(*spec[:d], split_entry, *spec[d + 1 :])
                )
        return NamedSharding(self.mesh, spec)

    def _fitting(self, axes: tuple[str, ...], rows: int) -> tuple[str, ...]:
        """The most of the inner axes over which so many rows divide, into whole tiles on TPUs."""
        least = _TILE_ROWS if self.platform == "tpu" else 1
        for n in range(len(axes) - 1):
            parts = self._parts(axes[n:])
            if rows % parts == 0 and rows // parts >= least:
                return axes[n:]
        return axes[-1:]

    @property
    def replicated(self) -> NamedSharding:
        return NamedSharding(self.mesh, PartitionSpec())

    def rows(self, shape: Sequence[int]) -> NamedSharding:
        """The sharding of an array whose first dimension is the batch, the others whole."""
        return self.sharding(("batch",) + (None,) * (len(shape) - 1), shape)

    @property
    def batch_shards(self) -> int:
        """The number of parts that the batch is split into."""
        return self._parts(self.mesh_axes("batch"))

    @property
    def replicas(self) -> tuple[str, ...]:
        """The axes that split the batch and no parameter: over them, gradients are summed."""
        others = {
            axis
            for name in self.rules
            if name not in ("batch", "stored")
            for axis in self.mesh_axes(name)
        }
        return tuple(
            axis
            for axis in self.mesh_axes("batch")
            if axis not in others and self.mesh.shape[axis] > 1
        )

    @property
    def num_replicas(self) -> int:
        return self._parts(self.replicas)

    def within_replica(self) -> Layout:
        """The layout of one of the `replicas`: its batch is not split over them."""
        replica = self.without(self.replicas, of="batch")
        return dataclasses.replace(replica, rules={**replica.rules, "stored": ()}, is_replica=True)

    def splitting(self, name: str, size: int) -> tuple[str, ...]:
        """The mesh axes of more than one device that split a dimension of this name and size."""
        return tuple(
            axis for axis in _names(self.spec((name,), (size,))[0]) if self.mesh.shape[axis] > 1
        )

    def without(self, axes: Sequence[str], *, of: str) -> Layout:
        """This layout, in which the dimension `of` is not split over these mesh axes."""
        rest = tuple(axis for axis in self.mesh_axes(of) if axis not in axes)
        return dataclasses.replace(self, rules={**self.rules, of: rest})

    @property
    def platform(self) -> str:
        """The kind of its devices, such as "tpu"; they need not be of this machine."""
        return str(self.mesh.devices.flat[0].platform)

    def _parts(self, axes: Iterable[str]) -> int:
        return math.prod(self.mesh.shape[axis] for axis in axes)

    @contextlib.contextmanager
    def active(self) -> Iterator[Layout]:
        """Makes `constrain` use this layout in whatever is traced inside."""
        token = _ACTIVE.set(self)
        try:
            yield self
        finally:
            _ACTIVE.reset(token)


def make_layout(
    mesh: Mapping[str, int],
    rules: Mapping[str, MeshAxes] | None = None,
    *,
    devices: Sequence[jax.Device] | None = None,
) -> Layout:
    """A layout over a mesh such as `{"data": 4, "tensor": 2}`; a size of -1 takes the rest.

    Args:
      mesh: size of each mesh axis, named as in `MESH_AXES`, in any order. Without `replica`, this
        axis runs between slices if there are several, and on TPUs takes what a `data` of size -1
        has above 16: parameters are then stored in parts that fill a tile.
      rules: logical axis -> mesh axes, replacing single entries of `DEFAULT_RULES`.
      devices: those of `core.devices.chosen` by default.

    Raises:
      ValueError: a name is unknown, or the sizes do not multiply to the number of devices.
    """
    devices = list(all_devices() if devices is None else devices)
    slices = len({getattr(device, "slice_index", 0) for device in devices})
    asked = mesh or {"data": -1}
    mesh = {"replica": slices, **asked} if slices > 1 and "replica" not in asked else asked
    sizes = _mesh_sizes(mesh, len(devices))
    merged = {**DEFAULT_RULES, **{k: _as_axes(v) for k, v in (rules or {}).items()}}
    if asked.get("data", -1) == -1 and "replica" not in asked and devices[0].platform == "tpu":
        sizes = _in_two_parts(sizes)
        if slices == 1 and "stored" not in (rules or {}):
            merged["stored"] = ("replica", "data")
    for name, rule in merged.items():
        for axis in (rule,) if isinstance(rule, str) else (rule or ()):
            if axis not in MESH_AXES:
                raise ValueError(
                    f"Rule {name!r} -> {rule!r} names mesh axis {axis!r}. "
                    f"{nearest(axis, MESH_AXES, of='axes')}"
                )
    grid = _device_grid(sizes, devices)
    return Layout(Mesh(grid, tuple(sizes), axis_types=(AxisType.Auto,) * len(sizes)), merged)


def active_layout() -> Layout | None:
    """The layout that is active where this is traced."""
    return _ACTIVE.get()


def active_device() -> jax.Device:
    """One of those that what is traced will run on; they are alike."""
    layout = _ACTIVE.get()
    return jax.devices()[0] if layout is None else layout.mesh.devices.flat[0]


def active_platform() -> str:
    """The kind of these devices: `cpu`, `gpu` or `tpu`."""
    layout = _ACTIVE.get()
    return jax.default_backend() if layout is None else layout.platform


def constrain(x: jax.Array, *axes: str | None) -> jax.Array:
    """Pins the layout of an activation, one name a dimension. Does nothing outside a layout."""
    layout = _ACTIVE.get()
    if layout is None:
        return x
    if len(axes) != x.ndim:
        raise ValueError(f"{len(axes)} axis names {axes} for an array of shape {x.shape}.")
    return jax.lax.with_sharding_constraint(x, layout.sharding(axes, x.shape))


def gathered(x: jax.Array, axes: Sequence[str | None]) -> jax.Array:
    """A parameter as a step computes with it; its gradient is laid out as the optimizer reads it.

    So XLA gathers it where it is used and reduces its gradient where this arises, and each device
    gets its share (`Layout.stored`). Does nothing outside a layout.
    """
    layout = _ACTIVE.get()
    if layout is None:
        return x
    return _gathered(x, layout.sharding(axes, x.shape), layout.stored(axes, x.shape))


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def _gathered(x: jax.Array, whole: NamedSharding, stored: NamedSharding) -> jax.Array:
    return jax.lax.with_sharding_constraint(x, whole)


def _gathered_backward(
    whole: NamedSharding, stored: NamedSharding, _: None, g: jax.Array
) -> tuple[jax.Array]:
    g = jax.lax.with_sharding_constraint(g, stored)
    fsdp = whole == stored and not stored.is_fully_replicated
    if fsdp and stored.mesh.devices.flat[0].platform == "tpu":
        # Else XLA has the gradients of all layers whole before it takes a device's part of each.
        g = jax.lax.optimization_barrier(g)
    return (g,)


_gathered.defvjp(lambda x, whole, stored: (_gathered(x, whole, stored), None), _gathered_backward)


def device_bytes(tree: Any) -> int:
    """The bytes of abstract arrays, which have shardings, on each device."""
    return sum(
        math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
        for leaf in jax.tree.leaves(tree)
    )


def map_parameters(fn: Callable[[tuple, tuple], Any], params: nnx.State) -> dict[str, Any]:
    """A plain dict of `fn(axes, shape)` for each parameter of a (possibly abstract) state.

    Raises:
      ValueError: a parameter was made without the metadata `axes`.
    """

    def one(path: tuple, variable: nnx.Variable) -> nnx.Variable:
        axes = variable.get_metadata().get("axes")
        if axes is None or len(axes) > len(variable.shape):
            raise ValueError(
                f"Parameter {jax.tree_util.keystr(path)} of shape {variable.shape} has axes "
                f"{axes}: make it with nnx.Param(value, axes=(...)), one name a dimension."
            )
        return variable.replace(fn(tuple(axes), tuple(variable.shape)))

    is_variable = lambda v: isinstance(v, nnx.Variable)  # noqa: E731
    return nnx.to_pure_dict(jax.tree_util.tree_map_with_path(one, params, is_leaf=is_variable))


def _mesh_sizes(mesh: Mapping[str, int], num_devices: int) -> dict[str, int]:
    """Sizes in the order of `MESH_AXES`, with -1 filled in."""
    for name, size in mesh.items():
        if name not in MESH_AXES:
            raise ValueError(f"Unknown mesh axis {name!r}" + nearest(name, MESH_AXES, of="axes"))
        if size != -1 and size < 1:
            raise ValueError(f"Mesh axis {name!r} has size {size}: give 1 or more, or -1 once.")
    sizes = {name: mesh[name] for name in MESH_AXES if name in mesh}
    free = [name for name, size in sizes.items() if size == -1]
    fixed = math.prod(size for size in sizes.values() if size != -1)
    if len(free) == 1 and num_devices % fixed == 0:
        sizes[free[0]] = num_devices // fixed
    if math.prod(sizes.values()) != num_devices or -1 in sizes.values():
        raise ValueError(
            f"Mesh {dict(mesh)} does not fit {num_devices} device(s): the sizes must multiply to "
            f"{num_devices}. Change a size, or give one of them as -1 to take the rest."
        )
    return sizes


def _in_two_parts(sizes: Mapping[str, int]) -> dict[str, int]:
    """The sizes, where `replica` has what `data` has above the rows of a tile."""
    more, rest = divmod(sizes.get("data", 1), _TILE_ROWS)
    if more <= 1 or rest:
        return dict(sizes)
    two = {**sizes, "replica": sizes.get("replica", 1) * more, "data": _TILE_ROWS}
    return {name: two[name] for name in MESH_AXES if name in two}


def _device_grid(sizes: Mapping[str, int], devices: Sequence[jax.Device]) -> np.ndarray:
    """The devices in the mesh's shape; between slices only `replica`, the outermost axis, runs."""
    shape = tuple(sizes.values())
    slices = len({getattr(device, "slice_index", 0) for device in devices})
    if slices == 1:
        return mesh_utils.create_device_mesh(shape, devices, allow_split_physical_axes=True)
    if sizes.get("replica", 1) % slices:
        raise ValueError(
            f"The devices form {slices} slices and only `replica` may run between them: "
            f"give `replica` a multiple of {slices}, not {sizes.get('replica', 1)}."
        )
    across = tuple(slices if name == "replica" else 1 for name in sizes)
    within = tuple(size // n for size, n in zip(shape, across, strict=True))
    return mesh_utils.create_hybrid_device_mesh(within, across, devices)


def _names(entry: MeshAxes) -> tuple[str, ...]:
    """The axes of an entry of a `PartitionSpec`."""
    return (entry,) if isinstance(entry, str) else tuple(entry or ())


def _as_axes(rule: Any) -> MeshAxes:
    """Turns a rule that gin wrote as a list into a tuple."""
    return tuple(rule) if isinstance(rule, list) else rule
