"""Gradients of a batch, whole or in microbatches, with the same result."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec

from t5x_like.core.partitioning import Layout, active_layout, constrain
from t5x_like.training.optimization.freezing import merge

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch, Carry, Metrics


def gradients(
    graphdef: Any,
    params: Any,
    *,
    batch: Batch,
    key: jax.Array,
    carry: Carry,
    microbatches: int,
    frozen: Any = None,
    turn: int | None = None,
) -> tuple[Any, Metrics, Carry]:
    """Gradients, metrics and the next carry of the whole batch, summed over microbatches.

    The denominators of all loss terms come from the whole batch, so that the parts add up. With
    microbatches, each of the layout's `replicas` sums its own gradients in float32, and they are
    reduced between devices once, at the end. Dropout then depends on the number of replicas.

    Args:
      graphdef: the model without its parameters.
      params: a plain dict.
      batch: {name: [B, ...]}.
      key: the key of dropout.
      carry: a pytree of [B, ...].
      microbatches: their number M; B / M rows are computed at a time.
      frozen: further parameters, without gradients (`freezing.split`).
      turn: the turn whose loss it is, of a model that has turns (`abilities.TrainsInTurn`); None
        for the whole loss.
    """

    def model(params: Any) -> Any:
        return nnx.merge(graphdef, params if frozen is None else merge(params, frozen))

    weights = model(params).weights(batch)

    def loss(params: Any, batch: Batch, carry: Carry, key: jax.Array) -> tuple[jax.Array, Any]:
        whole = model(params)
        of_turn = whole.loss if turn is None else functools.partial(whole.loss_of_turn, turn)
        scalar, metrics, carry = of_turn(batch, key, carry, weights)
        return scalar, (metrics, carry)

    def part(batch: Batch, carry: Carry, key: jax.Array) -> tuple[tuple[Any, Metrics], Carry]:
        grads, (metrics, carry) = jax.grad(loss, has_aux=True)(params, batch, carry, key)
        return (grads, metrics), carry

    if microbatches == 1:
        (grads, metrics), carry = part(batch, carry, key)
        return grads, metrics, carry
    return _in_microbatches(part, batch, carry, key, microbatches)


def _in_microbatches(
    part: Callable, batch: Batch, carry: Carry, key: jax.Array, microbatches: int
) -> tuple[Any, Metrics, Carry]:
    """The sums of all parts."""
    replicas = _Replicas(active_layout())
    part = replicas.apart(part)

    def accumulate(total: Any, xs: tuple) -> tuple[Any, Carry]:
        result, carry = part(*xs)
        return replicas.split(jax.tree.map(jnp.add, total, result)), carry

    to_parts = functools.partial(_to_microbatches, microbatches=microbatches)
    rows = replicas.rows(jax.tree.map(to_parts, (dict(batch), carry)))
    xs = (*rows, replicas.keys(jax.random.split(key, microbatches)))
    first = jax.tree.map(lambda x: x[0], xs)
    zeros = jax.tree.map(
        lambda s: jnp.zeros(s.shape, jnp.promote_types(s.dtype, jnp.float32)),
        jax.eval_shape(part, *first)[0],
    )
    (grads, metrics), carry = jax.lax.scan(accumulate, replicas.split(zeros), xs)
    grads, metrics = replicas.sum((grads, metrics))
    return grads, metrics, jax.tree.map(_from_microbatches, replicas.joined(carry))


class _Replicas:
    """Computes each of a layout's replicas by itself: a leading dimension R, split over them."""

    def __init__(self, layout: Layout | None) -> None:
        self._layout = layout
        self._count = 1 if layout is None else layout.num_replicas

    def apart(self, part: Callable) -> Callable:
        """`part`, of arguments and results [R, ...]."""
        layout = self._layout
        if layout is None or self._count == 1:
            return part

        def mapped(*args: Any) -> Any:
            with layout.within_replica().active():
                return jax.vmap(part, spmd_axis_name=layout.replicas)(*args)

        return mapped

    def rows(self, tree: Any) -> Any:
        """[M, B, ...] -> [M, R, B / R, ...]."""
        return self._each(lambda x: x.reshape(len(x), self._count, -1, *x.shape[2:]), tree)

    def joined(self, tree: Any) -> Any:
        """The inverse of `rows`."""
        return self._each(lambda x: x.reshape(len(x), -1, *x.shape[3:]), tree)

    def keys(self, keys_M: jax.Array) -> jax.Array:
        """[M] -> [M, R]."""
        split = jax.vmap(functools.partial(jax.random.split, num=self._count))
        return keys_M if self._count == 1 else split(keys_M)

    def sum(self, tree: Any) -> Any:
        """[R, ...] -> [...], over all devices."""
        return self._each(lambda x: x.sum(axis=0), tree)

    def split(self, tree: Any) -> Any:
        """Pins the first dimension of [R, ...] to the replicas."""
        return self._each(self._pin, tree)

    def _pin(self, x: jax.Array) -> jax.Array:
        assert self._layout is not None, "there are replicas"
        spec = PartitionSpec(self._layout.replicas, *[PartitionSpec.UNCONSTRAINED] * (x.ndim - 1))
        return jax.lax.with_sharding_constraint(x, NamedSharding(self._layout.mesh, spec))

    def _each(self, fn: Callable[[jax.Array], jax.Array], tree: Any) -> Any:
        return tree if self._count == 1 else jax.tree.map(fn, tree)


def _to_microbatches(x: jax.Array, *, microbatches: int) -> jax.Array:
    """[B, ...] -> [M, B / M, ...], interleaved so that every device keeps its own rows."""
    x = x.reshape(x.shape[0] // microbatches, microbatches, *x.shape[1:]).swapaxes(0, 1)
    return constrain(x, None, "batch", *[None] * (x.ndim - 2))


def _from_microbatches(x: jax.Array) -> jax.Array:
    """The inverse of `_to_microbatches`: row b of the batch is again row b."""
    x = x.swapaxes(0, 1)
    x = x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])
    return constrain(x, "batch", *[None] * (x.ndim - 1))
