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
    """What a computation does.

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
            {kind: one.times(n) for kind, one in self.traffic.items()},
            {kernel: n * calls for kernel, calls in self.kernels.items()},
            self.unknown_loops,
        )

    def seconds(self, chip: Chip) -> float:
        """Without kernels and collectives."""
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
        parts = [self._of(one, computation) for one in computation.values()]
        return functools.reduce(Work.__add__, parts, Work())

    def _of(self, one: hlo.Instruction, there: Mapping[str, hlo.Instruction]) -> Work:
        match one.opcode:
            case "while":
                times = self._module.trip_count(one)
                (body,) = one.called("body")
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
                    for name in one.called(attribute)
                ]
                branches = map(self._of_computation, names)
                return max(branches, key=lambda work: work.seconds(self._chip), default=Work())
            case "call":
                return self._of_computation(one.called("to_apply")[0])
            case "async-start":
                return _beside_others(self._of_computation(one.called("calls")[0]))
        if kind_of(one) is not None:
            return self._collective(one, there, beside=one.opcode.endswith(("-start", "send")))
        beside = one.opcode.endswith(("-start", "-done"))  # copies ahead of their use
        if one.opcode in _FREE or beside or one.target in _NO_WORK:
            return Work()
        if one.target == kernels.TARGET:
            return Work(kernels={kernels.kernel_of(one, there): 1})
        if one.cycles is None:
            return self._hidden(one) + Work(uncosted_bytes=self._moved(one, there))
        return self._hidden(one) + Work(cycles={self._kind(one): one.cycles})

    def _kind(self, one: hlo.Instruction) -> str:
        called = one.called("calls")
        if one.opcode in _MATRIX or any(self._module.has(name, _MATRIX) for name in called):
            return "matrix products"
        return "copies" if one.opcode in ("copy", "transpose") else "other"

    def _hidden(self, one: hlo.Instruction) -> Work:
        """The collectives inside a fusion. Of one that several fusions share, the first counts."""
        found = Work()
        for name in one.called("calls"):
            for where, inner in self._module.inside(name):
                there = self._module.computation(where)
                starts = any(other.target == "AsyncCollectiveStart" for other in there.values())
                shared = "async_collective_fusion_config" in inner.attributes
                if kind_of(inner) is not None and (starts or not shared):
                    found += self._collective(inner, there, beside=True)
        return found

    def _collective(
        self, one: hlo.Instruction, there: Mapping[str, hlo.Instruction], *, beside: bool
    ) -> Work:
        kind = kind_of(one)
        assert kind is not None
        names = one.operands[:1] if one.opcode == "send" else one.operands
        cost = self._cost(one, sum(hlo.size(there[name].shape) for name in names))
        return Work(traffic={kind: cost if beside else cost.blocking()})

    def _moved(self, one: hlo.Instruction, there: Mapping[str, hlo.Instruction]) -> float:
        """Bytes that an instruction reads and writes in HBM."""
        shapes = [one.shape, *(there[name].shape for name in one.operands)]
        sizes = [hlo.size(shape, hbm_only=True) for shape in shapes]
        inner = one.called("calls")
        if one.opcode in _SPARSE or any(self._module.has(name, _SPARSE) for name in inner):
            # They touch as much of their largest array as the others are large.
            sizes = [2 * size for size in sizes if size < max(sizes)]
        return sum(sizes)


def _beside_others(work: Work) -> Work:
    """What an instruction starts without waiting for it."""
    sent = {
        kind: dataclasses.replace(one, blocking_ici_bytes=0.0, blocking_dcn_bytes=0.0)
        for kind, one in work.traffic.items()
    }
    return dataclasses.replace(work, traffic=sent)


def _sums(a: Mapping, b: Mapping) -> dict:
    """Values of both, added by key."""
    found = dict(a)
    for key, value in b.items():
        found[key] = found[key] + value if key in found else value
    return found
