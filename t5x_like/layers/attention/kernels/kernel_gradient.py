"""Attention by a kernel of ours, over a mesh and with its gradient.

Suffixes: B batch, L queries, M keys, H heads, K d_kv.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import PartitionSpec

from t5x_like.core.counter_random import is_counter
from t5x_like.layers.attention.attention_kernels import Attended, KeysValues
from t5x_like.layers.attention.kernels.kernel_mesh import (
    Gradient,
    Split,
    over_mesh,
    seed_words,
)
from t5x_like.layers.attention.kernels.kernel_parts import Operands, Settings
from t5x_like.layers.dropout import Dropping


class Passes(NamedTuple):
    """The two passes of a kernel.

    Attributes:
      forward: gives values [B, L, J] for settings and operands, and
      backward: for these, the values and their gradient the gradients of q, k and v, and of a bias:
        summed over rows if they share it.
    """

    forward: Callable[[Settings, Operands], jax.Array]
    backward: Callable[[Settings, Operands, jax.Array, jax.Array], Sequence[jax.Array]]


def attend_by(
    passes: Passes,
    q_BLHK: jax.Array,
    memory: KeysValues,
    *,
    mask: jax.Array | None,
    bias: jax.Array | None,
    drop: Dropping | None,
    interpret: bool,
) -> Attended:
    """Attention by a kernel that can compute it; with `interpret` it runs anywhere, slowly."""
    *_, heads, width = q_BLHK.shape
    pairs = (q_BLHK.shape[1], memory.keys.shape[1])
    q, k, v = (x.reshape(*x.shape[:2], heads * width) for x in (q_BLHK, *memory))
    operands = Operands(
        q,
        k,
        v,
        mask=None if mask is None else _mask(mask, pairs[1]),
        bias=None if bias is None else _bias(bias, (heads, *pairs)),
        seed=seed_words(drop, heads=heads, queries=pairs[0]),
    )
    settings = Settings.of(width, drop, interpret=interpret)
    values = _attend(operands, passes, settings).reshape(q_BLHK.shape)
    return Attended(values.astype(memory.values.dtype), None)


def unsuited(mask: jax.Array | None, drop: Dropping | None) -> str | None:
    """Why none of our kernels can compute it; None if they can."""
    if mask is not None and mask.ndim > 2 and mask.shape[-3] > 1:
        return "heads have different masks"
    if drop is not None and not is_counter(drop.key):
        return f"dropout draws {jax.random.key_impl(drop.key)} and not counter"
    return None


def _mask(mask: jax.Array, keys: int) -> jax.Array:
    """Int8 [B|1, L|1, M]; all heads have one mask."""
    mask = mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
    return jnp.broadcast_to(mask, (*mask.shape[:3], keys))[:, 0].astype(jnp.int8)


def _bias(bias: jax.Array, shape: tuple[int, int, int]) -> jax.Array:
    """Float32 [B|1, H, L, M]."""
    bias = bias.reshape((1,) * (4 - bias.ndim) + bias.shape)
    return jnp.broadcast_to(bias, (bias.shape[0], *shape)).astype(jnp.float32)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def _attend(operands: Operands, passes: Passes, settings: Settings) -> jax.Array:
    return _over_mesh(passes.forward, operands, settings)


def _attend_forward(
    operands: Operands, passes: Passes, settings: Settings
) -> tuple[jax.Array, tuple[Operands, jax.Array]]:
    values = _attend(operands, passes, settings)
    # Named where the backward pass alone reads them (`product`); XLA keeps one array for both.
    return values, (operands, checkpoint_name(values, "attended"))


def _attend_backward(
    passes: Passes, settings: Settings, saved: tuple[Operands, jax.Array], g: jax.Array
) -> tuple[Operands]:
    dq, dk, dv, *dbias = _over_mesh(passes.backward, saved[0], settings, saved[1], g)
    return (Operands(dq, dk, dv, None, dbias[0] if dbias else None, None),)


_attend.defvjp(_attend_forward, _attend_backward)


def _over_mesh(fn: Callable[..., Any], operands: Operands, settings: Settings, *more: Any) -> Any:
    def specs(split: Split) -> tuple[Operands, Sequence[Gradient]]:
        mask, bias = operands.mask, operands.bias
        of_operands = Operands(
            q=split.of_q,
            k=split.of_keys,
            v=split.of_keys,
            mask=None
            if mask is None
            else split.of_rows(mask, split.queries if mask.shape[1] > 1 else None),
            bias=None if bias is None else split.of_rows(bias, split.heads, split.queries),
            seed=PartitionSpec(),
        )
        of_keys = Gradient(split.of_keys, summed=split.queries)
        gradients = [Gradient(split.of_q), of_keys, of_keys]
        if bias is not None:
            summed = split.rows if len(bias) == 1 else ()
            gradients.append(Gradient(of_operands.bias, summed))
        return of_operands, gradients

    return over_mesh(fn, settings, operands, more, specs=specs)
