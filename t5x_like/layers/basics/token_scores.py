"""Scores of states for every token of a vocabulary: all at once, or reduced block by block.

Suffixes: B batch, L length, D width of a state, V vocabulary, N blocks of C tokens.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from t5x_like.core.devices.memory import usable_bytes
from t5x_like.core.partitioning import active_layout, constrain
from t5x_like.layers.basics.product import narrowed, product
from t5x_like.layers.basics.vectors import plus_vector

_WHOLE = 0.2
"""The share of a device's memory up to which logits are formed at once, and that of a block. The
backward pass needs them twice."""

_MISSING = -1e30
"""The bias of tokens that fill up the last block: they have no probability."""


class Reductions(NamedTuple):
    """Reductions of each state's logits, float32 [B, L]: log Z, the target's, the largest, the sum.

    No gradient passes through `top`.
    """

    log_z: jax.Array
    target: jax.Array
    top: jax.Array
    sum: jax.Array


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["x", "table", "bias"],
    meta_fields=["narrow"],
)
@dataclasses.dataclass(frozen=True)
class TokenScores:
    """States, and what they are multiplied with: logits that need not exist.

    Attributes:
      x: float32 [B, L, D].
      table: float32 [V, D].
      bias: float32 [V], or None.
      narrow: whether the gradient of the table is made of 16-bit operands on TPUs (`narrowed`).
    """

    x: jax.Array
    table: jax.Array
    bias: jax.Array | None = None
    narrow: bool = False

    def logits(self) -> jax.Array:
        """Float32 [B, L, V]."""
        logits_BLV = product(self.x, self.table.T, None, self.narrow)
        logits_BLV = constrain(logits_BLV, "batch", "length", "vocab")
        return logits_BLV if self.bias is None else plus_vector(logits_BLV, self.bias)

    def reductions(self, targets_BL: jax.Array) -> Reductions:
        """The reductions for losses; `targets_BL` is int32. Large logits are never formed whole."""
        number = self._blocks()
        if number == 1:
            return reductions(self.logits(), targets_BL)
        tokens = len(self.table)
        size = -(-tokens // number)
        missing = number * size - tokens
        bias_V = jnp.zeros(tokens) if self.bias is None else self.bias
        blocks = _Block(
            first=jnp.arange(number) * size,
            table=jnp.pad(self.table, ((0, missing), (0, 0))).reshape(number, size, -1),
            bias=jnp.pad(bias_V, (0, missing), constant_values=_MISSING).reshape(number, size),
        )
        return _blocked(self.x, blocks, targets_BL, self.narrow)

    def _blocks(self) -> int:
        """The number of blocks; 1 where the logits are small, split already, or on a CPU."""
        layout = active_layout()
        limit = None if layout is None else usable_bytes(layout.mesh)
        if layout is None or limit is None or layout.spec(("vocab",), self.table.shape[:1])[0]:
            return 1
        rows = math.prod(self.x.shape[:-1]) / layout.batch_shards
        return math.ceil(4 * rows * len(self.table) / (_WHOLE * limit))


def reductions(logits_BLV: jax.Array, targets_BL: jax.Array) -> Reductions:
    """The reductions of logits that are there, float32 [B, L, V]; targets are int32."""
    return Reductions(*_reduced(logits_BLV, targets_BL), logits_BLV.sum(axis=-1))


@jax.custom_vjp
def _reduced(
    logits_BLV: jax.Array, targets_BL: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The first three `Reductions` of whole logits.

    Its own derivative keeps only the logits for the backward pass and sweeps over them once,
    without a scatter; automatic derivatives would store another array of the size of the logits.
    """
    top_BL = logits_BLV.max(axis=-1)
    log_z_BL = top_BL + jnp.log(jnp.exp(logits_BLV - top_BL[..., None]).sum(axis=-1))
    target_BL = jnp.take_along_axis(logits_BLV, targets_BL[..., None], axis=-1)[..., 0]
    return log_z_BL, target_BL, top_BL


def _reduced_forward(logits_BLV: jax.Array, targets_BL: jax.Array) -> tuple:
    out = _reduced(logits_BLV, targets_BL)
    return out, (logits_BLV, targets_BL, out[0])


