"""A program of the kernel for GPUs: it computes a block of queries, of keys, or of both.

Programs see [B, L, K] or [B, M, K] of queries, keys and values, [B|1, L|1, M] of a mask,
[B|1, L, M] of a bias, and [B, L] and [B, M] of segments; B is 1 but in `bias_gradient`. Blocks that
lie outside of a window are left out.

Suffixes: B rows, L queries, M keys, K width of a head.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from t5x_like.core.counter_random import hashed
from t5x_like.layers.attention.kernels.kernel_parts import (
    MASKED,
    Operands,
    Settings,
    dropped,
    halves,
    product,
)


class Lengths(NamedTuple):
    """The number of keys before these were filled up, and the sizes of blocks."""

    keys: int
    of_queries: int
    of_keys: int


def values(settings: Settings, lengths: Lengths, refs: Operands, o: Any) -> None:
    """Writes the values of a block of queries."""
    head = _Head(settings, lengths, refs, head=pl.program_id(1), row=pl.program_id(2))
    i = pl.program_id(0)
    q = head.queries(refs.q, i)

    def step(j: Any, carry: tuple) -> tuple:
        *statistics, total = carry
        logits, _ = head.logits(q, head.keys(refs.k, j), i, j)
        top, summed, e, rescale = _with(logits, *statistics)
        v = head.keys(refs.v, j)
        e = dropped(e, head.kept(i, j)).astype(v.dtype)
        return top, summed, total * rescale[:, None] + product(e, v, (1, 0))

    zero = jnp.zeros(q.shape, jnp.float32)
    _, summed, total = head.over_keys(step, (*_nothing(q), zero), i)
    o[0, head.block(i, lengths.of_queries)] = (total * (settings.scale / summed)[:, None]).astype(
        o.dtype
    )


def query_gradient(
    settings: Settings,
    lengths: Lengths,
    refs: Operands,
    values: Any,
    g: Any,
    dq: Any,
    statistics: Any,
    dbias: Any = None,
) -> None:
    """Writes the gradient of a block of queries, and what the other gradients need of them.

    `statistics`, float32 [1, 3, L], are the largest logit of each query, the sum of exponentials
    below it, and what the gradient of a softmax subtracts. `dbias` is that of a bias of this row.
    """
    head = _Head(settings, lengths, refs, head=pl.program_id(1), row=pl.program_id(2))
    i = pl.program_id(0)
    block = head.block(i, lengths.of_queries)
    q, g_block = head.queries(refs.q, i), head.queries(g, i)

    def sums(j: Any, carry: tuple) -> tuple:
        logits, _ = head.logits(q, head.keys(refs.k, j), i, j)
        return _with(logits, *carry)[:2]

    top, summed = head.over_keys(sums, _nothing(q), i)
    products = g_block.astype(jnp.float32) * head.queries(values, i).astype(jnp.float32)
    along = products.sum(axis=1)
    for n, statistic in enumerate((top, summed, along)):
        statistics[0, n, block] = statistic

    def step(j: Any, total: jax.Array) -> jax.Array:
        k, v = head.keys(refs.k, j), head.keys(refs.v, j)
        _, dlogits = head.gradient(q, k, v, g_block, (top, summed, along), i, j)
        if dbias is not None:
            dbias[0, block, head.block(j, lengths.of_keys)] = dlogits
        return total + product(dlogits.astype(k.dtype), k, (1, 0))

    if dbias is not None:  # of keys that no query of the block sees, too
        dbias[0, block] = jnp.zeros((lengths.of_queries, dbias.shape[2]), dbias.dtype)
    dq[0, block] = head.over_keys(step, jnp.zeros(q.shape, jnp.float32), i).astype(dq.dtype)


def key_gradients(
    settings: Settings,
    lengths: Lengths,
    refs: Operands,
    g: Any,
    statistics: Any,
    dk: Any,
    dv: Any,
) -> None:
    """Writes the gradients of a block of keys and of its values."""
    head = _Head(settings, lengths, refs, head=pl.program_id(1), row=pl.program_id(2))
    j = pl.program_id(0)
    k, v = head.keys(refs.k, j), head.keys(refs.v, j)

    def step(i: Any, totals: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        q, g_block = head.queries(refs.q, i), head.queries(g, i)
        p, dlogits = head.gradient(q, k, v, g_block, head.statistics(statistics, i), i, j)
        p = dropped(p * settings.scale, head.kept(i, j)).astype(g_block.dtype)
        return (
            totals[0] + product(dlogits.astype(q.dtype), q, (0, 0)),
            totals[1] + product(p, g_block, (0, 0)),
        )

    zero = jnp.zeros((lengths.of_keys, settings.width), jnp.float32)
    block = head.block(j, lengths.of_keys)
    for ref, total in zip((dk, dv), head.over_queries(step, (zero, zero), j), strict=True):
        ref[0, block] = total.astype(ref.dtype)


def bias_gradient(
    settings: Settings, lengths: Lengths, refs: Operands, g: Any, statistics: Any, dbias: Any
) -> None:
    """Writes the sum over rows of the gradient of a block of the bias."""
    i, j, number = (pl.program_id(n) for n in range(3))

    def step(row: Any, total: jax.Array) -> jax.Array:
        head = _Head(settings, lengths, refs, head=number, row=row, index=row)
        q, g_block = head.queries(refs.q, i), head.queries(g, i)
        k, v = head.keys(refs.k, j), head.keys(refs.v, j)
        return total + head.gradient(q, k, v, g_block, head.statistics(statistics, i), i, j)[1]

    zero = jnp.zeros((lengths.of_queries, lengths.of_keys), jnp.float32)
    rows = pl.ds(i * lengths.of_queries, lengths.of_queries)
    columns = pl.ds(j * lengths.of_keys, lengths.of_keys)
    dbias[0, rows, columns] = jax.lax.fori_loop(0, refs.q.shape[0], step, zero)


class _Head:
    """A head of a row: `index` is the row's place in the refs, `row` its number on this device."""

    def __init__(
        self,
        settings: Settings,
        lengths: Lengths,
        refs: Operands,
        *,
        head: Any,
        row: Any,
        index: Any = 0,
    ) -> None:
        self.settings, self.lengths, self.refs = settings, lengths, refs
        self.head, self.row, self.index = head, row, index
        # Where queries are split among devices, those of this one start at a later number.
        self.first_query = refs.seed[5]

    def block(self, number: Any, size: int) -> Any:
        """The positions of a block."""
        return pl.ds(number * size, size)

    def queries(self, ref: Any, i: Any) -> jax.Array:
        return ref[self.index, self.block(i, self.lengths.of_queries)]

    def keys(self, ref: Any, j: Any) -> jax.Array:
        return ref[self.index, self.block(j, self.lengths.of_keys)]

    def statistics(self, ref: Any, i: Any) -> tuple[jax.Array, ...]:
        block = self.block(i, self.lengths.of_queries)
        return tuple(ref[self.index, n, block] for n in range(3))

    def over_keys(self, step: Any, carry: Any, i: Any) -> Any:
        """Over blocks of keys that a block of queries sees."""
        lengths, band = self.lengths, self.settings.band
        first = i * lengths.of_queries + self.first_query
        blocks = self.refs.k.shape[1] // lengths.of_keys
        near = band.blocks_of_keys(first, lengths.of_queries, lengths.of_keys, blocks)
        return jax.lax.fori_loop(*near, step, carry)

    def over_queries(self, step: Any, carry: Any, j: Any) -> Any:
        """Over blocks of queries that see a block of keys."""
        lengths, band = self.lengths, self.settings.band
        first = j * lengths.of_keys - self.first_query
        blocks = self.refs.q.shape[1] // lengths.of_queries
        near = band.blocks_of_queries(first, lengths.of_keys, lengths.of_queries, blocks)
        return jax.lax.fori_loop(*near, step, carry)

    def logits(
        self, q: jax.Array, k: jax.Array, i: Any, j: Any
    ) -> tuple[jax.Array, jax.Array | None]:
        """Float32, -inf for keys that were filled up; and which of them queries see, or None."""
        logits = product(q, k, (1, 1))
        rows = self.block(i, self.lengths.of_queries)
        columns = self.block(j, self.lengths.of_keys)
        if (bias := self.refs.bias) is not None:
            logits += bias[self.index if bias.shape[0] > 1 else 0, rows, columns]
        seen = self._seen(i, j, rows, columns)
        if seen is not None:
            logits = jnp.where(seen, logits, MASKED)
        if self.lengths.keys % self.lengths.of_keys:
            column = self._column(j, logits.shape)
            logits = jnp.where(column < self.lengths.keys, logits, -jnp.inf)
        return logits, seen

    def _seen(self, i: Any, j: Any, rows: Any, columns: Any) -> jax.Array | None:
        """Which of some keys, bool [L|1, M], queries see; None: all."""
        lengths = self.lengths
        first = i * lengths.of_queries + self.first_query
        shape = (lengths.of_queries, lengths.of_keys)
        conditions = [self.settings.band.seen(first, j * lengths.of_keys, shape)]
        if (mask := self.refs.mask) is not None:
            index = self.index if mask.shape[0] > 1 else 0
            of_mask = rows if mask.shape[1] > 1 else pl.ds(0, 1)
            conditions.append(mask[index, of_mask, columns].astype(jnp.int32) > 0)
        if (segments := self.refs.segments) is not None:
            of_queries = segments[self.index, rows][:, None]
            conditions.append(of_queries == self.refs.key_segments[self.index, columns][None])
        held = [condition for condition in conditions if condition is not None]
        return functools.reduce(jnp.logical_and, held) if held else None

    def gradient(
        self,
        q: jax.Array,
        k: jax.Array,
        v: jax.Array,
        g: jax.Array,
        statistics: tuple[jax.Array, ...],
        i: Any,
        j: Any,
    ) -> tuple[jax.Array, jax.Array]:
        """The probabilities before dropout, and the gradient of the logits: float32."""
        top, summed, along = (x[:, None] for x in statistics)
        logits, seen = self.logits(q, k, i, j)
        p = jnp.exp(logits - top) / summed
        dp = product(g, v, (1, 1)) * self.settings.scale
        dlogits = p * (dropped(dp, self.kept(i, j)) - along)
        return p, dlogits if seen is None else jnp.where(seen, dlogits, 0.0)

    def kept(self, i: Any, j: Any) -> jax.Array | None:
        """Which probabilities stay, as `dropout.dropout` drops of [B, H, L, M]; None if all do."""
        settings, lengths, seed = self.settings, self.lengths, self.refs.seed
        if not settings.dropped:
            return None
        low, high, row, head, heads, query, queries = (seed[n] for n in range(7))
        shape = (1 if settings.shared else lengths.of_queries, lengths.of_keys)
        half = -(-lengths.keys // 2)
        column = self._column(j, shape)
        before = (row + self.row) * heads + head + self.head
        if not settings.shared:
            own_query = jax.lax.broadcasted_iota(jnp.int32, shape, 0) + i * lengths.of_queries
            before = before * queries + query + own_query
        place = jnp.where(column >= half, column - half, column) + before * half
        words = hashed(place.astype(jnp.uint32), low.astype(jnp.uint32), high.astype(jnp.uint32))
        lower, upper = halves(words)
        return jnp.where(column >= half, upper, lower) >= settings.dropped

    def _column(self, j: Any, shape: tuple[int, ...]) -> jax.Array:
        return jax.lax.broadcasted_iota(jnp.int32, shape, 1) + j * self.lengths.of_keys


def _nothing(q: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The largest logit and the sum of exponentials before the first key."""
    # Not -inf: a bias may hide a whole block.
    least = jnp.full(q.shape[:1], jnp.finfo(jnp.float32).min)
    return least, jnp.zeros(q.shape[:1], jnp.float32)


def _with(
    logits: jax.Array, top: jax.Array, summed: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """The statistics with some more keys, the exponentials of these, and a factor for old sums."""
    new_top = jnp.maximum(top, logits.max(axis=1))
    e = jnp.exp(logits - new_top[:, None])
    rescale = jnp.exp(top - new_top)
    return new_top, summed * rescale + e.sum(axis=1), e, rescale
