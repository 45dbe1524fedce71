"""The parameters of a model and their sharding on a mesh; nothing is allocated."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
from flax import nnx
from jax.sharding import AbstractMesh

from t5x_like.config import gin_config
from t5x_like.core.partitioning import DEFAULT_RULES, MESH_AXES, Layout, make_layout, map_parameters
from t5x_like.training.optimization.parameter_paths import path_name


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One parameter; `axes` has a name, or None, for each dimension of `shape`."""

    path: str
    shape: tuple[int, ...]
    axes: tuple[str | None, ...]
    dtype: Any

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.count * self.dtype.itemsize

    @property
    def module(self) -> str:
        """The part of the model that holds it."""
        return self.path.partition(".")[0]


def abstract_parameters(make_model: Callable[..., Any]) -> list[Parameter]:
    """The parameters of the model that `make_model(rngs=...)` makes, by module and name.

    Raises:
      ValueError: the configuration of the model is impossible, or a parameter has no axes.
    """
    model = gin_config.call(lambda: nnx.eval_shape(lambda: make_model(rngs=nnx.Rngs(0))))
    _, state = nnx.split(model)
    axes = map_parameters(lambda axes, shape: axes, state)

    def one(path: tuple, leaf: jax.ShapeDtypeStruct, axes: tuple) -> Parameter:
        stacked = ("layers",) * (len(leaf.shape) - len(axes))
        return Parameter(path_name(path), leaf.shape, stacked + axes, leaf.dtype)

    return jax.tree.leaves(jax.tree.map_with_path(one, nnx.to_pure_dict(state), axes))


def layout_without_devices(mesh: Mapping[str, int]) -> Layout:
    """The configured rules on a mesh of these sizes, which has no devices for arrays.

    Raises:
      ValueError: a mesh axis is not one of `MESH_AXES`.
    """
    if unknown := next(iter(mesh.keys() - set(MESH_AXES)), None):
        near = gin_config.nearest(unknown, MESH_AXES, of="axes")
        raise ValueError(f"there is no mesh axis {unknown!r}{near}")
    sizes = {axis: mesh[axis] for axis in MESH_AXES if axis in mesh}
    rules = gin_config.arguments_of(make_layout).get("rules") or {}
    abstract: Any = AbstractMesh(tuple(sizes.values()), tuple(sizes))
    return Layout(abstract, {**DEFAULT_RULES, **rules})


def bytes_per_device(parameters: Iterable[Parameter], layout: Layout) -> int:
    """The bytes of parameters on each device of the layout's mesh."""
    return sum(
        math.prod(layout.sharding(parameter.axes, parameter.shape).shard_shape(parameter.shape))
        * parameter.dtype.itemsize
        for parameter in parameters
    )
