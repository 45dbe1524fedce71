"""Memory that a step frees stays with the process, where steps are computed on the host."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys

# malloc.h of glibc
_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8
_NEVER = 2**31 - 1


def keep_freed() -> None:
    """Asks the allocator of Linux to return nothing; before threads start, so before JAX does.

    Otherwise each step of a model on the CPU gets its buffers from the system and gives them back,
    and the system clears every page of them: a quarter of the time of a small model's step
    (benchmarks/freed_memory.py). Does nothing where there is an accelerator, or another allocator.
    """
    if sys.platform != "linux" or not _on_cpu():
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # not all of musl, for one, has it
        mallopt(_MMAP_MAX, 0)
        mallopt(_TRIM_THRESHOLD, _NEVER)
        mallopt(_ARENA_MAX, 1)  # those of other threads cannot hold large buffers


def _on_cpu() -> bool:
    """Whether JAX will choose the CPU, as far as that can be told without importing it."""
    if chosen := os.environ.get("JAX_PLATFORMS"):
        return chosen == "cpu"
    return not any(importlib.util.find_spec(name) for name in ("libtpu", "jax_plugins"))
