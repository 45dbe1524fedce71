"""The TPUs that are known here: what a chip can do, and which slices of them exist.

Rates are Google's published figures per chip (cloud.google.com/tpu/docs, the page of each TPU).
The published bandwidth between chips counts both directions; here it is what a chip sends.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

_TERA, _GIGA, _GIB = 1e12, 1e9, 2**30

Shape = tuple[int, ...]

_FLAT: Mapping[int, Shape] = {
    1: (1, 1),
    4: (2, 2),
    8: (2, 4),
    16: (4, 4),
    32: (4, 8),
    64: (8, 8),
    128: (8, 16),
    256: (16, 16),
}
_CUBES: Mapping[int, Shape] = {
    4: (2, 2, 1),
    8: (2, 2, 2),
    16: (2, 2, 4),
    32: (2, 4, 4),
    64: (4, 4, 4),
    128: (4, 4, 8),
    256: (4, 8, 8),
    512: (8, 8, 8),
    1024: (8, 8, 16),
    2048: (8, 16, 16),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chip:
    """A kind of TPU.

    Attributes:
      name: its short name.
      kinds: names of its devices in JAX.
      peak_flops: bfloat16 operations a second.
      hbm_bytes: memory that XLA's compiler leaves to a program, of the published 32, 16, 95, 32 GB.
      hbm_bandwidth: bytes a second between memory and cores.
      vmem_bytes: of the memory beside the cores, what a kernel may take.
      ici_bandwidth: bytes a second that it sends to its neighbours, over all its links, two for
        each axis of a slice. `sent_within` says what is left of it in small slices.
      dcn_bandwidth: bytes a second that it sends to other slices: its share of the pod's network.
        That of v4 is not published: here it is v5p's.
      clock: cycles a second. Not all are published: these make a matrix product that fills the
        matrix units as fast as the peak.
      cores: cores of a chip, which work as one device.
      accelerator_type: the first part of `TPU_ACCELERATOR_TYPE`.
      counts_cores: whether the number in a slice's name is that of its cores, not of its chips.
      slices: the usual shape of a slice by its number of chips.
    """

    name: str
    kinds: tuple[str, ...]
    peak_flops: float
    hbm_bytes: float
    hbm_bandwidth: float
    vmem_bytes: float
    ici_bandwidth: float
    dcn_bandwidth: float
    clock: float
    cores: int
    accelerator_type: str
    counts_cores: bool
    slices: Mapping[int, Shape]

    def slice_name(self, chips: int) -> str:
        """The name of a slice, such as `v5p-64`, which has 32 chips."""
        return f"{self.name}-{chips * (self.cores if self.counts_cores else 1)}"

    def has(self, shape: Shape) -> bool:
        """Whether there are slices of this shape."""
        large = len(shape) == 3 and all(size % 4 == 0 for size in shape) and max(shape) <= 24
        return shape in self.slices.values() or (large and self._cubes and math.prod(shape) <= 8960)

    def sent_within(self, shape: Shape) -> float:
        """Bytes a second that the chip with the fewest links sends to neighbours in a slice.

        An axis has two links where its ends are joined: on v5e and v6e if it is as long as a pod's
        side of 16, on v4 and v5p if the slice is made of whole cubes of 4 x 4 x 4. Elsewhere the
        chip at its end has one (cloud.google.com/tpu/docs, the page of each TPU).
        """
        whole = all(size % 4 == 0 for size in shape)
        links = [(2 if (whole if self._cubes else size == 16) else 1) for size in shape if size > 1]
        return self.ici_bandwidth * sum(links) / (2 * len(shape))

    @property
    def _cubes(self) -> bool:
        """Whether slices have three axes."""
        return len(next(iter(self.slices.values()))) == 3


CHIPS: Mapping[str, Chip] = {
    chip.name: chip
    for chip in (
        Chip(
            name="v4",
            kinds=("TPU v4",),
            peak_flops=275 * _TERA,
            hbm_bytes=31 * _GIB,
            hbm_bandwidth=1228 * _GIGA,
            vmem_bytes=16 * 2**20,
            ici_bandwidth=300 * _GIGA,
            dcn_bandwidth=6.25 * _GIGA,
            clock=1.05 * _GIGA,
            cores=2,
            accelerator_type="v4",
            counts_cores=True,
            slices=_CUBES,
        ),
        Chip(
            name="v5e",
            kinds=("TPU v5 lite", "TPU v5e"),
            peak_flops=197 * _TERA,
            hbm_bytes=15.75 * _GIB,
            hbm_bandwidth=819 * _GIGA,
            vmem_bytes=64 * 2**20,
            ici_bandwidth=200 * _GIGA,
            dcn_bandwidth=3.125 * _GIGA,
            clock=1.503 * _GIGA,
            cores=1,
            accelerator_type="v5litepod",
            counts_cores=False,
            slices=_FLAT,
        ),
        Chip(
            name="v5p",
            kinds=("TPU v5", "TPU v5p"),
            peak_flops=459 * _TERA,
            hbm_bytes=95 * _GIB,
            hbm_bandwidth=2765 * _GIGA,
            vmem_bytes=64 * 2**20,
            ici_bandwidth=600 * _GIGA,
            dcn_bandwidth=6.25 * _GIGA,
            clock=1.75 * _GIGA,
            cores=2,
            accelerator_type="v5p",
            counts_cores=True,
            slices=_CUBES,
        ),
        Chip(
            name="v6e",
            kinds=("TPU v6 lite", "TPU v6e"),
            peak_flops=918 * _TERA,
            hbm_bytes=31.25 * _GIB,
            hbm_bandwidth=1600 * _GIGA,
            vmem_bytes=64 * 2**20,
            ici_bandwidth=400 * _GIGA,
            dcn_bandwidth=12.5 * _GIGA,
            clock=1.75 * _GIGA,
            cores=1,
            accelerator_type="v6e",
            counts_cores=False,
            slices=_FLAT,
        ),
    )
}
"""The chips by name."""


def chip_of(device_kind: str) -> Chip | None:
    """The chip of a device's kind in JAX; None if it is not known."""
    return next((chip for chip in CHIPS.values() if device_kind in chip.kinds), None)
