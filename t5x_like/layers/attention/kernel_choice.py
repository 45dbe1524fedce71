"""The way to compute attention that suits a device and the shapes."""

from __future__ import annotations

import contextlib
import contextvars
import inspect
from collections.abc import Iterator

import jax

from t5x_like.core.counter_random import is_counter
from t5x_like.core.partitioning import active_layout, active_platform
from t5x_like.layers.attention import gpu_attention, splash_attention, tpu_attention
from t5x_like.layers.attention import windowed as windows
from t5x_like.layers.attention.attention_kernels import (
    Attended,
    Kernel,
    KeysValues,
    blocked,
    fused,
    plain,
    suits_cudnn,
)
from t5x_like.layers.attention.gpu_attention import gpu
from t5x_like.layers.attention.kernels.kernel_mesh import parts_of_queries
from t5x_like.layers.attention.masks import Mask
from t5x_like.layers.attention.splash_attention import splash
from t5x_like.layers.attention.tpu_attention import tpu
from t5x_like.layers.attention.windowed import windowed
from t5x_like.layers.basics.dropout import Dropping

_FEW = 2**14
"""Queries times keys up to which XLA's own fusions are as fast as a kernel on a TPU, unless a bias
has a gradient: rows of 128, and decoding."""

_LONG = 2**22
"""Queries times keys from which logits are formed in blocks where no kernel can compute them.
On two CPU cores, blocks took 0.65 of the time of `plain` for rows of 2,048 tokens."""

_forming: contextvars.ContextVar[bool] = contextvars.ContextVar("forming", default=False)


@contextlib.contextmanager
def forming_probabilities(wanted: bool) -> Iterator[None]:
    """`automatic` forms probabilities in what is traced inside, if they are wanted."""
    token = _forming.set(wanted or _forming.get())
    try:
        yield
    finally:
        _forming.reset(token)


def automatic(
    q_BLHK: jax.Array,
    memory: KeysValues,
    *,
    mask: Mask | None,
    bias: jax.Array | None,
    drop: Dropping | None,
) -> Attended:
    """`tpu` on TPUs, or `splash` where rows are longer than that takes; on GPUs cuDNN's, or `gpu`
    where that cannot compute the case; else XLA's.

    Of what none of them computes, and on CPUs, narrow windows are `windowed` and long rows are
    taken in blocks, unless their dropout draws other random numbers than `counter`; else `plain`.
    """
    kernel: Kernel = plain
    if not _forming.get():
        choose = _by_xla if active_platform() == "cpu" else _of_accelerator
        kernel = choose(q_BLHK, memory, mask=mask, bias=bias, drop=drop)
    return kernel(q_BLHK, memory, mask=mask, bias=bias, drop=drop)


def _by_xla(
    q_BLHK: jax.Array,
    memory: KeysValues,
    *,
    mask: Mask | None,
    bias: jax.Array | None,
    drop: Dropping | None,
) -> Kernel:
    why_not = windows.unsuited(q_BLHK, memory, mask=mask, bias=bias, drop=drop)
    if why_not is None and windows.saves(mask, q_BLHK.shape[1]):
        return windowed
    drawn_in_parts = drop is None or is_counter(drop.key)
    pairs = q_BLHK.shape[1] * memory.keys.shape[1]
    return blocked if pairs >= _LONG and drawn_in_parts else plain


def _of_accelerator(
    q_BLHK: jax.Array,
    memory: KeysValues,
    *,
    mask: Mask | None,
    bias: jax.Array | None,
    drop: Dropping | None,
) -> Kernel:
    pairs = q_BLHK.shape[1] * memory.keys.shape[1]
    decodes = q_BLHK.shape[1] == 1
    if mask is not None and mask.chooses and windows.saves(mask, q_BLHK.shape[1]):
        # The kernels would read an array of all pairs.
        return _by_xla(q_BLHK, memory, mask=mask, bias=bias, drop=drop)
    if active_platform() == "tpu":
        few = pairs <= _FEW and (bias is None or decodes)
        why_not = tpu_attention.unsuited(q_BLHK, memory, mask=mask, bias=bias, drop=drop)
        if why_not is None and not few:
            return tpu
        why_not = splash_attention.unsuited(q_BLHK, memory, mask=mask, bias=bias, drop=drop)
        if why_not is None and pairs >= _LONG and not windows.saves(mask, q_BLHK.shape[1]):
            return splash
    else:
        # cuDNN's reads an array of all pairs.
        near = windows.saves(mask, q_BLHK.shape[1])
        if drop is None and not near and _for_cudnn(q_BLHK, memory):
            return fused
        # Matrix units multiply 16-bit numbers: others are no faster in a kernel.
        why_not = gpu_attention.unsuited(q_BLHK, mask=mask, drop=drop)
        if why_not is None and not decodes and q_BLHK.dtype.itemsize == 2:
            return gpu
    return _by_xla(q_BLHK, memory, mask=mask, bias=bias, drop=drop)


def _for_cudnn(q_BLHK: jax.Array, memory: KeysValues) -> bool:
    """Whether cuDNN can compute it; JAX cannot split its rows by a map, nor its queries."""
    layout = active_layout()
    if (layout is not None and layout.is_replica) or parts_of_queries(*q_BLHK.shape[:3]) > 1:
        return False
    return suits_cudnn(q_BLHK, memory.keys)


def runs_on_tpu(kernel: Kernel) -> bool:
    """Whether `kernel` leaves the choice to us and devices are TPUs; no probabilities are formed.

    A gin file gives `automatic` as a function around it.
    """
    free = inspect.unwrap(kernel) is automatic and not _forming.get()
    return free and active_platform() == "tpu"
