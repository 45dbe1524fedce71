"""The energy of this process's NVIDIA GPUs, by their own counters, where `pynvml` is installed."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable
from typing import Any

import jax


def gpu_joules() -> Callable[[], float] | None:
    """A function that says how much they have used since this call; None if they do not say."""
    gpus = [device for device in jax.local_devices() if device.platform in ("gpu", "cuda")]
    if not gpus:
        return None
    try:
        nvml: Any = importlib.import_module("pynvml")
        nvml.nvmlInit()
        handles = [_handle(nvml, gpu.local_hardware_id or 0) for gpu in gpus]
        # Millijoules since the driver was loaded, on GPUs since Volta.
        count = nvml.nvmlDeviceGetTotalEnergyConsumption
        before = [count(handle) for handle in handles]
    except Exception:  # not installed, no driver, or an older GPU: the energy is assumed then
        return None
    last = 0.0

    def joules() -> float:
        nonlocal last
        with contextlib.suppress(nvml.NVMLError):  # it must not end a run
            last = sum(count(h) - b for h, b in zip(handles, before, strict=True)) / 1000
        return last

    return joules


def _handle(nvml: Any, index: int) -> Any:
    """NVML's handle of a GPU by its number in CUDA; NVML itself counts hidden GPUs too."""
    visible = [part.strip() for part in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    name = visible[index] if index < len(visible) and visible[index] else str(index)
    if name.isdecimal():
        return nvml.nvmlDeviceGetHandleByIndex(int(name))
    return nvml.nvmlDeviceGetHandleByUUID(name)
