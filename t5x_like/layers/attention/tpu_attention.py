"""Attention by our Pallas kernel: over a mesh, with its gradient.

Suffixes: B batch, L queries, M keys, H heads, K d_kv.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import PartitionSpec

from t5x_like.core.counter_random import is_counter
from t5x_like.core.partitioning import active_layout
from t5x_like.layers.attention import pallas_kernel
from t5x_like.layers.attention.attention_kernels import Attended, KeysValues
from t5x_like.layers.attention.kernel_mesh import (
    Gradient,
    Split,
    over_mesh,
    seed_words,
    usable_vmem,
)
from t5x_like.layers.attention.kernel_parts import LANES, Settings
from t5x_like.layers.attention.pallas_kernel import Operands
from t5x_like.layers.dropout import Dropping

_ARRAYS = 8
"""Arrays of queries times keys that a grid step has in the chip's memory at once, about."""


def tpu(
    q_BLHK: jax.Array,
    memory: KeysValues,
    *,
    mask: jax.Array | None,
    bias: jax.Array | None,
    drop: Dropping | None,
    interpret: bool = False,
) -> Attended:
    """A kernel for TPUs that keeps all arrays [B, H, L, M] on the chip, in both passes.

    It supports bias, dropout and every mask. With `interpret` it runs anywhere, slowly.

    Raises:
      ValueError: it cannot compute these shapes (`unsuited`).
    """
    if reason := unsuited(q_BLHK, memory, mask=mask, bias=bias, drop=drop):
        raise ValueError(f"attention on TPUs: {reason}; use attention_kernels.blocked or .plain")
    *_, heads, width = q_BLHK.shape
    pairs = (q_BLHK.shape[1], memory.keys.shape[1])
    q, k, v = (x.reshape(*x.shape[:2], heads * width) for x in (q_BLHK, *memory))
    operands = Operands(
        q,
        k,
        v,
        mask=None if mask is None else _mask(mask, pairs[1]),
        bias=None if bias is None else _bias(bias, (heads, *pairs)),
        seed=seed_words(drop, heads),
    )
    settings = Settings(
        width=width,
        dropped=0 if drop is None else drop.dropped,
        shared=drop is not None and drop.shared,
        vmem=usable_vmem(),
        interpret=interpret,
    )
    return Attended(_attend(operands, settings).reshape(q_BLHK.shape), None)


def unsuited(
    q_BLHK: jax.Array,
    memory: KeysValues,
    *,
    mask: jax.Array | None,
    bias: jax.Array | None,
    drop: Dropping | None,
) -> str | None:
    """Why the kernel cannot compute it; None if it can."""
    _, queries, heads, width = q_BLHK.shape
    keys = memory.keys.shape[1]
    if LANES % width and width % LANES:
        return f"a head's width must divide {LANES} or be a multiple of it, not {width}"
    if mask is not None and mask.ndim == 4 and mask.shape[1] > 1:
        return "heads have different masks"
    if drop is not None and not is_counter(drop.key):
        return f"dropout draws {jax.random.key_impl(drop.key)} and not counter"
    layout = active_layout()
    if layout is not None and layout.spec(("length",), (queries,))[0] is not None:
        return "queries are split over devices"
    of_a_block = max(LANES // width, 1) if heads * width % LANES == 0 else heads
    arrays = _ARRAYS + (0 if bias is None else 4 * of_a_block)
    if 4 * queries * keys * arrays > usable_vmem():
        return f"{queries} queries by {keys} keys do not fit the chip's memory"
    return None


def _mask(mask: jax.Array, keys: int) -> jax.Array:
    """Int8 [B|1, L|1, M]; all heads have one mask."""
    mask = mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
    return jnp.broadcast_to(mask, (*mask.shape[:3], keys))[:, 0].astype(jnp.int8)


def _bias(bias: jax.Array, shape: tuple[int, int, int]) -> jax.Array:
    """Float32 [B|1, H, L, M]."""
    bias = bias.reshape((1,) * (4 - bias.ndim) + bias.shape)
    return jnp.broadcast_to(bias, (bias.shape[0], *shape)).astype(jnp.float32)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _attend(operands: Operands, settings: Settings) -> jax.Array:
    return _over_mesh(pallas_kernel.forward, operands, settings)


def _attend_forward(
    operands: Operands, settings: Settings
) -> tuple[jax.Array, tuple[Operands, jax.Array]]:
    values = _attend(operands, settings)
    # Named where the backward pass alone reads them (`product`); XLA keeps one array for both.
    return values, (operands, checkpoint_name(values, "attended"))


def _attend_backward(
    settings: Settings, saved: tuple[Operands, jax.Array], g: jax.Array
) -> tuple[Operands]:
    dq, dk, dv, *dbias = _over_mesh(pallas_kernel.backward, saved[0], settings, saved[1], g)
    return (Operands(dq, dk, dv, None, dbias[0] if dbias else None, None),)


_attend.defvjp(_attend_forward, _attend_backward)


def _over_mesh(fn: Callable[..., Any], operands: Operands, settings: Settings, *more: Any) -> Any:
    def specs(split: Split) -> tuple[Operands, Sequence[Gradient]]:
        joined, (_, heads) = split.joined, split
        mask, bias = operands.mask, operands.bias
        of_operands = Operands(
            q=joined,
            k=joined,
            v=joined,
            mask=None if mask is None else split.of_rows(mask),
            bias=None if bias is None else split.of_rows(bias, heads),
            seed=PartitionSpec(),
        )
        gradients = [Gradient(joined)] * 3
        if bias is not None:
            gradients.append(Gradient(of_operands.bias, summed=len(bias) == 1))
        return of_operands, gradients

    return over_mesh(fn, settings, operands, more, specs=specs)
