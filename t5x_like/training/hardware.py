"""Peak bfloat16 FLOP/s of one device, by the name JAX gives its kind."""

from __future__ import annotations

from collections.abc import Mapping

from t5x_like.core.accelerators import CHIPS

_TERA = 1e12
_PEAK = {
    # Google's published figures per chip; JAX shows the two cores of v2 and v3 as two devices.
    "TPU v2": 22.5 * _TERA,
    "TPU v3": 61.5 * _TERA,
    **{kind: chip.peak_flops for chip in CHIPS.values() for kind in chip.kinds},
    "TPU7x": 1153.5 * _TERA,
    # NVIDIA's data sheets, without sparsity. If several names match, the longest counts.
    "A100": 312 * _TERA,
    "H100 PCIe": 756 * _TERA,
    "H100 NVL": 835 * _TERA,
    "H100": 989 * _TERA,
    "H200": 989 * _TERA,
    "GH200": 989 * _TERA,
    "B200": 2250 * _TERA,
    "L4": 121 * _TERA,
    "L40S": 362 * _TERA,
    "A10G": 70 * _TERA,
    "V100": 125 * _TERA,
}


def peak_flops(device_kind: str) -> float | None:
    """Peak dense bfloat16 FLOP/s (float16 on V100) of `jax.Device.device_kind`, None if unknown."""
    return by_kind(_PEAK, device_kind)


def by_kind(table: Mapping[str, float], device_kind: str) -> float | None:
    """The value of a kind of device in a table by names; the longest name in it counts."""
    if device_kind in table:
        return table[device_kind]
    if device_kind.startswith("TPU"):
        return None  # a new TPU's name often begins with an old one's
    words = f" {device_kind.replace('-', ' ')} "
    known = [name for name in table if f" {name} " in words]
    return table[max(known, key=len)] if known else None
