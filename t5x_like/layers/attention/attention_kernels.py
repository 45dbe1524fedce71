"""Ways to compute attention; all have one signature, so that any model can use any of them.

A kernel takes queries [B, L, H, K] that are scaled, keys and values [B, M, H, K], a `mask` that
describes which keys a query sees (`masks.Mask`; its `dense` is an array), a float `bias` that
broadcasts to [B, H, L, M], and `drop`: dropout of the probabilities or None. In all of them, a
query that sees no key gets a mean of values.

Suffixes: B batch, L queries, M keys, H heads, K d_kv; N blocks of C keys.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from t5x_like.core.devices.chosen import is_ampere
from t5x_like.layers.attention.masks import ALIKE, Mask, Traits
from t5x_like.layers.basics.dropout import Dropping

_MASKED = -1e10  # finite: a row that sees no key at all gets a uniform softmax, not NaN


class KeysValues(NamedTuple):
    """The keys and values that queries attend to: two arrays [B, M, H, K]."""

    keys: jax.Array
    values: jax.Array


class Attended(NamedTuple):
    """Values [B, L, ...] and, if the kernel forms them, probabilities [B, H, L, M], undropped."""

    values: jax.Array
    probabilities: jax.Array | None


class Kernel(Protocol):
    """The kernel that `attention.attend` calls."""

    def __call__(
        self,
        q_BLHK: jax.Array,
        memory: KeysValues,
        *,
        mask: Mask | None,
        bias: jax.Array | None,
        drop: Dropping | None,
    ) -> Attended: ...


def plain(
    q_BLHK: jax.Array,
    memory: KeysValues,
    *,
    mask: Mask | None,
    bias: jax.Array | None,
    drop: Dropping | None,
) -> Attended:
    """Forms all logits; float32 softmax. Supports bias, dropout and probabilities."""
    pairs = (q_BLHK.shape[1], memory.keys.shape[1])
    seen = None if mask is None else mask.dense(*pairs)
    logits_BHLM = masked_logits(q_BLHK, memory.keys, seen=seen, bias=bias)
    p_BHLM = jax.nn.softmax(logits_BHLM, axis=-1).astype(memory.values.dtype)
    dropped_BHLM = p_BHLM if drop is None else drop(p_BHLM)
    return Attended(jnp.einsum("bhlm,bmhk->blhk", dropped_BHLM, memory.values), p_BHLM)


def fused(
    q_BLHK: jax.Array,
    memory: KeysValues,
    *,
    mask: Mask | None,
    bias: jax.Array | None,
    drop: Dropping | None,
) -> Attended:
    """cuDNN's flash attention through JAX where it can compute it; elsewhere the same as `plain`.

    It can on NVIDIA's Ampere and later, for 16-bit floats, d_kv a multiple of 8 up to 128, and even
    lengths.

    Raises:
      ValueError: the probabilities, which are not formed, would need dropout.
    """
    _no_dropout(drop)
    if not suits_cudnn(q_BLHK, memory.keys):
        values_BLHK, _ = plain(q_BLHK, memory, mask=mask, bias=bias, drop=None)
        return Attended(values_BLHK, None)
    pairs = (q_BLHK.shape[1], memory.keys.shape[1])  # cuDNN wants them in full and in one dtype
    seen = None if mask is None else mask.dense(*pairs)
    values_BLHK = jax.nn.dot_product_attention(
        q_BLHK,
        *memory,
        bias=None if bias is None else broadcast_pairs(bias, pairs).astype(q_BLHK.dtype),
        mask=None if seen is None else broadcast_pairs(seen, pairs),
        scale=1.0,
        implementation="cudnn",
    )
    return Attended(values_BLHK, None)


def blocked(
    q_BLHK: jax.Array,
    memory: KeysValues,
    *,
    mask: Mask | None,
    bias: jax.Array | None,
    drop: Dropping | None,
    block: int = 512,
) -> Attended:
    """Takes `block` keys at a time, in both passes: memory grows with L + M, not with L * M.

    The softmax is combined block by block (Rabe and Staats, 2021; FlashAttention, section 3.1);
    the backward pass computes each block's logits again. Only a `bias` of [L, M] stays large.

    Raises:
      ValueError: dropout does not draw the random numbers `counter`, or `block` < 1.
    """
    if block < 1:
        raise ValueError(f"attention_kernels.blocked.block must be at least 1, got {block}")
    keys = memory.keys.shape[1]
    block = min(block, keys)

    def split(x: jax.Array, axis: int) -> jax.Array:
        """Turns [..., M, ...] into [N, ..., C, ...], filled up with zeros."""
        x = jnp.pad(x, [(0, -keys % block if d == axis else 0) for d in range(x.ndim)])
        x = x.reshape(*x.shape[:axis], -1, block, *x.shape[axis + 1 :])
        return jnp.moveaxis(x, axis, 0)

    columns = split(jnp.arange(keys), 0)
    blocks = _Blocks(
        keys=split(memory.keys, 1),
        values=split(memory.values, 1),
        exists=split(jnp.ones(keys, bool), 0) if keys % block else None,
        mask=None if mask is None else _split_keys(mask, split, columns, keys),
        bias=None if bias is None else split(broadcast_pairs(bias, (1, keys)), 3),
        columns=columns,
    )
    asking = ALIKE if mask is None else mask.queries
    key, draws = None, None
    if drop is not None:
        key, draws = drop.key, _Draws(drop.rate, drop.shared, keys)
    values_BLHK = _over_blocks(q_BLHK, blocks, asking, key, draws)
    return Attended(values_BLHK.astype(memory.values.dtype), None)


def _split_keys(
    mask: Mask, split: Callable[[jax.Array, int], jax.Array], columns: jax.Array, keys: int
) -> Mask:
    """A mask whose traits of keys are in blocks, [N, ...]; those of queries are left out."""
    traits = mask.keys
    return dataclasses.replace(
        mask,
        present=None if mask.present is None else split(mask.present, 1),
        queries=ALIKE,
        keys=Traits(
            positions=columns
            if traits.positions is None
            else split(traits.positions, traits.positions.ndim - 1),
            **{
                name: None if value is None else split(value, 1)
                for name, value in traits._asdict().items()
                if name != "positions"
            },
        ),
        pairs=None if mask.pairs is None else split(broadcast_pairs(mask.pairs, (1, keys)), 3),
    )


class _Blocks(NamedTuple):
    """Keys and what belongs to them, in blocks; `exists` is false where the last is filled up."""

    keys: jax.Array  # [N, B, C, H, K]
    values: jax.Array  # [N, B, C, H, K]
    exists: jax.Array | None  # bool [N, C]; None where all blocks are full
    mask: Mask | None  # without traits of queries
    bias: jax.Array | None  # float, broadcasts to [N, B, H, L, C]
    columns: Any  # integers [N, C], the numbers of the keys

    def logits(self, q_BLHK: jax.Array, asking: Traits) -> jax.Array:
        """The logits of one block, float32 [B, H, L, C], for queries with these traits."""
        seen = None
        if self.mask is not None:
            whole = dataclasses.replace(self.mask, queries=asking)
            seen = whole.dense(q_BLHK.shape[1], self.keys.shape[1])
        logits_BHLC = masked_logits(q_BLHK, self.keys, seen=seen, bias=self.bias)
        return logits_BHLC if self.exists is None else jnp.where(self.exists, logits_BHLC, -jnp.inf)


class _Draws(NamedTuple):
    """The rate of dropout, whether queries share it, and the number of keys."""

    rate: float
    shared: bool
    keys: int

    def drop(self, p_BHLC: jax.Array, key: jax.Array, columns_C: jax.Array) -> jax.Array:
        drop = Dropping(key, self.rate, self.shared)
        queries = p_BHLC.shape[2]
        return drop.of_part(p_BHLC, jnp.arange(queries), columns_C, of=(queries, self.keys))


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _over_blocks(
    q_BLHK: jax.Array, blocks: _Blocks, asking: Traits, key: Any, draws: _Draws | None
) -> jax.Array:
    """The values of all blocks, weighted: float32 [B, L, H, K]."""
    return _over_blocks_fwd(q_BLHK, blocks, asking, key, draws)[0]


def _over_blocks_fwd(
    q_BLHK: jax.Array, blocks: _Blocks, asking: Traits, key: Any, draws: _Draws | None
) -> tuple[jax.Array, Any]:
    def step(carry: tuple, block: _Blocks) -> tuple[tuple, None]:
        top_BHL, total_BHL, sum_BLHK = carry
        logits_BHLC = block.logits(q_BLHK, asking)
        new_top_BHL = jnp.maximum(top_BHL, logits_BHLC.max(axis=-1))
        p_BHLC = jnp.exp(logits_BHLC - new_top_BHL[..., None])
        # The sums so far are relative to the largest logit so far.
        rescale_BHL = jnp.exp(top_BHL - new_top_BHL)
        total_BHL = total_BHL * rescale_BHL + p_BHLC.sum(axis=-1)
        if draws is not None:
            p_BHLC = draws.drop(p_BHLC, key, block.columns)
        sum_BLHK = sum_BLHK * _to_queries(rescale_BHL) + _mix(p_BHLC, block.values)
        return (new_top_BHL, total_BHL, sum_BLHK), None

    B, L, H, _ = q_BLHK.shape
    top_BHL = jnp.full((B, H, L), jnp.finfo(jnp.float32).min)
    total_BHL = jnp.zeros((B, H, L))
    sum_BLHK = jnp.zeros((B, L, H, blocks.values.shape[-1]))
    last, _ = jax.lax.scan(step, (top_BHL, total_BHL, sum_BLHK), blocks)
    top_BHL, total_BHL, sum_BLHK = last
    y_BLHK = sum_BLHK / _to_queries(total_BHL)
    return y_BLHK, (q_BLHK, blocks, asking, key, top_BHL, total_BHL, y_BLHK)


def _over_blocks_bwd(
    draws: _Draws | None, saved: Any, g_BLHK: jax.Array
) -> tuple[jax.Array, _Blocks, None, None]:
    q_BLHK, blocks, asking, key, top_BHL, total_BHL, y_BLHK = saved
    # The gradient of a softmax subtracts the mean of its row.
    mean_BHL = jnp.einsum("blhk,blhk->bhl", g_BLHK, y_BLHK)
    g_BLHK = g_BLHK.astype(blocks.values.dtype)

    def step(dq_BLHK: jax.Array, block: _Blocks) -> tuple[jax.Array, _Blocks]:
        def logits(q_BLHK: jax.Array, keys: jax.Array, bias: jax.Array | None) -> jax.Array:
            return block._replace(keys=keys, bias=bias).logits(q_BLHK, asking)

        logits_BHLC, pull = jax.vjp(logits, q_BLHK, block.keys, block.bias)
        p_BHLC = jnp.exp(logits_BHLC - top_BHL[..., None]) / total_BHL[..., None]
        dp_BHLC, dropped_BHLC = _products(g_BLHK, block.values), p_BHLC
        if draws is not None:
            dp_BHLC, dropped_BHLC = (draws.drop(x, key, block.columns) for x in (dp_BHLC, p_BHLC))
        dvalues = jnp.einsum("bhlm,blhk->bmhk", dropped_BHLC.astype(g_BLHK.dtype), g_BLHK)
        dq, dkeys, dbias = pull(p_BHLC * (dp_BHLC - mean_BHL[..., None]))
        return dq_BLHK + dq, _Blocks(dkeys, dvalues, None, None, dbias, None)

    dq_BLHK, dblocks = jax.lax.scan(step, jnp.zeros(q_BLHK.shape), blocks)
    return dq_BLHK.astype(q_BLHK.dtype), dblocks, None, None


_over_blocks.defvjp(_over_blocks_fwd, _over_blocks_bwd)


def _products(x_BLHK: jax.Array, y_BMHK: jax.Array) -> jax.Array:
    """The logits of each query and key, float32 [B, H, L, M]."""
    return jnp.einsum("blhk,bmhk->bhlm", x_BLHK, y_BMHK, preferred_element_type=jnp.float32)


def masked_logits(
    q_BLHK: jax.Array, keys_BMHK: jax.Array, *, seen: jax.Array | None, bias: jax.Array | None
) -> jax.Array:
    """Products with bias, masked where a key is not seen: float32 [B, H, L, M]."""
    logits_BHLM = _products(q_BLHK, keys_BMHK)
    if bias is not None:
        logits_BHLM += bias
    return logits_BHLM if seen is None else jnp.where(seen, logits_BHLM, _MASKED)


def _mix(p_BHLM: jax.Array, values_BMHK: jax.Array) -> jax.Array:
    """Sums of values by weights, multiplied in the values' dtype: float32 [B, L, H, K]."""
    return jnp.einsum(
        "bhlm,bmhk->blhk",
        p_BHLM.astype(values_BMHK.dtype),
        values_BMHK,
        preferred_element_type=jnp.float32,
    )