def _reduced_backward(saved: tuple, g: tuple) -> tuple[jax.Array, None]:
    logits_BLV, targets_BL, log_z_BL = saved
    g_log_z_BL, g_target_BL, _ = g
    return _dlogits(logits_BLV, targets_BL, log_z_BL, g_log_z_BL, g_target_BL), None


_reduced.defvjp(_reduced_forward, _reduced_backward)


def _dlogits(
    logits_BLC: jax.Array,
    targets_BL: jax.Array,
    log_z_BL: jax.Array,
    g_log_z_BL: jax.Array,
    g_target_BL: jax.Array,
) -> jax.Array:
    """The gradient of logits of C tokens, among which targets count from 0."""
    p_BLC = jnp.exp(logits_BLC - log_z_BL[..., None])
    is_target_BLC = targets_BL[..., None] == jnp.arange(logits_BLC.shape[-1])
    return g_log_z_BL[..., None] * p_BLC + jnp.where(is_target_BLC, g_target_BL[..., None], 0.0)


class _Block(NamedTuple):
    """Some tokens: the number of the first, and their parts of table and bias."""

    first: jax.Array  # int32 []
    table: jax.Array  # [C, D]
    bias: jax.Array  # [C]

    def logits(self, x_BLD: jax.Array) -> jax.Array:
        return x_BLD @ self.table.T + self.bias


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _blocked(x_BLD: jax.Array, blocks: _Block, targets_BL: jax.Array, narrow: bool) -> Reductions:
    """The reductions of all blocks [N, ...], one after another; logits are computed again in the
    backward pass.

    Blocks of tokens, not of states: so the gradient of a table's row is summed over devices once.
    """

    def add(carry: Reductions, block: _Block) -> tuple[Reductions, None]:
        log_z_BL, target_BL, top_BL, sum_BL = carry
        logits_BLC = block.logits(x_BLD)
        here_BL = targets_BL - block.first
        inside_BL = (here_BL >= 0) & (here_BL < logits_BLC.shape[-1])
        safe_BL1 = jnp.where(inside_BL, here_BL, 0)[..., None]
        found_BL = jnp.take_along_axis(logits_BLC, safe_BL1, axis=-1)[..., 0]
        return Reductions(
            jnp.logaddexp(log_z_BL, jax.nn.logsumexp(logits_BLC, axis=-1)),
            jnp.where(inside_BL, found_BL, target_BL),
            jnp.maximum(top_BL, logits_BLC.max(axis=-1)),
            sum_BL + jnp.where(block.bias > _MISSING, logits_BLC, 0.0).sum(axis=-1),
        ), None

    least_BL = jnp.full(targets_BL.shape, _MISSING)
    zeros_BL = jnp.zeros(targets_BL.shape)
    return jax.lax.scan(add, Reductions(least_BL, zeros_BL, least_BL, zeros_BL), blocks)[0]


def _blocked_forward(
    x_BLD: jax.Array, blocks: _Block, targets_BL: jax.Array, narrow: bool
) -> tuple:
    reduced = _blocked(x_BLD, blocks, targets_BL, narrow)
    return reduced, (x_BLD, blocks, targets_BL, reduced.log_z)


def _blocked_backward(narrow: bool, saved: tuple, g: Reductions) -> tuple[jax.Array, _Block, None]:
    x_BLD, blocks, targets_BL, log_z_BL = saved

    def add(dx_BLD: jax.Array, block: _Block) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        dlogits_BLC = _dlogits(
            block.logits(x_BLD), targets_BL - block.first, log_z_BL, g.log_z, g.target
        )
        dlogits_BLC += jnp.where(block.bias > _MISSING, g.sum[..., None], 0.0)
        operands = narrowed(dlogits_BLC, x_BLD, narrow=narrow)
        dtable_CD = jnp.tensordot(*operands, ((0, 1), (0, 1)))
        return dx_BLD + dlogits_BLC @ block.table, (dtable_CD, dlogits_BLC.sum(axis=(0, 1)))

    dx_BLD, (dtable_NCD, dbias_NC) = jax.lax.scan(add, jnp.zeros_like(x_BLD), blocks)
    dblocks = _Block(None, dtable_NCD.astype(blocks.table.dtype), dbias_NC)  # type: ignore[arg-type]
    return dx_BLD, dblocks, None


_blocked.defvjp(_blocked_forward, _blocked_backward)
