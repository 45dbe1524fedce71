"""The clipped gradients of a step: of the whole loss, or of parts of it that come in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import optax

from t5x_like.core.abilities import TrainsInTurn, can

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Carry, Metrics


def turns_of(model: Any) -> Sequence[int | None]:
    """The turns of a model; of one without turns None, for the whole loss."""
    return model.turns if can(model, TrainsInTurn) else (None,)


def clipped_gradients(
    of_turn: Callable[[Any, Carry, int | None], tuple[Any, Metrics, Carry]],
    update: Callable[[Any], Any],
    start: tuple[Any, Carry],
    *,
    turns: Sequence[int | None],
    clip: float | None,
) -> tuple[Any, Metrics, Carry]:
    """The gradients of all turns, each clipped by itself and then summed.

    The loss of a later turn is that of the parameters after the earlier ones. The optimizer is to
    take the sum in one step: so the state of a parameter that one turn alone trains is that of one
    step, as if each turn had an optimizer of its own.

    Args:
      of_turn: gradients, metrics and the next carry for parameters, a carry and a turn.
      update: the parameters after a step with such gradients.
      start: the parameters before the step, and the carry that the first turn reads; each later
        turn reads what the one before returned.
      turns: the turns, in order.
      clip: the largest norm of a turn's gradient; None for no limit.

    Returns:
      The sum, the metrics, and the carry of the last turn. `loss` is a vector over the terms of all
      turns; `grad_norm` is the norm before clipping.
    """
    params, carry = start
    total, all_metrics, squares = None, [], jnp.float32(0)
    for turn in turns:
        now = params if total is None else update(total)
        grads, metrics, carry = of_turn(now, carry, turn)
        norm = optax.tree.norm(grads)
        squares += norm**2
        if clip is not None:  # not in the optimizer, which sees one layer at a time
            shrink = jnp.minimum(1.0, clip / norm)
            grads = jax.tree.map(lambda g, shrink=shrink: g * shrink, grads)
        total = grads if total is None else jax.tree.map(jnp.add, total, grads)
        all_metrics.append(metrics)
    if len(all_metrics) == 1:
        return total, all_metrics[0] | {"grad_norm": (norm, jnp.float32(1))}, carry
    losses = jax.tree.map(lambda *x: jnp.stack(x), *(metrics["loss"] for metrics in all_metrics))
    joined: Metrics = {}
    for metrics in all_metrics:
        joined |= metrics
    return total, joined | {"loss": losses, "grad_norm": (squares**0.5, jnp.float32(1))}, carry
