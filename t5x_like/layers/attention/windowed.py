"""Attention through a window, by XLA on any device: a block of queries with the keys near it.

Suffixes: B batch, L queries and keys, H heads, K d_kv; N blocks of C queries, each with S keys; G
chosen positions.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from t5x_like.core.counter_random import is_counter
from t5x_like.layers.attention.attention_kernels import (
    Attended,
    KeysValues,
    blocked,
    broadcast_pairs,
    masked_logits,
)
from t5x_like.layers.attention.masks import Chosen, Mask, Traits
from t5x_like.layers.basics.dropout import Dropping

_LEAST = 64
"""Queries of a block, at least: products of fewer are slow."""


def windowed(
    q_BLHK: jax.Array,
    memory: KeysValues,
    *,
    mask: Mask | None,
    bias: jax.Array | None,
    drop: Dropping | None,
    block: int | None = None,
) -> Attended:
    """Time and memory grow with L times the window, in both passes: the backward pass repeats it.

    Chosen positions are computed beside (Longformer, section 3.2). `block` is the number of queries
    that are taken at a time; None: as many as a window is wide.

    Raises:
      ValueError: it cannot compute the case (`unsuited`), or `block` < 1.
    """
    if reason := unsuited(q_BLHK, memory, mask=mask, bias=bias, drop=drop):
        raise ValueError(f"attention through a window: {reason}; use attention_kernels.blocked")
    assert mask is not None
    if block is not None and block < 1:
        raise ValueError(f"windowed.windowed.block must be at least 1, got {block}")
    cut = _Cut.of(mask, q_BLHK.shape[1], block)
    if not mask.chooses:
        return Attended(_near(cut, q_BLHK, memory, mask, bias=bias, drop=drop), None)
    return Attended(_with_chosen(cut, q_BLHK, memory, mask, drop), None)


def unsuited(
    q_BLHK: jax.Array,
    memory: KeysValues,
    *,
    mask: Mask | None,
    bias: jax.Array | None,
    drop: Dropping | None,
) -> str | None:
    """Why it cannot compute the case; None if it can."""
    if mask is None or mask.window is None:
        return "there is no window"
    if q_BLHK.shape[1] != memory.keys.shape[1]:
        return "a query's place is not that of its key"
    if not mask.by_place:
        return "positions are given without segments, so that places do not say what is near"
    if mask.pairs is not None:
        return "the mask has a condition for each pair"
    if mask.chooses:
        if mask.most_chosen is None:
            return "Mask.most_chosen does not say how many positions are chosen"
        if bias is not None or mask.itself:
            return "where positions are chosen there is no bias, and no query sees itself besides"
        if drop is not None and mask.queries.chosen is not None:
            return "chosen queries have no dropout"
    if drop is not None and not is_counter(drop.key):
        return f"dropout draws {jax.random.key_impl(drop.key)} and not counter"
    return None


def saves(mask: Mask | None, length: int) -> bool:
    """Whether a block of queries sees at most half of a row of this length."""
    if mask is None or mask.window is None:
        return False
    return 2 * _Cut.of(mask, length, None).keys <= length


class Beside(NamedTuple):
    """Keys that all queries may see, besides those near them.

    Attributes:
      memory: their keys and values, [B, G, H, K].
      mask: how queries see them; what it says of keys is [B, G].
      places: int32 [B, G], those of keys of the row; None: they are no keys of the row.
      bias: from places of queries, int32 [C], to float that broadcasts to [B, H, C, G]; None: 0.
    """

    memory: KeysValues
    mask: Mask
    places: jax.Array | None = None
    bias: Callable[[jax.Array], jax.Array] | None = None

    def logits(self, q_BCHK: jax.Array, near: Mask, queries_C: jax.Array) -> jax.Array:
        """[B, H, C, G], for a block of queries, of which `near` says what there is to say."""
        mask = dataclasses.replace(self.mask, queries=near.queries)
        seen = mask.dense(q_BCHK.shape[1], self.memory.keys.shape[1])
        bias = None if self.bias is None else self.bias(queries_C)
        return masked_logits(q_BCHK, self.memory.keys, seen=seen, bias=bias)

    def columns(self, length: int) -> tuple[jax.Array, int]:
        """The numbers of their probabilities, of all those of a query, int32 [B|1, G]."""
        if self.places is not None:
            return self.places, length
        count = self.memory.keys.shape[1]
        return length + jnp.arange(count)[None], length + count


def with_keys_beside(
    q_BLHK: jax.Array,
    memory: KeysValues,
    *,
    mask: Mask,
    block: int,
    near_bias: jax.Array | None,
    beside: Beside | None,
    drop: Dropping | None,
) -> jax.Array:
    """Attention through a window and to keys beside it, in one softmax: values [B, L, H, K].

    Args:
      q_BLHK: the queries.
      memory: the keys and values of the row, [B, L, H, K].
      mask: has a window; nothing is chosen.
      block: C, how many queries are taken at a time.
      near_bias: float, broadcasts to [B, H, C, S], of the queries of any block and the keys around
        it, from as many places before its first query as the window reaches; `keys_of_block` is S.
      beside: the other keys; None: there are none.
      drop: dropout of the probabilities.

    Raises:
      ValueError: the mask is none of a window by places, or the dropout does not draw `counter`.
    """
    if reason := unsuited(q_BLHK, memory, mask=mask, bias=None, drop=drop):
        raise ValueError(f"attention through a window and beside it: {reason}")
    cut = _Cut.of(mask, q_BLHK.shape[1], block)
    return _near(cut, q_BLHK, memory, mask, near_bias=near_bias, beside=beside, drop=drop)


def keys_of_block(mask: Mask, length: int, block: int) -> tuple[int, int, int]:
    """C and S of a row of this length, and how many keys are before the first query."""
    cut = _Cut.of(mask, length, block)
    return cut.size, cut.keys, cut.before


class _Cut(NamedTuple):
    """How a row is cut: N blocks of C queries; a block sees S keys from `before` its first on."""

    length: int
    blocks: int
    size: int
    before: int
    keys: int

    @classmethod
    def of(cls, mask: Mask, length: int, block: int | None) -> _Cut:
        assert mask.reach is not None
        before, after = (min(side, length) for side in mask.reach)
        size = min(length, max(_LEAST, before + after) if block is None else block)
        return cls(length, -(-length // size), size, before, size + before + after)

    def queries(self, x: jax.Array) -> jax.Array:
        """[B, L, ...] as blocks [N, B, C, ...], filled up with zeros."""
        return self._split(x, 0, self.blocks)

    def near(self, x: jax.Array) -> jax.Array:
        """[B, L, ...] as what each block sees: [N, B, S, ...], zeros outside of the row."""
        more = -(-(self.keys - self.size) // self.size)
        blocks = self._split(x, self.before, self.blocks + more)
        pieces = [blocks[n : n + self.blocks] for n in range(more + 1)]
        pieces[-1] = pieces[-1][:, :, : self.keys - more * self.size]
        return jnp.concatenate(pieces, axis=2)

    def joined(self, x: jax.Array) -> jax.Array:
        """The inverse of `queries`."""
        x = jnp.moveaxis(x, 0, 1)
        return x.reshape(len(x), -1, *x.shape[3:])[:, : self.length]

    def bias(self, bias: jax.Array) -> jax.Array:
        """[N, B|1, H|1, C, S] of a bias that broadcasts to [B, H, L, L]."""
        bias = broadcast_pairs(bias, (self.length, self.length))
        filled = self.blocks * self.size - self.length
        last = self.blocks * self.size - self.size - self.before + self.keys
        around = ((0, filled), (self.before, last - self.length))
        padded = jnp.pad(bias, ((0, 0), (0, 0), *around))
        starts = range(0, self.blocks * self.size, self.size)
        return jnp.stack([padded[:, :, at : at + self.size, at : at + self.keys] for at in starts])

    def _split(self, x: jax.Array, first: int, blocks: int) -> jax.Array:
        around = (first, blocks * self.size - first - self.length)
        x = jnp.pad(x, [around if axis == 1 else (0, 0) for axis in range(x.ndim)])
        return jnp.moveaxis(x.reshape(len(x), blocks, self.size, *x.shape[2:]), 1, 0)


class _Block(NamedTuple):
    """The operands of a block of queries: arrays [N, B, C, ...], or [N, B, S, ...] of keys."""

    number: jax.Array
    q: jax.Array
    memory: KeysValues
    mask: Mask
    bias: jax.Array | None


def _near(
    cut: _Cut,
    q_BLHK: jax.Array,
    memory: KeysValues,
    mask: Mask,
    *,
    bias: jax.Array | None = None,
    drop: Dropping | None = None,
    near_bias: jax.Array | None = None,
    beside: Beside | None = None,
) -> jax.Array:
    """The values [B, L, H, K]; a bias is that of all pairs, or one of the near keys."""
    rows = len(q_BLHK)
    blocks = _Block(
        jnp.arange(cut.blocks),
        cut.queries(q_BLHK),
        KeysValues(*map(cut.near, memory)),
        dataclasses.replace(
            mask,
            present=None if mask.present is None else cut.near(mask.present),
            queries=_cut_traits(mask.queries, rows, cut.queries),
            keys=_cut_traits(mask.keys, rows, cut.near),
        ),
        None if bias is None else cut.bias(bias),
    )

    # A loop's second computation cannot be merged with the first.
    @functools.partial(jax.checkpoint, prevent_cse=False)
    def of_block(block: _Block) -> jax.Array:
        first = block.number * cut.size
        queries_C = first + jnp.arange(cut.size)
        columns_S = first - cut.before + jnp.arange(cut.keys)
        whole = _placed(block.mask, queries_C, columns_S)
        seen = whole.dense(cut.size, cut.keys)
        bias = near_bias if block.bias is None else block.bias
        logits = masked_logits(block.q, block.memory.keys, seen=seen, bias=bias)
        exists_S = (columns_S >= 0) & (columns_S < cut.length)
        logits = jnp.where(exists_S, logits, -jnp.inf)
        values, columns, last = block.memory.values, columns_S, cut.length
        if beside is not None:
            more = beside.logits(block.q, whole, queries_C)
            logits = jnp.concatenate([logits, more], axis=-1)
            values = jnp.concatenate([values, beside.memory.values], axis=1)
            others, last = beside.columns(cut.length)
            near_columns = jnp.broadcast_to(columns_S, (len(others), cut.keys))
            columns = jnp.concatenate([near_columns, others], axis=1)
        p_BHCS = jax.nn.softmax(logits, axis=-1)
        if drop is not None:
            p_BHCS = drop.of_part(p_BHCS, queries_C, columns, of=(cut.length, last))
        return jnp.einsum("bhcs,bshk->bchk", p_BHCS.astype(values.dtype), values)

    return cut.joined(jax.lax.map(of_block, blocks))


def _cut_traits(traits: Traits, rows: int, cut: Any) -> Traits:
    def one(x: jax.Array | None) -> jax.Array | None:
        return None if x is None else cut(jnp.broadcast_to(x, (rows, x.shape[-1])))

    return Traits(*map(one, traits))


def _placed(mask: Mask, queries: jax.Array, keys: jax.Array) -> Mask:
    """A mask whose positions are those places, unless others are given."""

    def placed(traits: Traits, places: jax.Array) -> Traits:
        return traits._replace(positions=places) if traits.positions is None else traits

    return dataclasses.replace(
        mask, queries=placed(mask.queries, queries), keys=placed(mask.keys, keys)
    )


def _choosing_nothing(mask: Mask) -> Mask:
    return dataclasses.replace(
        mask,
        queries=mask.queries._replace(chosen=None),
        keys=mask.keys._replace(chosen=None),
    )


def _with_chosen(
    cut: _Cut, q_BLHK: jax.Array, memory: KeysValues, mask: Mask, drop: Dropping | None
) -> jax.Array:
    """The values where some queries see all, or all see some keys."""
    assert mask.most_chosen is not None
    rows, length = q_BLHK.shape[:2]
    places = jnp.arange(length)
    near = _placed(_choosing_nothing(mask), places, places)
    open_mask = dataclasses.replace(near, window=None)
    present_BL = jnp.ones((rows, length), bool) if mask.present is None else mask.present > 0
    beside = None
    if mask.keys.chosen is not None:
        of_keys = jnp.broadcast_to(mask.keys.chosen, (rows, length))
        keys = Chosen.of_row(of_keys, mask.most_chosen)
        seen = dataclasses.replace(
            open_mask,
            present=keys.of(present_BL) & keys.exists,
            keys=_cut_traits(near.keys, rows, keys.of),
        )
        beside = Beside(KeysValues(*map(keys.of, memory)), seen, places=keys.places)
        # A chosen key is seen beside, and not once more where it is near.
        near = dataclasses.replace(near, present=present_BL & ~of_keys)
    values = _near(cut, q_BLHK, memory, near, drop=drop, beside=beside)
    if mask.keys.chosen is not None:
        values = keys.or_nan(values)
    if mask.queries.chosen is None:
        return values
    of_queries = jnp.broadcast_to(mask.queries.chosen, (rows, length))
    queries = Chosen.of_row(of_queries, mask.most_chosen)
    asking = dataclasses.replace(
        open_mask, present=present_BL, queries=_cut_traits(near.queries, rows, queries.of)
    )
    whole = blocked(queries.of(q_BLHK), memory, mask=asking, bias=None, drop=None).values
    return queries.or_nan(queries.put(values, whole))
