"""The state that a training step changes, and its abstract form: shapes, dtypes and shardings."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from flax import nnx

from t5x_like.core.partitioning import Layout, map_parameters
from t5x_like.training.optimization.optimizer_shardings import optimizer_shardings

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Carry, Metrics


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
    """Everything a step changes. `params` and `ema` are plain dicts; `ema` is None when off."""

    step: jax.Array
    params: Any
    opt_state: Any
    carry: Carry
    ema: Any = None

    @property
    def eval_params(self) -> Any:
        """The parameters for evaluation and inference: the averaged ones if there are any."""
        return self.params if self.ema is None else self.ema


def abstract_state(
    init: Callable[[jax.Array], TrainState], layout: Layout, *, params: nnx.State, stacked: Any
) -> TrainState:
    """Shapes, dtypes and shardings of the state that `init` makes from a key.

    Args:
      init: the function from a key to a state; it does not run.
      layout: the mesh and the rules.
      params: the abstract parameters, with the axes of each.
      stacked: how many leading dimensions of each parameter are stacked layers, a plain dict.
    """
    shapes = jax.eval_shape(init, jax.random.key(0))
    shardings = map_parameters(layout.stored, params)
    states = TrainState(
        step=layout.replicated,  # type: ignore[arg-type]  # a tree of shardings, not of arrays
        params=shardings,
        opt_state=optimizer_shardings(
            layout, shapes.opt_state, params=shapes.params, shardings=shardings, stacked=stacked
        ),
        carry=jax.tree.map(lambda leaf: layout.rows(leaf.shape), shapes.carry),
        ema=None if shapes.ema is None else shardings,
    )
    return jax.tree.map(
        lambda leaf, s: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=s), shapes, states
    )


def if_finite(
    after: TrainState, before: TrainState, metrics: Metrics
) -> tuple[TrainState, Metrics]:
    """The state after a step, or that before it, one step on, if a metric is not finite.

    Then all metrics weigh nothing, and `skipped` is 1.
    """
    good = jnp.stack([jnp.isfinite(total).all() for total, _ in metrics.values()]).all()

    def chosen(new: jax.Array, old: jax.Array) -> jax.Array:
        return jnp.where(good, new, old)

    chosen_state = jax.tree.map(chosen, dataclasses.replace(after, step=before.step), before)
    finite_metrics = jax.tree.map(lambda total: chosen(total, jnp.zeros_like(total)), metrics)
    finite_metrics["skipped"] = (1 - good.astype(jnp.float32), jnp.float32(1))
    return dataclasses.replace(chosen_state, step=after.step), finite_metrics
