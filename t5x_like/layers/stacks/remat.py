"""Rematerialisation: the arrays that a layer stores for the backward pass, by name.

The backward pass computes the others again.

Layers name the arrays that policies choose from (`jax.ad_checkpoint.checkpoint_name`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from t5x_like.core.devices.memory import ACTIVATIONS, usable_bytes
from t5x_like.core.partitioning import active_layout
from t5x_like.core.spelling import nearest

Policy = Callable[..., Any]

_ATTENTION = ("query", "key", "value", "attended")
_RESIDUAL = ("residual", "statistics")  # sums, and what their norms divide by
_HIDDEN = "hidden"
_choose = jax.checkpoint_policies.save_only_these_names

POLICIES: dict[str, Policy | None] = {
    "all": None,
    "products": _choose(*_ATTENTION, *_RESIDUAL, _HIDDEN),
    "attention": _choose(*_ATTENTION, *_RESIDUAL),
    "nothing": jax.checkpoint_policies.nothing_saveable,
}
"""From the most memory to the least.

- `all`: every array that the backward pass reads.
- `products`: results of matrix products and sums of the residual stream. Norms, activations,
  gates and dropout are computed again, which costs little.
- `attention`: the same without the hidden layer of the feed-forward part, whose first product is
  computed again.
- `nothing`: the input of each layer.
"""


def policy(remat: str | Policy | None) -> Policy | None:
    """The policy of a name, or a policy of JAX itself; None for storing everything.

    Raises:
      ValueError: no policy has this name.
    """
    if not isinstance(remat, str):
        return remat
    if remat not in POLICIES:
        raise ValueError(f"unknown REMAT {remat!r}" + nearest(remat, POLICIES, of="policies"))
    return POLICIES[remat]


def fitting_policy(
    bodies: Sequence[Callable[..., tuple[Any, Any]]], x: jax.Array, num_layers: int, stacked: Any
) -> Policy | None:
    """The first of `POLICIES` whose arrays fit the active devices.

    None, which stores everything, where devices have no memory of their own (CPUs).

    Args:
      bodies: each called with a layer, x and the layer's own inputs; layers run them in turn.
      x: the input of the first layer, [B, ...].
      num_layers: N.
      stacked: the layers and their inputs, [N, ...].
    """
    layout = active_layout()
    limit = None if layout is None else usable_bytes(layout.mesh)
    if layout is None or limit is None:
        return None
    for candidate in POLICIES.values():
        wrapped = [
            body if candidate is None else jax.checkpoint(body, policy=candidate) for body in bodies
        ]
        stored = sum(_stored_bytes(body, x, stacked) for body in wrapped) / len(wrapped)
        if num_layers * stored / layout.batch_shards <= ACTIVATIONS * (limit - layout.reserved):
            return candidate
    return POLICIES["nothing"]


def _stored_bytes(body: Callable[..., tuple[Any, Any]], x: jax.Array, stacked: Any) -> int:
    """The bytes of a layer's arrays [B, ...] that the backward pass reads, on all devices."""

    def backward(x: jax.Array, layer: Any, xs: Any) -> Any:
        return jax.vjp(lambda layer, x: body(layer, x, xs)[0], layer, x)[1]

    layer, xs = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), stacked)
    stored = jax.tree.leaves(jax.eval_shape(backward, x, layer, xs))
    return sum(
        leaf.size * leaf.dtype.itemsize
        for leaf in stored
        if leaf.ndim > 1 and leaf.shape[0] == x.shape[0]
    )
