"""How the state of an optimizer is split over a mesh: as the parameters that it belongs to."""

from __future__ import annotations

from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from t5x_like.core.partitioning import Layout


def optimizer_shardings(
    layout: Layout, opt_state: Any, *, params: Any, shardings: Any, stacked: Any
) -> Any:
    """Shardings of an optimizer's state: `.../mu/stack/wi` is laid out as parameter `stack/wi`.

    Adafactor's row or column of a parameter loses the entry of the dimension that it averages over;
    anything unrecognised (counts) is replicated. Without explicit shardings the zeros that
    `jit(tx.init)` makes land on one device.

    Args:
      layout: gives the mesh.
      opt_state: abstract optimizer state.
      params: abstract parameters, a plain dict.
      shardings: those of the parameters, same tree.
      stacked: how many leading dimensions of each parameter are stacked layers, same tree.
    """
    known = {
        path: (leaf.shape, tuple(sharding.spec), depth)
        for (path, leaf), sharding, depth in zip(
            jax.tree_util.tree_leaves_with_path(params),
            jax.tree.leaves(shardings),
            jax.tree.leaves(stacked),
            strict=True,
        )
    }

    def one(path: tuple, leaf: jax.ShapeDtypeStruct) -> NamedSharding:
        suffix = next((path[i:] for i in range(len(path)) if path[i:] in known), None)
        if suffix is None:
            return layout.replicated
        shape, spec, depth = known[suffix]
        spec = spec + (None,) * (len(shape) - len(spec))
        if leaf.shape == shape:
            return NamedSharding(layout.mesh, PartitionSpec(*spec))
        dropped = [d for d in range(depth, len(shape)) if leaf.shape == shape[:d] + shape[d + 1 :]]
        if not dropped:
            return layout.replicated
        # In a square matrix both are possible: rows average over the last dimension.
        d = dropped[0] if "v_col" in jax.tree_util.keystr(path) else dropped[-1]
        return NamedSharding(layout.mesh, PartitionSpec(*spec[:d], *spec[d + 1 :]))

    return jax.tree_util.tree_map_with_path(one, opt_state)
