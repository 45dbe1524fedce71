"""Attention by a kernel of ours, over a mesh and with its gradient.

Suffixes: B batch, L queries, M keys, H heads, K d_kv.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import PartitionSpec

from t5x_like.core.counter_random import is_counter
from t5x_like.layers.attention.attention_kernels import Attended, KeysValues
from t5x_like.layers.attention.kernels.band import EVERYTHING, Band, band_of
from t5x_like.layers.attention.kernels.kernel_mesh import (
    Gradient,
    Split,
    over_mesh,
    parts_of_queries,
    seed_words,
)
from t5x_like.layers.attention.kernels.kernel_parts import Operands, Settings
from t5x_like.layers.attention.masks import Mask
from t5x_like.layers.basics.dropout import Dropping


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
    mask: Mask | None,
    bias: jax.Array | None,
    drop: Dropping | None,
    interpret: bool,
) -> Attended:
    """Attention by a kernel that can compute it: no array [B, H, L, M] leaves the chip.

    It supports bias, dropout, and every mask that heads share. With `interpret` it runs anywhere,
    slowly.
    """
    *_, heads, width = q_BLHK.shape
    pairs = (q_BLHK.shape[1], memory.keys.shape[1])
    q, k, v = (x.reshape(*x.shape[:2], heads * width) for x in (q_BLHK, *memory))
    band = band_of(mask)
    segments, key_segments = None, None
    if mask is not None:
        segments, key_segments = _segments(mask)
        mask = _without(mask, band=band, segments=segments)
    seen = None if mask is None else mask.dense(*pairs)
    operands = Operands(
        q,
        k,
        v,
        mask=None if seen is None else _mask(seen, pairs[1]),
        bias=None if bias is None else _bias(bias, (heads, *pairs)),
        seed=seed_words(drop, heads=heads, queries=pairs[0]),
        segments=segments,
        key_segments=key_segments,
    )
    whole = parts_of_queries(*q_BLHK.shape[:3]) == 1
    settings = Settings.of(width, drop, band=band, in_parts=whole, interpret=interpret)
    values = _attend(operands, passes, settings).reshape(q_BLHK.shape)
    return Attended(values.astype(memory.values.dtype), None)


def unsuited(mask: Mask | None, drop: Dropping | None) -> str | None:
    """Why none of our kernels can compute it; None if they can."""
    pairs = None if mask is None else mask.pairs
    if pairs is not None and pairs.ndim > 2 and pairs.shape[-3] > 1:
        return "heads have different masks"
    if drop is not None and not is_counter(drop.key):
        return f"dropout draws {jax.random.key_impl(drop.key)} and not counter"
    return None


def _segments(mask: Mask) -> tuple[jax.Array, jax.Array] | tuple[None, None]:
    """`Operands.segments` and `key_segments`: a key that does not count is in none."""
    queries, keys = mask.queries.segments, mask.keys.segments
    if queries is None or keys is None or mask.itself:
        return None, None
    if mask.present is not None:
        keys = jnp.where(mask.present > 0, keys, jnp.iinfo(jnp.int32).min)
    return queries.astype(jnp.int32)[..., None], keys.astype(jnp.int32)[:, None]


def _without(mask: Mask, *, band: Band, segments: jax.Array | None) -> Mask:
    """The rest of a mask where a kernel reads the band and the segments."""
    if band != EVERYTHING:
        mask = dataclasses.replace(mask, causal=False, window=None)
    if segments is not None:
        mask = dataclasses.replace(
            mask,
            present=None,
            queries=mask.queries._replace(segments=None),
            keys=mask.keys._replace(segments=None),
        )
    return mask


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
    return (Operands(dq, dk, dv, None, dbias[0] if dbias else None, None, None, None),)


_attend.defvjp(_attend_forward, _attend_backward)


def _over_mesh(fn: Callable[..., Any], operands: Operands, settings: Settings, *more: Any) -> Any:
    def specs(split: Split) -> tuple[Operands, Sequence[Gradient]]:
        mask, bias = operands.mask, operands.bias
        of_each = split.queries if mask is not None and mask.shape[1] > 1 else None
        of_operands = Operands(
            q=split.of_q,
            k=split.of_keys,
            v=split.of_keys,
            mask=split.of_rows(mask, of_each),
            bias=split.of_rows(bias, split.heads, split.queries),
            seed=PartitionSpec(),
            segments=split.of_rows(operands.segments, split.queries),
            key_segments=split.of_rows(operands.key_segments),
        )
        of_keys = Gradient(split.of_keys, summed=split.queries)
        gradients = [Gradient(split.of_q), of_keys, of_keys]
        if bias is not None:
            summed = split.rows if len(bias) == 1 else ()
            gradients.append(Gradient(of_operands.bias, summed))
        return of_operands, gradients

    return over_mesh(fn, settings, operands, more, specs=specs)
