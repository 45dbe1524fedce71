"""A grid step of the kernel of relative attention: it computes some heads of one row.

Suffixes: B batch, Q queries, R of them at once, T keys, C relative positions, F directions,
J joined heads.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from t5x_like.layers.attention.kernels import kernel_parts
from t5x_like.layers.attention.kernels.kernel_parts import (
    MASKED,
    Draws,
    Head,
    dropped,
    head_blocks,
    of_step,
    product,
)
from t5x_like.layers.attention.kernels.key_shift import KeyWindows
from t5x_like.layers.attention.kernels.relative_shift import Window, windows

HIDDEN, SEEN, OTHER = 0, 1, 2
"""Numbers in `pairs`: a query does not see a key, it sees one of its own segment, or of another."""

_FORWARD, _BACKWARD, _BACKWARD_OF_BOTH = 256, 128, 256
"""Queries at once. More of them read more relative positions than each needs; with fewer, the
matrix unit waits more often for what follows. The last is for products of queries and of keys."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(kernel_parts.Settings):
    """The settings of a kernel, which stay the same from call to call.

    Attributes:
      queries: Q.
      factor: the factor of the queries.
      keys: how many of the T keys are real; the others are padding.
      masked: whether `pairs` tells what a query sees, and
      segments: which segments differ.
    """

    queries: int
    factor: float
    keys: int
    masked: bool
    segments: bool


class Operands(NamedTuple):
    """Arrays, or in the kernel their blocks; T, and C - T, are multiples of 128.

    `q` is [B, Q or more, J], of which the first Q ask; `k` and `v` are [B, T, J]. `r` is
    [1, F, C, J], of which int32 `direction`, [B], chooses one for each row; on a mesh it is
    [N, F, C, J], one for each part of the batch. `s`, [1|N, 1, C, J], is what keys are
    multiplied with (`KeyWindows`), or None. `vectors`, float32 [4, J], are added to queries
    that look at content, at positions and at segments; the last is what the third are multiplied
    with where segments differ. `pairs` is int8 [B|1, Q|1, T]; `positions`, int32 [B|1, Q, 1], are
    those of the queries; None where they are the whole row. `seed` is that of `kernel_parts.Draws`.
    """

    q: Any
    k: Any
    v: Any
    r: Any
    s: Any
    vectors: Any
    pairs: Any
    positions: Any
    direction: Any
    seed: Any


class _Queries(NamedTuple):
    """Some queries of a row in a block of heads.

    Attributes:
      window: which they are.
      of_keys: what keys are multiplied with for them.
      content: queries of content [R, J], and
      position: of positions.
      segment: of segments, float32.
      pairs: int32 [R|1, T], or None.
      vectors: float32 [4, J].
    """

    window: Window
    of_keys: KeyWindows
    content: jax.Array
    position: jax.Array
    segment: jax.Array
    pairs: jax.Array | None
    vectors: jax.Array

    def are(self, least: int) -> jax.Array:
        """Bool [R|1, T]: whether `pairs` are at least that."""
        assert self.pairs is not None
        return self.pairs >= least


def _queries(
    settings: Settings, refs: Operands, lanes: slice, *, at_once: int
) -> Iterator[_Queries]:
    """All queries of a row, some at a time."""
    positions = None if refs.positions is None else refs.positions[0]
    vectors = refs.vectors[:, lanes]
    shape = refs.q.shape[1], refs.k.shape[1]
    for window in windows(shape, positions, columns=refs.r.shape[2], at_once=at_once):
        q = refs.q[0, window.queries, lanes]
        content, position, segment = (q.astype(jnp.float32) + vectors[n : n + 1] for n in range(3))
        pairs = None
        if refs.pairs is not None:
            alike = refs.pairs.shape[1] == 1
            pairs = refs.pairs[0, slice(None) if alike else window.queries].astype(jnp.int32)
        yield _Queries(
            window,
            KeyWindows.of(window, refs.r.shape[2] - refs.k.shape[1]),
            (content * settings.factor).astype(q.dtype),
            (position * settings.factor).astype(q.dtype),
            segment,
            pairs,
            vectors,
        )


