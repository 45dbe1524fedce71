"""Optimizers: Adafactor as T5X configures it, AdamW, and running one layer by layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from t5x_like.training.schedules import Schedule

NOT_DECAYED = ("scale", "bias")
"""Names of parameters that AdamW does not decay: those of norms, and biases."""


class Optimizer(NamedTuple):
    """An optax gradient transformation that also tells its learning rate, for the log.

    `build` takes any optax transformation; only those with `learning_rate` have it logged.
    """

    init: Callable[[Any], Any]
    update: Callable[..., tuple[Any, Any]]
    learning_rate: Schedule


def adafactor(
    learning_rate: float | Schedule,
    *,
    decay_rate: float = 0.8,
    step_offset: int = 0,
    clipping_threshold: float | None = 1.0,
    multiply_by_parameter_scale: bool = True,
    min_dim_size_to_factor: int = 128,
    momentum: float | None = None,
) -> Optimizer:
    """Adafactor (Shazeer & Stern, 2018, algorithms 4 and 5) as T5X runs it: no momentum.

    Args:
      learning_rate: relative to the parameter's scale, unless that is switched off.
      decay_rate: second moments decay by 1 - (t + 1 - step_offset) ** -decay_rate.
      step_offset: first step of fine-tuning, to start the moments afresh.
      clipping_threshold: on the root mean square of each tensor's update.
      multiply_by_parameter_scale: updates are relative to max(RMS(parameter), 1e-3).
      min_dim_size_to_factor: smaller matrices keep the full second moment.
      momentum: decay of an average of updates, if any.
    """
    return _with_rate(
        optax.adafactor(
            learning_rate,
            min_dim_size_to_factor=min_dim_size_to_factor,
            decay_rate=decay_rate,
            decay_offset=step_offset,
            multiply_by_parameter_scale=multiply_by_parameter_scale,
            clipping_threshold=clipping_threshold,
            momentum=momentum,
        ),
        learning_rate,
    )


def adamw(
    learning_rate: float | Schedule,
    *,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.01,
) -> Optimizer:
    """Adam with decoupled weight decay (Loshchilov & Hutter, 2019), none on `NOT_DECAYED`."""
    return _with_rate(
        optax.adamw(learning_rate, b1=b1, b2=b2, eps=eps, weight_decay=weight_decay, mask=decayed),
        learning_rate,
    )


def decayed(params: Any) -> Any:
    """Whether weight decay applies to each parameter: a tree of bool, by the name of the leaf."""
    return jax.tree_util.tree_map_with_path(
        lambda path, _: getattr(path[-1], "key", None) not in NOT_DECAYED, params
    )


def layerwise(tx: optax.GradientTransformation, stacked: Any) -> optax.GradientTransformation:
    """Runs `tx` on each layer of a stacked parameter by itself.

    Adafactor's factors, RMS and scales (and LAMB's trust ratios) belong to one tensor; on
    parameters stacked for scanning they would mix all layers.

    Args:
      tx: what to run.
      stacked: how many leading dimensions of each parameter are stacked layers; a tree of int.
    """

    def over(depth: int) -> optax.GradientTransformation:
        init, update = tx.init, tx.update
        for _ in range(depth):
            init, update = jax.vmap(init), jax.vmap(update)
        return optax.GradientTransformation(init, update)

    depths = {depth: over(depth) for depth in sorted(set(jax.tree.leaves(stacked)))}
    named = {f"stacked_{depth}": transform for depth, transform in depths.items()}
    return optax.partition(named, jax.tree.map(lambda depth: f"stacked_{depth}", stacked))


def _with_rate(tx: optax.GradientTransformation, learning_rate: float | Schedule) -> Optimizer:
    rate = learning_rate if callable(learning_rate) else lambda _: jnp.float32(learning_rate)
    return Optimizer(tx.init, tx.update, rate)
