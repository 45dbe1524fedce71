"""How much memory a device has for arrays."""

from __future__ import annotations

import functools

import jax
from jax.sharding import Mesh

from t5x_like.core.devices.tpus import chip_of

ACTIVATIONS = 0.7
"""The share of a device's memory for the estimated activations of a step: XLA needs the rest for
arrays of its own."""

SUMMED_AT_ONCE = 0.05
"""The share of a device's memory for the gradients that layers have of what all of them read, such
as the bias of attention. XLA keeps them until it adds all up, and then sums over devices once."""

SHARED = "shared"
"""The name of what all layers of an unrolled stack read (`checkpoint_name`)."""

_WHOLE = 10**9
"""A gigabyte. Two hosts with the same devices may find sizes that differ by less."""


@functools.cache
def usable_bytes(mesh: Mesh) -> float | None:
    """The bytes that arrays may take on each device of a mesh; None without a limit that is known.

    CPUs have none, and that of GPUs that are compiled for without being there is not known.

    Programs depend on it, and all processes must make the same: so it is what a TPU's compiler
    leaves, or else whole gigabytes of what this process finds on its own devices.
    """
    device = mesh.devices.flat[0]
    if device.platform == "cpu":
        return None
    if (chip := chip_of(device.device_kind)) is not None:
        return chip.hbm_bytes
    local_devices = [local for local in mesh.devices.flat if local in jax.local_devices()]
    least = min(
        ((local.memory_stats() or {}).get("bytes_limit", 0) for local in local_devices), default=0
    )
    return float(least // _WHOLE * _WHOLE) or None
