"""Attention as a Pallas kernel for TPUs: no array of queries times keys leaves the chip's memory.

A grid step takes all queries and keys of some heads of one row: parts of the queries took longer.
The backward pass computes the probabilities again from queries and keys; what a softmax's gradient
subtracts comes from the values that the forward pass returned (FlashAttention-2, Dao, 2023, section
2.3.2). Heads lie side by side in blocks of 128 lanes, as the projections leave them, so nothing is
copied around the kernel: a head that is narrower than a block is multiplied with zeros in place of
its neighbours, which costs the matrix unit nothing.

Suffixes: B batch, L queries, M keys, J joined heads, H heads.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from t5x_like.core.counter_random import hashed

LANES = 128
_MASKED = -1e10
_STEP = 2 * 512 * 512
"""Queries times keys times heads of a grid step: its arrays fit the chip's memory, and it is long
beside what starting a step costs."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """What stays the same from call to call.

    Attributes:
      width: the width of a head, a divisor or a multiple of 128.
      dropped: how many of 2**16 draws drop a probability.
      shared: whether all queries of a head drop the same keys.
      vmem: bytes of the chip's memory that it may take.
      interpret: whether the kernel runs as plain JAX, on any device.
    """

    width: int
    dropped: int = 0
    shared: bool = False
    vmem: int = 64 * 2**20
    interpret: bool = False

    @property
    def scale(self) -> float:
        """What probabilities that stay are multiplied with."""
        return 2**16 / (2**16 - self.dropped)


class Operands(NamedTuple):
    """Arrays, or in the kernel their blocks.

    `q` is [B, L, J], `k` and `v` are [B, M, J]; `mask` is int8 [B|1, L|1, M], `bias` float32
    [B|1, H, L, M]. `seed`, int32 [5], holds both words of a key of `counter_random`, the numbers of
    the first row and of the first head, and how many heads there are on all devices.
    """

    q: Any
    k: Any
    v: Any
    mask: Any
    bias: Any
    seed: Any


def forward(settings: Settings, operands: Operands) -> jax.Array:
    """Values [B, L, J], in the dtype of `q`."""
    grid = _Grid(settings, operands)

    def kernel(seed: Any, *refs: Any) -> None:
        *inputs, o = refs
        _forward(settings, grid.named(inputs, seed), o)

    return grid.call(kernel, (), [operands.q])[0]


def backward(
    settings: Settings, operands: Operands, values: jax.Array, g: jax.Array
) -> list[jax.Array]:
    """The gradients of q, k and v, and of a bias: summed over rows if they share it.

    Args:
      settings, operands: those of `forward`.
      values: what it returned, and
      g: the gradient of this.
    """
    grid = _Grid(settings, operands)

    def kernel(seed: Any, *refs: Any) -> None:
        inputs, (values, g, *outputs) = refs[: grid.number], refs[grid.number :]
        _backward(settings, grid.named(inputs, seed), (values, g), outputs, sums=sums)

    bias = [] if operands.bias is None else [operands.bias]
    sums = bool(bias) and operands.bias.shape[0] == 1
    return grid.call(kernel, (values, g), [operands.q, operands.k, operands.v, *bias])


class _Grid:
    """Steps over groups of heads, and within each over rows: so the bias of a group stays."""

    def __init__(self, settings: Settings, operands: Operands) -> None:
        self.settings, self.operands = settings, operands
        rows, queries, joined = operands.q.shape
        keys = operands.k.shape[1]
        block = max(LANES, settings.width)
        blocks = joined // block if joined % block == 0 else 1
        if blocks == 1:
            block = joined
        per_block = queries * keys * (block // settings.width)
        fitting = range(1, max(_STEP // per_block, 1) + 1)
        at_once = max(n for n in fitting if blocks % n == 0)
        self.lanes = at_once * block
        self.heads = self.lanes // settings.width
        self.grid = (joined // self.lanes, rows)
        self.given = [x for x in operands[:5] if x is not None]
        self.number = len(self.given)

    def spec(self, x: jax.Array) -> pl.BlockSpec:
        """How an operand is cut: joined heads, a mask or a bias."""
        own_row = x.shape[0] > 1
        if x.ndim == 4:
            return pl.BlockSpec(
                (1, self.heads, *x.shape[2:]), lambda h, b, *_: (b if own_row else 0, h, 0, 0)
            )
        if x.dtype == jnp.int8:
            return pl.BlockSpec((1, *x.shape[1:]), lambda h, b, *_: (b if own_row else 0, 0, 0))
        return pl.BlockSpec((1, x.shape[1], self.lanes), lambda h, b, *_: (b, 0, h))

    def named(self, refs: Any, seed: Any) -> Operands:
        left = iter(refs)
        q, k, v, mask, bias = (None if x is None else next(left) for x in self.operands[:5])
        return Operands(q, k, v, mask, bias, seed)

    def call(self, kernel: Any, more: tuple, outputs: list[jax.Array]) -> list[jax.Array]:
        arrays = [*self.given, *more]
        return pl.pallas_call(
            kernel,
            out_shape=[jax.ShapeDtypeStruct(x.shape, x.dtype) for x in outputs],
            grid_spec=pltpu.PrefetchScalarGridSpec(
                num_scalar_prefetch=1,
                grid=self.grid,
                in_specs=[self.spec(x) for x in arrays],
                out_specs=[self.spec(x) for x in outputs],
            ),
            compiler_params=pltpu.CompilerParams(
                # Two cores of a chip take different heads.
                dimension_semantics=("parallel", "arbitrary"),
                vmem_limit_bytes=self.settings.vmem,
            ),
            cost_estimate=self.cost(arrays, outputs),
            interpret=self.settings.interpret,
            name="attend_backward" if more else "attend_forward",
        )(self.operands.seed, *arrays)

    def cost(self, arrays: list[jax.Array], outputs: list[jax.Array]) -> pl.CostEstimate:
        """What a call does; a narrow head is multiplied as a whole block of lanes."""
        q, k = self.operands.q, self.operands.k
        heads = q.shape[-1] // self.settings.width
        pairs = q.shape[0] * q.shape[1] * k.shape[1] * heads
        products = 2 if len(outputs) == 1 else 5
        return pl.CostEstimate(
            flops=2 * products * pairs * max(LANES, self.settings.width),
            transcendentals=pairs,
            bytes_accessed=sum(x.size * x.dtype.itemsize for x in (*arrays, *outputs)),
        )


class _Head(NamedTuple):
    """A head of a step: its number there, its block of lanes, and which of these are its own."""

    number: int
    lanes: slice
    own: jax.Array | None

    def of(self, x: jax.Array) -> jax.Array:
        """`x`, with zeros in the lanes of other heads."""
        return x if self.own is None else jnp.where(self.own, x, jnp.zeros((), x.dtype))

    def put(self, whole: jax.Array | None, part: jax.Array) -> jax.Array:
        """`whole` with the lanes of this head from `part`."""
        return part if whole is None or self.own is None else jnp.where(self.own, part, whole)


def _blocks(lanes: int, width: int) -> Iterator[list[_Head]]:
    """The heads of a step, block by block."""
    for start in range(0, lanes, max(LANES, width)):
        stop = min(start + max(LANES, width), lanes)
        lane = jax.lax.broadcasted_iota(jnp.int32, (1, stop - start), 1)
        alone = stop - start == width
        yield [
            _Head(
                (start + first) // width,
                slice(start, stop),
                None if alone else (lane >= first) & (lane < first + width),
            )
            for first in range(0, stop - start, width)
        ]


def _forward(settings: Settings, refs: Operands, o: Any) -> None:
    for block in _blocks(refs.q.shape[-1], settings.width):
        lanes = block[0].lanes
        q, k, v = (x[0, :, lanes] for x in refs[:3])
        whole = None
        for head in block:
            e, _ = _exponentials(refs, q, k, head)
            # Rows are divided by their sums where they are narrow.
            scale = settings.scale / e.sum(axis=-1, keepdims=True)
            e = _dropped(e, _keep(settings, refs, head, e.shape))
            whole = head.put(whole, _product(e.astype(v.dtype), v, (1, 0)) * scale)
        assert whole is not None
        o[0, :, lanes] = whole.astype(o.dtype)


def _backward(settings: Settings, refs: Operands, more: Any, outputs: Any, *, sums: bool) -> None:
    dq, dk, dv, *dbias = outputs
    if sums:

        @pl.when(pl.program_id(1) == 0)
        def _() -> None:
            dbias[0][...] = jnp.zeros_like(dbias[0])

    for block in _blocks(refs.q.shape[-1], settings.width):
        lanes = block[0].lanes
        q, k, v, values, g = (x[0, :, lanes] for x in (*refs[:3], *more))
        wholes: list[Any] = [None, None, None]
        for head in block:
            e, top = _exponentials(refs, q, k, head)
            keep = _keep(settings, refs, head, e.shape)
            # Rows are divided by their sums where they are narrow.
            g_head = head.of(g).astype(jnp.float32) / e.sum(axis=-1, keepdims=True)
            # A query that sees no key has uniform probabilities, whatever its logits are.
            g_seen = g_head if refs.mask is None else jnp.where(top > _MASKED / 2, g_head, 0.0)
            along = (g_seen * values).sum(axis=-1, keepdims=True)
            dp = _product((g_seen * settings.scale).astype(v.dtype), v, (1, 1))
            dlogits = e * (_dropped(dp, keep) - along)
            if sums:
                dbias[0][0, head.number] += dlogits
            elif dbias:
                dbias[0][0, head.number] = dlogits.astype(dbias[0].dtype)
            ds = dlogits.astype(q.dtype)
            e = _dropped(e, keep).astype(g.dtype)
            parts = (
                _product(ds, k, (1, 0)),
                _product(ds, q, (0, 0)),
                _product(e, (g_head * settings.scale).astype(g.dtype), (0, 0)),
            )
            wholes = [head.put(*pair) for pair in zip(wholes, parts, strict=True)]
        for ref, whole in zip((dq, dk, dv), wholes, strict=True):
            ref[0, :, lanes] = whole.astype(ref.dtype)


def _exponentials(
    refs: Operands, q: jax.Array, k: jax.Array, head: _Head
) -> tuple[jax.Array, jax.Array]:
    """exp(logits - top), float32 [L, M], and top [L, 1], the largest logit of each query.

    Divided by its sum, a row holds the probabilities before dropout.
    """
    logits = _product(head.of(q), k, (1, 1))
    if refs.bias is not None:
        logits += refs.bias[0, head.number].astype(jnp.float32)
    if refs.mask is not None:
        logits = jnp.where(refs.mask[0].astype(jnp.int32) > 0, logits, _MASKED)
    top = logits.max(axis=-1, keepdims=True)
    return jnp.exp(logits - top), top


def _keep(
    settings: Settings, refs: Operands, head: _Head, shape: tuple[int, ...]
) -> jax.Array | None:
    """Which probabilities stay: those that `dropout.dropout` keeps of [B, H, L, M].

    A random word decides about two keys, which lie half of all keys apart.
    """
    if not settings.dropped:
        return None
    queries, keys = (1 if settings.shared else shape[0]), shape[1]
    half = -(-keys // 2)
    whole_blocks = keys % (2 * LANES) == 0  # then both halves are drawn at once
    columns = half if whole_blocks else keys
    low, high, row, number, heads = (refs.seed[i] for i in range(5))
    per_step = refs.q.shape[-1] // settings.width
    row = row + pl.program_id(1)
    number = number + pl.program_id(0) * per_step + head.number
    column = jax.lax.broadcasted_iota(jnp.int32, (queries, columns), 1)
    second = column >= half
    place = column if whole_blocks else jnp.where(second, column - half, column)
    place += jax.lax.broadcasted_iota(jnp.int32, (queries, columns), 0) * half
    place += (row * heads + number) * (queries * half)
    drawn = hashed(place.astype(jnp.uint32), low.astype(jnp.uint32), high.astype(jnp.uint32))
    halves = drawn & jnp.uint32(2**16 - 1), drawn >> 16
    if whole_blocks:
        drawn = jnp.concatenate(halves, axis=1)
    else:
        drawn = jnp.where(second, halves[1], halves[0])
    return drawn.astype(jnp.int32) >= settings.dropped


def _dropped(x: jax.Array, keep: jax.Array | None) -> jax.Array:
    return x if keep is None else jnp.where(keep, x, 0.0)


def _product(a: jax.Array, b: jax.Array, over: tuple[int, int]) -> jax.Array:
    """Sums over a dimension of each, float32."""
    return jax.lax.dot_general(
        a, b, (((over[0],), (over[1],)), ((), ())), preferred_element_type=jnp.float32
    )