def _to_queries(x_BHL: jax.Array) -> jax.Array:
    """Turns [B, H, L] into factors for [B, L, H, K]."""
    return x_BHL.swapaxes(1, 2)[..., None]


def broadcast_pairs(x: jax.Array, pairs: tuple[int, int]) -> jax.Array:
    """Four dimensions, the last two of which are at least `pairs`."""
    x = x.reshape((1,) * (4 - x.ndim) + x.shape)
    return jnp.broadcast_to(x, (*x.shape[:2], *map(max, x.shape[2:], pairs)))


def suits_cudnn(q_BLHK: jax.Array, keys_BMHK: jax.Array) -> bool:
    """Whether cuDNN can compute it, on this machine's device."""
    width, lengths = q_BLHK.shape[-1], (q_BLHK.shape[1], keys_BMHK.shape[1])
    return (
        is_ampere(jax.devices()[0])
        and q_BLHK.dtype in (jnp.bfloat16, jnp.float16)
        and width % 8 == 0
        and width <= 128
        and all(length % 2 == 0 for length in lengths)
    )


def _no_dropout(drop: object) -> None:
    if drop is not None:
        raise ValueError(
            "this attention kernel forms no probabilities to drop: set attention_dropout_rate (in "
            "T5: dropout_rate) to 0, or use attention_kernels.blocked or .plain"
        )
