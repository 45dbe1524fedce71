"""Attention by our Pallas kernel for TPUs.

Suffixes: B batch, L queries, H heads, K d_kv.
"""

from __future__ import annotations

import jax

from t5x_like.layers.attention.attention_kernels import Attended, KeysValues
from t5x_like.layers.attention.kernels import kernel_gradient, tpu_kernel
from t5x_like.layers.attention.kernels.kernel_gradient import Passes, attend_by
from t5x_like.layers.attention.kernels.kernel_mesh import parts_of_queries, usable_vmem
from t5x_like.layers.attention.kernels.kernel_parts import LANES
from t5x_like.layers.dropout import Dropping

_PASSES = Passes(tpu_kernel.forward, tpu_kernel.backward)
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

    It supports bias, dropout, and every mask that heads share. With `interpret` it runs anywhere,
    slowly.

    Raises:
      ValueError: it cannot compute these shapes (`unsuited`).
    """
    if reason := unsuited(q_BLHK, memory, mask=mask, bias=bias, drop=drop):
        raise ValueError(f"attention on TPUs: {reason}; use attention_kernels.blocked or .plain")
    return attend_by(_PASSES, q_BLHK, memory, mask=mask, bias=bias, drop=drop, interpret=interpret)


def unsuited(
    q_BLHK: jax.Array,
    memory: KeysValues,
    *,
    mask: jax.Array | None,
    bias: jax.Array | None,
    drop: Dropping | None,
) -> str | None:
    """Why the kernel cannot compute it; None if it can."""
    rows, queries, heads, width = q_BLHK.shape
    queries //= parts_of_queries(rows, queries, heads)
    keys = memory.keys.shape[1]
    if LANES % width and width % LANES:
        return f"a head's width must divide {LANES} or be a multiple of it, not {width}"
    of_a_block = max(LANES // width, 1) if heads * width % LANES == 0 else heads
    arrays = _ARRAYS + (0 if bias is None else 4 * of_a_block)
    if 4 * queries * keys * arrays > usable_vmem():
        return f"{queries} queries by {keys} keys do not fit the chip's memory"
    return kernel_gradient.unsuited(mask, drop)
