"""Parameters in the form that a step computes with: in their compute dtype, and gathered.

Between steps they are float32 and split over more axes (`Layout.stored`). Casting comes first, so
that half of the bytes are gathered.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from t5x_like.core.partitioning import Layout, map_parameters


@dataclasses.dataclass(frozen=True)
class ComputeParameters:
    """Turns stored parameters into those of a step, and gradients back.

    Attributes:
      dtypes: the dtype that a step computes with, of each parameter; a plain dict.
      stored: the shardings between steps, same tree.
      gathered: the shardings within a step, same tree. Stacked parameters stay as they are stored:
        the stack gathers its layers one by one.
    """

    dtypes: Any
    stored: Any
    gathered: Any

    @classmethod
    def of(cls, params: nnx.State, layout: Layout) -> ComputeParameters:
        """For abstract parameters; `basic.param` says each one's dtype."""
        return cls(
            dtypes=_compute_dtypes(params),
            stored=map_parameters(layout.stored, params),
            gathered=map_parameters(
                lambda axes, shape: (layout.stored if len(shape) > len(axes) else layout.sharding)(
                    axes, shape
                ),
                params,
            ),
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

        def one(g: jax.Array | None, stored: Any) -> jax.Array | None:
            if g is None:
                return None
            return jax.lax.with_sharding_constraint(g, stored).astype(jnp.float32)

        return _map(one, grads, self.stored)


def _compute_dtypes(params: nnx.State) -> Any:
    return nnx.to_pure_dict(
        jax.tree.map(
            lambda one: one.replace(one.get_metadata().get("compute_dtype", one.dtype)),
            params,
            is_leaf=lambda one: isinstance(one, nnx.Variable),
        )
    )


def _map(fn: Any, tree: Any, *trees: Any) -> Any:
    return jax.tree.map(fn, tree, *trees, is_leaf=lambda leaf: leaf is None)
