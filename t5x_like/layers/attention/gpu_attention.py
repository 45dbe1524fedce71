"""Attention by our Pallas kernel for GPUs.

Suffixes: B batch, L queries, H heads, K d_kv.
"""

from __future__ import annotations

import jax

from t5x_like.core.devices.chosen import is_ampere
from t5x_like.core.partitioning import active_device
from t5x_like.layers.attention.attention_kernels import Attended, KeysValues
from t5x_like.layers.attention.kernels import gpu_kernel, kernel_gradient
from t5x_like.layers.attention.kernels.kernel_gradient import Passes, attend_by
from t5x_like.layers.attention.masks import Mask
from t5x_like.layers.basics.dropout import Dropping

_PASSES = Passes(gpu_kernel.forward, gpu_kernel.backward)
_WIDTHS = (16, 32, 64, 128)


def gpu(
    q_BLHK: jax.Array,
    memory: KeysValues,
    *,
    mask: Mask | None,
    bias: jax.Array | None,
    drop: Dropping | None,
    interpret: bool = False,
) -> Attended:
    """`kernel_gradient.attend_by` with a kernel for GPUs.

    Raises:
      ValueError: it cannot compute these shapes (`unsuited`).
    """
    if reason := unsuited(q_BLHK, mask=mask, drop=drop, interpret=interpret):
        raise ValueError(f"attention on GPUs: {reason}; use attention_kernels.blocked or .plain")
    return attend_by(_PASSES, q_BLHK, memory, mask=mask, bias=bias, drop=drop, interpret=interpret)


def unsuited(
    q_BLHK: jax.Array,
    *,
    mask: Mask | None,
    drop: Dropping | None,
    interpret: bool = False,
) -> str | None:
    """Why the kernel cannot compute it; None if it can."""
    if not interpret and not is_ampere(active_device()):
        return "they must be NVIDIA's Ampere (A100) or later"
    if q_BLHK.shape[-1] not in _WIDTHS:
        return f"a head's width must be one of {_WIDTHS}, not {q_BLHK.shape[-1]}"
    return kernel_gradient.unsuited(mask, drop)
