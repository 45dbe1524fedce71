"""Figures that makers publish of a device: its rate and its power, by JAX's name of its kind."""

from __future__ import annotations

from typing import NamedTuple

from t5x_like.core.devices.tpus import CHIPS

_TERA = 1e12


class Figures(NamedTuple):
    """Figures of one device of JAX; None where they are not published.

    Attributes:
      peak_flops: dense bfloat16 operations a second (float16 on V100).
      watts: the most power that it takes.
    """

    peak_flops: float | None = None
    watts: float | None = None


_WATTS = {"v4": 192}  # the highest that was measured (Jouppi et al. 2023); not known of later ones

_FIGURES = {
    # Per chip 280 and 450 W (Jouppi et al. 2021), of which JAX shows the two cores as two devices.
    "TPU v2": Figures(22.5 * _TERA, 140),
    "TPU v3": Figures(61.5 * _TERA, 225),
    **{
        kind: Figures(chip.peak_flops, _WATTS.get(chip.name))
        for chip in CHIPS.values()
        for kind in chip.kinds
    },
    "TPU7x": Figures(1153.5 * _TERA),
    # NVIDIA's data sheets, without sparsity. If several names match, the longest counts.
    "A100": Figures(312 * _TERA, 400),
    "A100 PCIE": Figures(312 * _TERA, 250),
    "A100 80GB PCIe": Figures(312 * _TERA, 300),
    "H100": Figures(989 * _TERA, 700),
    "H100 PCIe": Figures(756 * _TERA, 350),
    "H100 NVL": Figures(835 * _TERA, 400),
    "H200": Figures(989 * _TERA, 700),
    "H200 NVL": Figures(835 * _TERA, 600),
    "GH200": Figures(989 * _TERA),
    "B200": Figures(2250 * _TERA, 1000),
    "L4": Figures(121 * _TERA, 72),
    "L40S": Figures(362 * _TERA, 350),
    "A10G": Figures(70 * _TERA, 300),
    "V100": Figures(125 * _TERA, 300),
    "V100 PCIE": Figures(112 * _TERA, 250),
}


def figures(device_kind: str) -> Figures:
    """The figures of `jax.Device.device_kind`; the longest name in it counts."""
    if device_kind in _FIGURES:
        return _FIGURES[device_kind]
    if device_kind.startswith("TPU"):
        return Figures()  # a new TPU's name often begins with an old one's
    words = f" {device_kind.replace('-', ' ')} "
    known = [name for name in _FIGURES if f" {name} " in words]
    return _FIGURES[max(known, key=len)] if known else Figures()


def peak_flops(device_kind: str) -> float | None:
    """Dense bfloat16 operations a second of a kind of device; None if unknown."""
    return figures(device_kind).peak_flops
