"""How much memory a device has for arrays."""

from __future__ import annotations

import functools

import jax
import numpy as np
from jax.sharding import Mesh

from t5x_like.core.accelerators import chip_of

ACTIVATIONS = 0.45
"""What one stack of layers may store of it. An encoder-decoder has two, and parameters, their
gradients and logits need room too."""


@functools.cache
def usable_bytes(mesh: Mesh) -> float | None:
    """The bytes that arrays may take on each device of a mesh; None without such a limit (CPUs).

    Programs depend on it, so all processes get the same: for a TPU what the compiler leaves, else
    the least that a process finds, which all must ask for at the same time.
    """
    device = mesh.devices.flat[0]
    if device.platform == "cpu":
        return None
    if (chip := chip_of(device.device_kind)) is not None:
        return chip.hbm_bytes
    own = [one for one in mesh.devices.flat if one.process_index == jax.process_index()]
    limits = [(one.memory_stats() or {}).get("bytes_limit", 0) for one in own]
    least = min(limits, default=0)
    if jax.process_count() > 1:
        from jax.experimental import multihost_utils

        least = int(np.min(multihost_utils.process_allgather(np.int64(least))))
    return float(least) or None
