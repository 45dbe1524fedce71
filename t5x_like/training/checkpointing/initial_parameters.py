"""The first parameters of a run, taken from another checkpoint according to a plan."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from t5x_like.core.partitioning import map_parameters
from t5x_like.training.checkpointing.initial_plan import Plan, Shape, Source, Wanted
from t5x_like.training.optimization import layerwise
from t5x_like.training.optimization.parameter_paths import by_path, path_name


def wanted_parameters(model: nnx.Module) -> dict[str, Wanted]:
    """{path: parameter} of an abstract model."""
    state = nnx.state(model, nnx.Param)
    numbers = layerwise.numbers_of(state)
    wanted = by_path(map_parameters(lambda axes, shape: Wanted(shape, axes), state))
    return {
        path: dataclasses.replace(leaf, numbers=numbers.get(path)) for path, leaf in wanted.items()
    }


def laid_out(plan: Plan, saved: Any, params: Any) -> Any:
    """The abstract `saved` parameters with the shardings to restore them with.

    A parameter that is taken whole has its sharding in `params`; others spread over the devices.
    """
    ours = by_path(params)
    targets = {source.path: ours[path] for path, source in plan.sources.items()}
    mesh = next(iter(targets.values())).sharding.mesh

    def one(path: tuple, leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        target = targets.get(path_name(path))
        if target is not None and target.shape == leaf.shape:
            sharding = target.sharding
        else:
            sharding = _spread(leaf.shape, mesh)
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    return jax.tree_util.tree_map_with_path(one, saved)


def summed(saved: Any, added: Mapping[str, str]) -> Any:
    """`saved` parameters with {path: path of what is added to it}, in the first one's sharding."""
    leaves = by_path(saved)

    def one(path: tuple, leaf: jax.Array) -> jax.Array:
        more = added.get(path_name(path))
        if more is None:
            return leaf
        return jax.jit(jnp.add, out_shardings=leaf.sharding)(leaf, leaves[more])

    return jax.tree_util.tree_map_with_path(one, saved)


def take(
    plan: Plan, params: Any, saved: Any, *, means: Mapping[int, Sequence[int]] | None = None
) -> Any:
    """`params` with the values that the plan takes from `saved`; shardings and dtypes are kept.

    Args:
      plan: the plan that was made for both.
      params: the initialised parameters.
      saved: the saved parameters, in the layout of `laid_out`.
      means: {new id: old ids}; in the tables of the vocabulary that are taken, the row of a new id
        is the mean of the old ones' rows. Where the vocabulary is exchanged, all ids are new.
    """
    fresh, arrays = by_path(params), by_path(saved)
    taken = {path: arrays[source.path] for path, source in plan.sources.items()}
    uses = collections.Counter(source.path for source in plan.sources.values())
    tables = {path: axis for path in taken if (axis := plan.wanted[path].vocabulary) is not None}
    changed = {
        path: x
        for path, x in taken.items()
        if uses[plan.sources[path].path] > 1  # each parameter has memory of its own
        or not plan.sources[path].whole
        or (x.shape, x.dtype) != (fresh[path].shape, fresh[path].dtype)
        or (means and path in tables)
    }

    def filled(fresh: dict[str, jax.Array], changed: dict[str, jax.Array]) -> dict[str, jax.Array]:
        filled_arrays = {}
        for path, x in changed.items():
            grown = _grown(x, plan.sources[path])
            filled_arrays[path] = _fill_first_rows(fresh[path], grown, plan.sources[path])
            if means and path in tables:
                filled_arrays[path] = _with_means(filled_arrays[path], tables[path], means, grown)
        return filled_arrays

    old = {path: fresh[path] for path in changed}
    shardings = {path: leaf.sharding for path, leaf in old.items()}
    taken |= jax.jit(filled, out_shardings=shardings)(old, changed)
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: taken.get(path_name(path), leaf), params
    )


def _grown(saved: jax.Array, source: Source) -> jax.Array:
    """The saved layers that are wanted, with their values repeated where tiled."""
    if source.layers is not None:
        saved = saved[np.array(source.layers)]
    for dimension, rows in source.tiled.items():
        saved = jnp.take(saved, rows, axis=dimension)
    return saved


def _fill_first_rows(fresh: jax.Array, saved: jax.Array, source: Source) -> jax.Array:
    """`fresh` with the saved values in its first rows, and in none of the layers to initialise."""
    if source.exchanged:
        return fresh
    filled = jax.lax.dynamic_update_slice(fresh, saved.astype(fresh.dtype), (0,) * fresh.ndim)
    if source.fresh is None:
        return filled
    ones = [1] * (fresh.ndim - source.fresh.ndim)
    return jnp.where(source.fresh.reshape(*source.fresh.shape, *ones), fresh, filled)


def _with_means(
    table: jax.Array, axis: int, means: Mapping[int, Sequence[int]], saved: jax.Array
) -> jax.Array:
    """`table` with means of saved rows along `axis`, in float32, in place of some."""
    sizes = np.array([*map(len, means.values())])
    pieces = np.concatenate([*means.values()])
    old = jnp.moveaxis(saved, axis, 0)[pieces].astype(jnp.float32)
    total = jax.ops.segment_sum(
        old, np.repeat(np.arange(len(sizes)), sizes), len(sizes), indices_are_sorted=True
    )
    mean = total / sizes.reshape(-1, *[1] * (old.ndim - 1))
    new = jnp.moveaxis(table, axis, 0).at[np.array(list(means))].set(mean.astype(table.dtype))
    return jnp.moveaxis(new, 0, axis)


def _spread(shape: Shape, mesh: Mesh) -> NamedSharding:
    """Splits an array over all devices if a dimension allows it, else puts it whole on each."""
    split = [n for n, size in enumerate(shape) if size % mesh.size == 0]
    where = max(split, key=lambda n: shape[n]) if split else None
    entries = [mesh.axis_names if n == where else None for n in range(len(shape))]
    return NamedSharding(mesh, PartitionSpec(*entries))
