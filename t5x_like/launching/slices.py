"""Slices of TPUs by the names that people, Compute Engine and Kubernetes Engine give them."""

from __future__ import annotations

import dataclasses
import math
import re

from t5x_like.core.devices.tpus import CHIPS
from t5x_like.core.spelling import nearest
from t5x_like.launching.commands import LaunchError

_OLD = {"v2": "v2", "v3": "v3"}  # not in CHIPS: of two cores a chip, which their names count
_RUNTIMES = {
    **dict.fromkeys(("v2", "v3", "v4"), "tpu-ubuntu2204-base"),
    "v5e": "v2-alpha-tpuv5-lite",
    "v5p": "v2-alpha-tpuv5",
    "v6e": "v2-alpha-tpuv6e",
}
_GKE = {
    "v4": "tpu-v4-podslice",
    "v5e": "tpu-v5-lite-podslice",
    "v5p": "tpu-v5p-slice",
    "v6e": "tpu-v6e-slice",
}


@dataclasses.dataclass(frozen=True)
class Slice:
    """A slice of TPUs.

    Attributes:
      generation: such as `v5e`.
      chips: the number of its chips.
      shape: its chips along each axis; None for v2 and v3.
      accelerator_type: its name in Compute Engine, such as `v5litepod-16`.
    """

    generation: str
    chips: int
    shape: tuple[int, ...] | None
    accelerator_type: str

    @property
    def hosts(self) -> int:
        """The number of its hosts: of v5e and v6e, up to 8 chips are one host's."""
        flat = self.generation in ("v5e", "v6e")
        return 1 if flat and self.chips <= 8 else math.ceil(self.chips / 4)

    @property
    def runtime(self) -> str:
        """The usual TPU software of its virtual machines."""
        return _RUNTIMES[self.generation]

    @property
    def gke_accelerator(self) -> str:
        """The label of its nodes in Kubernetes Engine, which has no v2 and v3; else ""."""
        return _GKE.get(self.generation, "")

    @property
    def gke_topology(self) -> str:
        """The label of its shape, such as `4x4`."""
        return "x".join(map(str, self.shape or ()))


def parse(name: str) -> Slice:
    """The slice called `v5e-256`, `v5litepod-256`, `v5e:16x16` or `v5p-64` (its 64 cores).

    Raises:
      LaunchError: there is none of that name; the message gives the names there are.
    """
    first, mark, size = re.fullmatch(r"([^:-]*)([:-]?)(.*)", name, re.S).groups()  # type: ignore[union-attr]
    generation = "v5e" if first == "v5litepod" else first
    if generation in _OLD and mark == "-" and size.isdecimal() and int(size) % 8 == 0 and int(size):
        return Slice(generation, int(size) // 2, None, name)
    if generation not in CHIPS:
        raise LaunchError(
            f"no TPU {first!r} in {name!r}"
            + nearest(first, [*CHIPS, *_OLD], of="TPUs")
            + "; a slice is named like v5e-16, v5p-64 or v5e:4x4"
        )
    chip = CHIPS[generation]
    shape: tuple[int, ...] | None
    if mark == ":":
        sides = size.split("x")
        whole = all(side.isascii() and side.isdecimal() for side in sides)
        shape = tuple(map(int, sides)) if whole else None
    else:
        names = {chip.slice_name(chips): shape for chips, shape in chip.slices.items()}
        shape = names.get(f"{generation}-{size}")
    if shape is None or not chip.has(shape):
        listed = ", ".join(chip.slice_name(chips) for chips in chip.slices)
        raise LaunchError(f"no slice {name!r}: those of {generation} are {listed}")
    chips = math.prod(shape)
    count = chips * (chip.cores if chip.counts_cores else 1)
    return Slice(generation, chips, shape, f"{chip.accelerator_type}-{count}")
