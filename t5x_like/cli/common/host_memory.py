"""Keeps the memory that steps free, where steps are computed on the CPU."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys

from t5x_like.core.devices.attached import attached

# malloc.h of glibc
_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8
_NEVER = 2**31 - 1


def keep_freed() -> None:
    """Asks glibc's allocator to return no memory to the system. Call it before JAX is imported.

    Otherwise each step on the CPU gets its buffers from the system and gives them back, and the
    system clears every page of them. This is a quarter of a small model's step
    (benchmarks/freed_memory.py). The settings must come before threads start. Nothing happens
    where there is an accelerator or another allocator.
    """
    if sys.platform != "linux" or not _on_cpu():
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # musl, for example, has none
        mallopt(_MMAP_MAX, 0)
        mallopt(_TRIM_THRESHOLD, _NEVER)
        mallopt(_ARENA_MAX, 1)  # arenas of other threads cannot hold large buffers


def _on_cpu() -> bool:
    """Whether JAX will probably choose the CPU; found without importing JAX."""
    if chosen := os.environ.get("JAX_PLATFORMS"):
        return chosen == "cpu"
    if importlib.util.find_spec("libtpu") and "tpu" in attached():  # it compiles without one, too
        return False
    return importlib.util.find_spec("jax_plugins") is None
