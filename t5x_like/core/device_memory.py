"""How much memory a device has for arrays."""

from __future__ import annotations

import jax

_GIB = 2**30
_USABLE = {
    # What XLA's compiler leaves of the published 16, 95 and 32 GB; TPU v4 has 32 GiB.
    "TPU v4": 31.0 * _GIB,
    "TPU v5 lite": 15.75 * _GIB,
    "TPU v5e": 15.75 * _GIB,
    "TPU v5": 95.0 * _GIB,
    "TPU v5p": 95.0 * _GIB,
    "TPU v6 lite": 31.25 * _GIB,
    "TPU v6e": 31.25 * _GIB,
}


def usable_bytes(device: jax.Device) -> float | None:
    """The bytes that arrays may take on `device`; None where there is no limit of its own (CPUs).

    Devices that a program is only compiled for say nothing themselves: the table is for them.
    """
    try:
        limit = (device.memory_stats() or {}).get("bytes_limit")
    except (NotImplementedError, RuntimeError):  # one that is not attached
        limit = None
    return _USABLE.get(device.device_kind) if limit is None else float(limit)