class _Products(NamedTuple):
    """Products of some queries in one head, float32.

    With `keys` [R, T], with `relative` positions [R, C], and of keys with these (`KeyWindows`).
    """

    keys: jax.Array
    relative: jax.Array
    of_keys: list[jax.Array]

    @classmethod
    def of(cls, refs: Operands, asking: _Queries, head: Head) -> _Products:
        k, r = refs.k[0, :, head.lanes], refs.r[0, 0, asking.window.columns, head.lanes]
        of_keys = []
        if refs.s is not None:
            for keys, rows in asking.of_keys.blocks():
                s = head.of(refs.s[0, 0, rows, head.lanes])
                of_keys.append(product(s, k[keys], (1, 1)))
        return cls(
            product(head.of(asking.content), k, (1, 1)),
            product(head.of(asking.position), r, (1, 1)),
            of_keys,
        )


def _ahead(refs: Operands, pairs: list[tuple[_Queries, Head]]) -> Iterator[_Products]:
    """Products, each computed before the last is used, so that the matrix unit need not wait."""
    ready = _Products.of(refs, *pairs[0])
    for pair in pairs[1:]:
        following = _Products.of(refs, *pair)
        yield ready
        ready = following
    yield ready


def forward_step(settings: Settings, refs: Operands, o: Any) -> None:
    """Writes the values."""
    for block in head_blocks(refs.q.shape[-1], settings.width):
        lanes = block[0].lanes
        v = refs.v[0, :, lanes]
        queries = [*_queries(settings, refs, lanes, at_once=_FORWARD)]
        products = _ahead(refs, [(asking, head) for asking in queries for head in block])
        for asking in queries:
            whole = None
            for head in block:
                e, _ = _exponentials(settings, asking, head, next(products))
                # Rows are divided by their sums where they are narrow.
                scale = settings.scale / e.sum(axis=-1, keepdims=True)
                e = dropped(e, _kept(settings, refs, asking, head))
                whole = head.put(whole, product(e.astype(v.dtype), v, (1, 0)) * scale)
            assert whole is not None
            o[0, asking.window.queries, lanes] = whole.astype(o.dtype)


def _exponentials(
    settings: Settings, asking: _Queries, head: Head, products: _Products
) -> tuple[jax.Array, jax.Array]:
    """exp(logits - top), float32 [R, T], and top [R, 1], the largest logit of each query."""
    logits = products.keys + asking.window.to_keys(products.relative)
    if products.of_keys:
        logits += asking.of_keys.to_pairs(products.of_keys)
    if settings.segments:
        segment = head.of(asking.segment * asking.vectors[3:]).sum(axis=-1, keepdims=True)
        logits += jnp.where(asking.are(OTHER), segment, 0.0)
    if settings.masked:
        logits = jnp.where(asking.are(SEEN), logits, MASKED)
    if settings.keys < logits.shape[1]:
        key = jax.lax.broadcasted_iota(jnp.int32, (1, logits.shape[1]), 1)
        logits = jnp.where(key < settings.keys, logits, -jnp.inf)
    top = logits.max(axis=-1, keepdims=True)
    return jnp.exp(logits - top), top


