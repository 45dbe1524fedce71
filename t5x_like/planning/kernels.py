"""The time of Pallas kernels, for which the compiler has no estimate.

Each kernel of a program is compiled once more, alone, for its final bundles. Where these do not
tell, its operations do, at the chip's published rate. It takes no less time than its bytes need.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from t5x_like.core.devices.tpus import Chip
from t5x_like.planning import bundles, hlo
from t5x_like.planning.child_process import run_child
from t5x_like.planning.topologies import Topology

TARGET = "tpu_custom_call"
"""The target of the custom call of a Pallas kernel."""

_CONFIG = "backend_config="
_KEPT = ("custom_call_config", "scoped_memory_configs")
"""The parts of it that say what a kernel is, and how much of the chip's memory it may take."""


@dataclasses.dataclass(frozen=True)
class Kernel:
    """A Pallas kernel for arrays of given shapes.

    Attributes:
      name: its name.
      operands: the shape of each array that it reads.
      result: the shape of what it writes.
      config: its code, as the compiler has it. Equal kernels of several layers differ in it, as it
        names lines of source.
    """

    name: str
    operands: tuple[str, ...]
    result: str
    config: str = dataclasses.field(compare=False)

    @property
    def bytes(self) -> float:
        """The bytes that a call reads and writes."""
        return sum(map(hlo.size, (*self.operands, self.result)))

    @property
    def flops(self) -> float:
        """The operations that its author states (`pl.CostEstimate`); 0 if none are stated."""
        match = re.search(r'"flops": *"?(\d+)', self.config)
        return float(match[1]) if match else 0.0

    def seconds(self, chip: Chip, cycles: float | None) -> float:
        """The time of a call: of its cycles, or of its operations; no less than of its bytes."""
        computing = self.flops / chip.peak_flops if cycles is None else cycles / chip.clock
        return max(computing, self.bytes / chip.hbm_bandwidth)


class KernelTime(NamedTuple):
    """The time of the calls of kernels with one name in a step.

    Attributes:
      name: the kernel's name.
      calls: the calls of a step.
      seconds: of all calls.
      source: "bundles", or "rates" where the bundles do not tell.
    """

    name: str
    calls: float
    seconds: float
    source: str


def kernel_of(one: hlo.Instruction, there: Mapping[str, hlo.Instruction]) -> Kernel:
    """The kernel that an instruction of the computation `there` calls."""
    name = re.sub(r"[.\d]+$", "", one.name) or one.name
    operands = tuple(there[operand].shape for operand in one.operands)
    start = one.attributes.find(_CONFIG)
    config: dict = {}
    if start >= 0:
        config, _ = json.JSONDecoder().raw_decode(one.attributes[start + len(_CONFIG) :])
    kept = {part: config[part] for part in _KEPT if part in config}
    return Kernel(name, operands, one.shape, json.dumps(kept))


def kernel_times(calls: Mapping[Kernel, float], topology: Topology) -> list[KernelTime]:
    """The time of the kernels of each name; kernels are compiled for a chip of `topology`."""
    cycles = kernel_cycles(calls, topology)
    time_of: dict[tuple[str, str], KernelTime] = {}
    for kernel, times in calls.items():
        known = cycles.get(kernel)
        each, source = kernel.seconds(topology.chip, known), "rates" if known is None else "bundles"
        before = time_of.get((kernel.name, source), KernelTime(kernel.name, 0, 0, source))
        time_of[kernel.name, source] = before._replace(
            calls=before.calls + times, seconds=before.seconds + times * each
        )
    return [*time_of.values()]


def kernel_cycles(kernels: Iterable[Kernel], topology: Topology) -> dict[Kernel, float]:
    """The cycles of the kernels whose bundles tell them."""
    listed = [*kernels]
    if not listed:
        return {}
    request = {
        "kernels": [
            {"operands": kernel.operands, "result": kernel.result, "config": kernel.config}
            for kernel in listed
        ]
    }
    with run_child("t5x_like.planning.kernel_child", request, topology, dump_kernels=True) as done:
        done.wait()
        dumps = [[*(done.folder / str(n)).glob("*final_bundles.txt")] for n in range(len(listed))]
        texts = [max((file.read_text() for file in files), key=len, default="") for files in dumps]
    counts = (
        (kernel, bundles.cycles(text) if text else None)
        for kernel, text in zip(listed, texts, strict=True)
    )
    return {kernel: count for kernel, count in counts if count}
