"""The slices of TPUs that a step can be compiled for, by name."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import TYPE_CHECKING, Any

from t5x_like.core.devices.tpus import CHIPS, Chip, Shape
from t5x_like.core.spelling import nearest

if TYPE_CHECKING:
    import jax

_ALIASES = {"v5litepod": "v5e"}


@dataclasses.dataclass(frozen=True)
class Topology:
    """One or several slices of chips.

    Attributes:
      chip: the kind of the chips.
      shape: the chips along each axis of a slice.
      slices: the number of slices, which a slower network connects.
    """

    chip: Chip
    shape: Shape
    slices: int = 1

    @property
    def chips_of_slice(self) -> int:
        return math.prod(self.shape)

    @property
    def chips(self) -> int:
        return self.chips_of_slice * self.slices

    @property
    def name(self) -> str:
        """The name of one slice, such as `v5e:4x4`."""
        return f"{self.chip.name}:{'x'.join(map(str, self.shape))}"

    def seconds_of(self, ici_bytes: float, dcn_bytes: float) -> tuple[float, float]:
        """The time to send bytes within slices and between them, if nothing else ran."""
        within = ici_bytes / self.chip.sent_within(self.shape) if ici_bytes else 0.0
        return within, dcn_bytes / self.chip.dcn_bandwidth

    def __str__(self) -> str:
        return self.name if self.slices == 1 else f"{self.slices} slices of {self.name}"

    def environment(self) -> dict[str, str]:
        """Variables of a process that compiles for these chips and has none of them.

        They must be set before JAX is imported. Several such processes may run on a machine.
        """
        chips = self.chips_of_slice * (self.chip.cores if self.chip.counts_cores else 1)
        return {
            "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
            # A program that comes from the cache is not dumped.
            "JAX_ENABLE_COMPILATION_CACHE": "false",
            "JAX_PLATFORMS": "cpu",
            "TPU_ACCELERATOR_TYPE": f"{self.chip.accelerator_type}-{chips}",
            "TPU_SKIP_MDS_QUERY": "1",
            "TPU_WORKER_HOSTNAMES": "localhost",
            "TF_CPP_MIN_LOG_LEVEL": "3",
        }

    def devices(self) -> list[jax.Device]:
        """Devices to compile for. The process must have the variables of `environment`."""
        from jax.experimental import topologies

        more: dict[str, Any] = {"num_slices": self.slices} if self.slices > 1 else {}
        if self.chips_of_slice == 1:
            more["chips_per_host_bounds"] = [1, 1, 1]
        description = topologies.get_topology_desc(self.name, "tpu", **more)
        return list(description.devices)


def topology(name: str, slices: int = 1) -> Topology:
    """The topology with a name such as `v5e:4x4`, `v5e-16`, `v5litepod-16` or `v5p-64`.

    A number after a hyphen counts chips, or on v4 and v5p cores, as Google's names do.

    Raises:
      ValueError: there are no such slices; the message says which there are.
    """
    if slices < 1:
        raise ValueError(f"--slices must be at least 1, not {slices}")
    kind, mark, size = re.fullmatch(r"([^:-]*)([:-]?)(.*)", name).groups()  # type: ignore[union-attr]
    kind = _ALIASES.get(kind, kind)
    if kind not in CHIPS:
        raise ValueError(f"no TPU {kind!r} in topology {name!r}" + nearest(kind, CHIPS, of="TPUs"))
    chip = CHIPS[kind]
    if kind == "v4":
        raise ValueError(
            "libtpu knows absent v4 chips as two devices each, and JAX uses one: plan for v5p"
        )
    shape = _shape(chip, size) if mark == ":" else _usual_shape(chip, size)
    if shape is None or not chip.has(shape):
        shapes = ["x".join(map(str, sides)) for sides in chip.slices.values()]
        names = [chip.slice_name(chips) for chips in chip.slices]
        more = " and larger ones whose sides are multiples of 4" if len(chip.slices[4]) == 3 else ""
        raise ValueError(
            f"no topology {name!r}: slices of {chip.name} are {', '.join(names)}, or "
            f"{chip.name}:AxB with the shapes {', '.join(shapes)}{more}"
        )
    return Topology(chip, shape, slices)


def _shape(chip: Chip, size: str) -> Shape | None:
    parts = size.split("x")
    return tuple(map(int, parts)) if all(part.isdecimal() for part in parts) else None


def _usual_shape(chip: Chip, size: str) -> Shape | None:
    names = {chip.slice_name(chips): shape for chips, shape in chip.slices.items()}
    return names.get(f"{chip.name}-{size}")
