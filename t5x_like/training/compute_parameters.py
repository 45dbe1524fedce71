"""Parameters in the form that a step computes with: in their compute dtype, and gathered.

Between steps they are float32 and split over more axes (`Layout.stored`). Casting comes first, so
that half of the bytes are gathered.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.experimental.layout import Layout as MemoryLayout
from jax.experimental.layout import with_layout_constraint

from t5x_like.core.parameters import map_variables
from t5x_like.core.partitioning import Layout, map_parameters

_LANES = 128
_BY_ROWS, _BY_COLUMNS = MemoryLayout((0, 1)), MemoryLayout((1, 0))


@dataclasses.dataclass(frozen=True)
class ComputeParameters:
    """Turns stored parameters into those of a step, and gradients back.

    Attributes:
      dtypes: the dtype that a step computes with, of each parameter; a plain dict.
      stored: the shardings between steps, same tree.
      gathered: the shardings within a step, same tree. Stacked parameters stay as they are stored:
        the stack gathers its layers one by one.
      narrow: whether parts of a matrix have few columns, which TPUs lay out by columns, same tree.
        The gradient of the whole would take that layout too, and all that it is summed from be
        copied to it.
    """

    dtypes: Any
    stored: Any
    gathered: Any
    narrow: Any

    @classmethod
    def of(cls, params: nnx.State, layout: Layout) -> ComputeParameters:
        """For abstract parameters; `basic.param` says each one's dtype."""

        def is_narrow(axes: Sequence[str | None], shape: Sequence[int]) -> bool:
            if layout.platform != "tpu" or len(shape) != 2 or len(axes) != 2:
                return False
            between = layout.stored(axes, shape)
            columns = between.shard_shape(tuple(shape))[1]
            return between != layout.sharding(axes, shape) and columns < _LANES <= shape[1]

        return cls(
            dtypes=_compute_dtypes(params),
            stored=map_parameters(layout.stored, params),
            gathered=map_parameters(
                lambda axes, shape: (layout.stored if len(shape) > len(axes) else layout.sharding)(
                    axes, shape
                ),
                params,
            ),
            narrow=map_parameters(is_narrow, params),
        )

    def gather(self, params: Any) -> Any:
        """The parameters of a step; leaves that are None stay None."""

        def one(x: jax.Array | None, dtype: Any, stored: Any, gathered: Any) -> jax.Array | None:
            if x is None:
                return None
            x = x.astype(dtype)
            if stored != gathered:
                # The first keeps XLA from gathering before it casts.
                x = jax.lax.with_sharding_constraint(x, stored)
            return jax.lax.with_sharding_constraint(x, gathered)

        return _map(one, params, self.dtypes, self.stored, self.gathered)

    def scatter(self, grads: Any) -> Any:
        """Gradients of a step's parameters, summed over the mesh, as the optimizer reads them."""

        def one(g: jax.Array | None, stored: Any, gathered: Any, narrow: bool) -> jax.Array | None:
            if g is None:
                return None
            if not narrow:
                return jax.lax.with_sharding_constraint(g, stored).astype(jnp.float32)
            g = jax.lax.with_sharding_constraint(g, gathered)
            g = with_layout_constraint(g, _BY_ROWS)
            g = jax.lax.with_sharding_constraint(g, stored).astype(jnp.float32)
            return with_layout_constraint(g, _BY_COLUMNS)

        return _map(one, grads, self.stored, self.gathered, self.narrow)


def largest_gradient(layout: Layout, params: nnx.State) -> float:
    """The bytes of the largest gradient that devices have whole, float32, before they get parts.

    0 where parameters are not split by FSDP.
    """
    axes = layout.mesh_axes("embed")
    whole = layout.without(axes, of="embed")

    def size(names: Sequence[str | None], shape: Sequence[int]) -> float:
        layer_shape = tuple(shape[len(shape) - len(names) :])
        if layout.spec(names, layer_shape) == whole.spec(names, layer_shape):
            return 0.0
        return 4.0 * math.prod(whole.sharding(names, layer_shape).shard_shape(layer_shape))

    return max(jax.tree.leaves(map_parameters(size, params)))


def narrowest_dtype(params: nnx.State) -> str:
    """The dtype of a model's computation: the narrowest that its parameters are used in."""
    dtypes = map(jnp.dtype, jax.tree.leaves(_compute_dtypes(params)))
    return min(dtypes, key=lambda dtype: dtype.itemsize).name


def _compute_dtypes(params: nnx.State) -> Any:
    return map_variables(
        lambda variable: variable.get_metadata().get("compute_dtype", variable.dtype), params
    )


def _map(fn: Any, tree: Any, *trees: Any) -> Any:
    return jax.tree.map(fn, tree, *trees, is_leaf=lambda leaf: leaf is None)
