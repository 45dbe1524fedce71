"""How much memory a device has for arrays."""

from __future__ import annotations

import jax

from t5x_like.core.accelerators import CHIPS

_USABLE = {kind: chip.hbm_bytes for chip in CHIPS.values() for kind in chip.kinds}


def usable_bytes(device: jax.Device) -> float | None:
    """The bytes that arrays may take on `device`; None where there is no limit of its own (CPUs).

    Devices that a program is only compiled for say nothing themselves: the table is for them.
    """
    try:
        limit = (device.memory_stats() or {}).get("bytes_limit")
    except (NotImplementedError, RuntimeError):  # one that is not attached
        limit = None
    return _USABLE.get(device.device_kind) if limit is None else float(limit)