def _kept(settings: Settings, refs: Operands, asking: _Queries, head: Head) -> jax.Array | None:
    """Which probabilities stay."""
    seed = of_step(refs.seed, refs.q.shape[-1] // settings.width)
    first = asking.window.queries.start
    shape = (asking.window.queries.stop - first, refs.k.shape[1])
    return Draws(seed, head.number, settings.keys).kept(settings, shape, first=first)


def backward_step(settings: Settings, refs: Operands, values: Any, g: Any, *gradients: Any) -> None:
    """Writes, or adds up, the gradients; the rest is what `relative_kernel.backward` gets."""
    dq, dk, dv, dr, dvectors, *of_s = gradients

    @pl.when(pl.program_id(1) == 0)
    def _() -> None:
        for total in (dr, dvectors, *of_s):
            total[...] = jnp.zeros_like(total)

    direction = refs.direction[pl.program_id(1)]
    for block in head_blocks(refs.q.shape[-1], settings.width):
        lanes = block[0].lanes
        sums: list[Any] = [0.0, 0.0]
        at_once = _BACKWARD if refs.s is None else _BACKWARD_OF_BOTH
        for asking in _queries(settings, refs, lanes, at_once=at_once):
            rows, columns = asking.window.queries, asking.window.columns
            values_g = tuple(x[0, rows, lanes] for x in (values, g))
            wholes: list[Any] = [None, None, None]
            of_r: Any = 0.0
            for head in block:
                of_head = _gradients(settings, refs, asking, head, *values_g, of_s=of_s)
                sums = [whole + part for whole, part in zip(sums, of_head.keys_values, strict=True)]
                of_r += of_head.relative
                wholes = [head.put(*pair) for pair in zip(wholes, of_head.queries, strict=True)]
            content, position, segment = wholes
            of_queries = (content + position) * settings.factor
            parts = [content * settings.factor, position * settings.factor]
            if settings.segments:
                of_queries += segment * asking.vectors[3:]
                parts += [segment * asking.vectors[3:], segment * asking.segment]
            dq[0, rows, lanes] = of_queries.astype(dq.dtype)
            dr[0, direction, columns, lanes] += of_r
            for n, part in enumerate(parts):
                dvectors[n : n + 1, lanes] += part.sum(axis=0, keepdims=True)
        dk[0, :, lanes], dv[0, :, lanes] = (x.astype(dk.dtype) for x in sums)


class _Gradients(NamedTuple):
    """The gradients from some queries in one head.

    `queries` are of queries of content, of positions and of segments, float32 [R, J] or [R, 1],
    arbitrary in other heads' lanes; `keys_values` [T, J] and `relative` [C, J] are 0 there.
    """

    queries: tuple[jax.Array, jax.Array, jax.Array]
    keys_values: tuple[jax.Array, jax.Array]
    relative: jax.Array


def _gradients(
    settings: Settings,
    refs: Operands,
    asking: _Queries,
    head: Head,
    values: jax.Array,
    g: jax.Array,
    *,
    of_s: Sequence[Any],
) -> _Gradients:
    """The gradient of what keys are multiplied with, if there is any, is added to `of_s`."""
    k, v = (x[0, :, head.lanes] for x in (refs.k, refs.v))
    r = refs.r[0, 0, asking.window.columns, head.lanes]
    e, top = _exponentials(settings, asking, head, _Products.of(refs, asking, head))
    keep = _kept(settings, refs, asking, head)
    # Rows are divided by their sums where they are narrow.
    g_head = head.of(g).astype(jnp.float32) / e.sum(axis=-1, keepdims=True)
    # A query that sees no key has uniform probabilities, whatever its logits are.
    g_seen = jnp.where(top > MASKED / 2, g_head, 0.0) if settings.masked else g_head
    along = (g_seen * values).sum(axis=-1, keepdims=True)
    dp = product((g_seen * settings.scale).astype(v.dtype), v, (1, 1))
    kept = dropped(e, keep)
    dlogits = kept * dp - e * along
    dsegment = jnp.zeros_like(top)
    if settings.segments:
        dsegment = jnp.where(asking.are(OTHER), dlogits, 0.0).sum(axis=-1, keepdims=True)
    shifted = asking.window.to_columns(dlogits).astype(k.dtype)
    ds = dlogits.astype(k.dtype)
    dk = product(ds, head.of(asking.content), (0, 0))
    if of_s:
        dk += _of_keys(refs, asking, head, dlogits, of_s[0])
    weights = kept.astype(g.dtype)
    return _Gradients(
        (
            product(ds, k, (1, 0)),
            product(shifted, r, (1, 0)),
            jnp.broadcast_to(dsegment, g.shape),
        ),
        (
            dk,
            product(weights, (g_head * settings.scale).astype(g.dtype), (0, 0)),
        ),
        product(shifted, head.of(asking.position), (0, 0)),
    )


def _of_keys(
    refs: Operands, asking: _Queries, head: Head, dlogits: jax.Array, of_s: Any
) -> jax.Array:
    """The gradient of keys by their products with relative positions, float32 [T, J].

    That of the other factors is added to `of_s`.
    """
    shifted = asking.of_keys.to_blocks(dlogits, refs.k.dtype)
    parts = []
    for (keys, rows), x in zip(asking.of_keys.blocks(), shifted, strict=True):
        parts.append(product(x, head.of(refs.s[0, 0, rows, head.lanes]), (0, 0)))
        of_s[0, 0, rows, head.lanes] += product(x, head.of(refs.k[0, keys, head.lanes]), (1, 0))
    return jnp.concatenate(parts)
