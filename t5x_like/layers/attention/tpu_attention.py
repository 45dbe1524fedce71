"""Attention by our Pallas kernel for TPUs.

Suffixes: B batch, L queries, H heads, K d_kv.
"""

from __future__ import annotations

import jax

from t5x_like.layers.attention.attention_kernels import Attended, KeysValues
from t5x_like.layers.attention.kernels import kernel_gradient, tpu_kernel
from t5x_like.layers.attention.kernels.band import band_of
from t5x_like.layers.attention.kernels.kernel_gradient import Passes, attend_by
from t5x_like.layers.attention.kernels.kernel_mesh import parts_of_queries, usable_vmem
from t5x_like.layers.attention.kernels.kernel_parts import LANES, Settings, unsuited_width
from t5x_like.layers.attention.masks import Mask
from t5x_like.layers.basics.dropout import Dropping

_PASSES = Passes(tpu_kernel.forward, tpu_kernel.backward)
_ARRAYS = 8
"""Arrays of queries times keys that a grid step has in the chip's memory at once, about."""


def tpu(
    q_BLHK: jax.Array,
    memory: KeysValues,
    *,
    mask: Mask | None,
    bias: jax.Array | None,
    drop: Dropping | None,
    interpret: bool = False,
) -> Attended:
    """`kernel_gradient.attend_by` with a kernel for TPUs.

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
    mask: Mask | None,
    bias: jax.Array | None,
    drop: Dropping | None,
) -> str | None:
    """Why the kernel cannot compute it; None if it can."""
    rows, queries, heads, width = q_BLHK.shape
    devices = parts_of_queries(rows, queries, heads)
    keys = memory.keys.shape[1]
    if reason := unsuited_width(width):
        return reason
    of_a_block = max(LANES // width, 1) if heads * width % LANES == 0 else heads
    arrays = _ARRAYS + (0 if bias is None else 4 * of_a_block)
    in_parts = Settings(width=width, band=band_of(mask), in_parts=devices == 1)
    parts = tpu_kernel.parts_of(in_parts, queries // devices, keys, bias=bias is not None)
    needed = 4 * parts.largest * arrays
    if len(parts) > 1:  # rows may be long: their arrays and gradients, in 16 bits, twice, and sums
        needed += max(LANES, width) * (16 * queries + 24 * keys)
    if needed > usable_vmem():
        return f"{queries} queries by {keys} keys do not fit the chip's memory"
    return kernel_gradient.unsuited(mask, drop)
