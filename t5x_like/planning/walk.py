"""The modelled time of a program: a walk over the instructions that one step executes.

The compiler's `estimated_cycles` are added up: of a loop's body as often as it runs, of the dearest
branch of a conditional. What has no estimate is added at the memory's bandwidth. Collectives and
copies that run beside the rest are not part of it: `traffic` has the collectives, and says which of
them nothing runs beside.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping

from t5x_like.core.devices.tpus import Chip
from t5x_like.planning import hlo, kernels
from t5x_like.planning.kernels import Kernel
from t5x_like.planning.traffic import Traffic, kind_of, traffic

_FREE = frozenset(
    "parameter constant tuple get-tuple-element bitcast after-all partition-id replica-id "
    "opt-barrier domain send recv async-update".split()
)
_MATRIX = ("convolution", "dot")
_SPARSE = ("gather", "scatter", "dynamic-slice", "dynamic-update-slice")
_NO_WORK = ("AllocateBuffer", "ConcatBitcast", "AsyncCollectiveStart", "Sharding")


@dataclasses.dataclass(frozen=True)
class Work:
    """The work of a computation.

    Attributes:
      cycles: estimated cycles by kind of instruction.
      uncosted_bytes: bytes that instructions without an estimate read and write in HBM.
      traffic: collectives by kind.
      kernels: {kernel: number of calls}.
      unknown_loops: loops whose number of rounds is unknown; they count once.
    """

    cycles: Mapping[str, float] = dataclasses.field(default_factory=dict)
    uncosted_bytes: float = 0.0
    traffic: Mapping[str, Traffic] = dataclasses.field(default_factory=dict)
    kernels: Mapping[Kernel, float] = dataclasses.field(default_factory=dict)
    unknown_loops: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(
            _sums(self.cycles, other.cycles),
            self.uncosted_bytes + other.uncosted_bytes,
            _sums(self.traffic, other.traffic),
            _sums(self.kernels, other.kernels),
            self.unknown_loops + other.unknown_loops,
        )

    def times(self, n: float) -> Work:
        return Work(
            {kind: n * cycles for kind, cycles in self.cycles.items()},
            n * self.uncosted_bytes,
            {kind: traffic_of_kind.times(n) for kind, traffic_of_kind in self.traffic.items()},
            {kernel: n * calls for kernel, calls in self.kernels.items()},
            self.unknown_loops,
        )

    def seconds(self, chip: Chip) -> float:
        """The time without kernels and collectives."""
        return sum(self.cycles.values()) / chip.clock + self.uncosted_bytes / chip.hbm_bandwidth


def walk(text: str, chip: Chip, *, devices_of_slice: int, slices: int = 1) -> Work:
    """The work of one step.

    Args:
      text: an optimized program, as the compiler prints it for one device.
      chip: the chip that it is for.
      devices_of_slice: devices of a slice.
      slices: the number of slices.
    """
    cost = functools.partial(traffic, devices_of_slice=devices_of_slice, slices=slices)
    return _Walker(hlo.Module(text), chip, cost).total()


class _Walker:
    def __init__(
        self, module: hlo.Module, chip: Chip, cost: Callable[[hlo.Instruction, float], Traffic]
    ) -> None:
        self._module, self._chip, self._cost = module, chip, cost
        self._of_computation = functools.cache(self._work)

    def total(self) -> Work:
        return self._of_computation(self._module.entry)

    def _work(self, name: str) -> Work:
        computation = self._module.computation(name)
        parts = [self._of(instruction, computation) for instruction in computation.values()]
        return functools.reduce(Work.__add__, parts, Work())

    def _of(self, instruction: hlo.Instruction, computation: Mapping[str, hlo.Instruction]) -> Work:
        match instruction.opcode:
            case "while":
                times = self._module.trip_count(instruction)
                (body,) = instruction.called("body")
                unknown = Work(unknown_loops=int(times is None))
                return self._of_computation(body).times(times or 1) + unknown
            case "conditional":
                names = [
                    name
                    for attribute in (
                        "branch_computations",
                        "true_computation",
                        "false_computation",
                    )
                    for name in instruction.called(attribute)
                ]
                branches = map(self._of_computation, names)
                return max(branches, key=lambda work: work.seconds(self._chip), default=Work())
            case "call":
                return self._of_computation(instruction.called("to_apply")[0])
            case "async-start":
                return _beside_others(self._of_computation(instruction.called("calls")[0]))
        if kind_of(instruction) is not None:
            return self._collective(
                instruction, computation, beside=instruction.opcode.endswith(("-start", "send"))
            )
        beside = instruction.opcode.endswith(("-start", "-done"))  # copies ahead of their use
        if instruction.opcode in _FREE or beside or instruction.target in _NO_WORK:
            return Work()
        if instruction.target == kernels.TARGET:
            return Work(kernels={kernels.kernel_of(instruction, computation): 1})
        if instruction.cycles is None:
            return self._hidden(instruction) + Work(
                uncosted_bytes=self._moved(instruction, computation)
            )
        return self._hidden(instruction) + Work(
            cycles={self._kind(instruction): instruction.cycles}
        )

    def _kind(self, instruction: hlo.Instruction) -> str:
        called = instruction.called("calls")
        if instruction.opcode in _MATRIX or any(self._module.has(name, _MATRIX) for name in called):
            return "matrix products"
        return "copies" if instruction.opcode in ("copy", "transpose") else "other"

    def _hidden(self, instruction: hlo.Instruction) -> Work:
        """The collectives inside a fusion. Of one that several fusions share, the first counts."""
        hidden = Work()
        for name in instruction.called("calls"):
            for where, inner in self._module.inside(name):
                computation = self._module.computation(where)
                starts = any(
                    other.target == "AsyncCollectiveStart" for other in computation.values()
                )
                shared = "async_collective_fusion_config" in inner.attributes
                if kind_of(inner) is not None and (starts or not shared):
                    hidden += self._collective(inner, computation, beside=True)
        return hidden

    def _collective(
        self,
        instruction: hlo.Instruction,
        computation: Mapping[str, hlo.Instruction],
        *,
        beside: bool,
    ) -> Work:
        kind = kind_of(instruction)
        assert kind is not None
        names = instruction.operands[:1] if instruction.opcode == "send" else instruction.operands
        cost = self._cost(instruction, sum(hlo.size(computation[name].shape) for name in names))
        return Work(traffic={kind: cost if beside else cost.blocking()})

    def _moved(
        self, instruction: hlo.Instruction, computation: Mapping[str, hlo.Instruction]
    ) -> float:
        """Bytes that an instruction reads and writes in HBM."""
        shapes = [instruction.shape, *(computation[name].shape for name in instruction.operands)]
        sizes = [hlo.size(shape, hbm_only=True) for shape in shapes]
        inner = instruction.called("calls")
        if instruction.opcode in _SPARSE or any(self._module.has(name, _SPARSE) for name in inner):
            # They touch as much of their largest array as the others are large.
            sizes = [2 * size for size in sizes if size < max(sizes)]
        return sum(sizes)


def _beside_others(work: Work) -> Work:
    """The work that an instruction starts without waiting for it: no traffic of it is blocking."""
    sent = {
        kind: dataclasses.replace(traffic_of_kind, blocking_ici_bytes=0.0, blocking_dcn_bytes=0.0)
        for kind, traffic_of_kind in work.traffic.items()
    }
    return dataclasses.replace(work, traffic=sent)


def _sums(a: Mapping, b: Mapping) -> dict:
    """Values of both, added by key."""
    sums = dict(a)
    for key, value in b.items():
        sums[key] = sums[key] + value if key in sums else value
    return sums
