"""Optimized programs as XLA prints them: computations, and the instructions in them."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Iterator

_HEAD = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{\s*$")
_NAME = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = ")
_OPCODE = re.compile(r" *([a-z][\w\-]*)\(")
_ARRAY = re.compile(r"\b([a-z]\w*)\[([\d,]*)\](\{[^}]*\})?")
_OPERAND = re.compile(r"%([\w.\-]+)")
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_BYTES = {"pred": 1, "bf16": 2, "f16": 2, "s4": 0.5, "u4": 0.5, "token": 0}
_ELSEWHERE = re.compile(r"S\([1-9]\d*\)")


@dataclasses.dataclass(frozen=True)
class Instruction:
    """An instruction.

    Attributes:
      name: its name in its computation.
      shape: its result as XLA writes it, such as `(f32[8,128]{1,0}, u32[])`.
      opcode: what it does, such as `fusion`.
      operands: the names of the instructions that it reads.
      attributes: the rest of its line.
      is_root: whether it is the result of its computation.
    """

    name: str
    shape: str
    opcode: str
    operands: tuple[str, ...]
    attributes: str
    is_root: bool = False

    @property
    def cycles(self) -> int | None:
        """The compiler's estimate; None where it has none."""
        match = _CYCLES.search(self.attributes)
        return int(match[1]) if match else None

    def called(self, attribute: str) -> list[str]:
        """The computations in an attribute, such as `calls=%a` or `branches={%a, %b}`."""
        match = re.search(rf"\b{attribute}=(?:%?([\w.\-]+)|\{{([^}}]*)\}})", self.attributes)
        if match is None:
            return []
        return [match[1]] if match[1] else re.findall(r"%?([\w.\-]+)", match[2])

    @property
    def target(self) -> str:
        """The target of a custom call; "" for another instruction."""
        match = re.search(r'custom_call_target="([^"]*)"', self.attributes)
        return match[1] if match else ""

    @property
    def trip_count(self) -> int | None:
        """How often a loop runs its body, if the compiler knows."""
        match = re.search(r'"known_trip_count":\{"n":"(\d+)"', self.attributes)
        return int(match[1]) if match else None


class Module:
    """A program. Computations are read when they are asked for: a program has many lines."""

    def __init__(self, text: str) -> None:
        self._lines: dict[str, list[str]] = {}
        self.entry = ""
        current: list[str] | None = None
        for line in text.splitlines():
            if current is not None:
                if line.rstrip() == "}":
                    current = None
                elif current and not line.startswith(" "):  # metadata of a kernel has several lines
                    current[-1] += line
                else:
                    current.append(line)
            elif line.endswith("{") and (head := _HEAD.match(line)):
                current = self._lines[head[2]] = []
                self.entry = head[2] if head[1] else self.entry
        if not self.entry:
            raise ValueError("this is not a program of XLA: it has no computation ENTRY")
        self.computation = functools.cache(self._computation)
        self.has = functools.cache(self._has)

    def _computation(self, name: str) -> dict[str, Instruction]:
        """The instructions of a computation by name, in order."""
        instructions = filter(None, map(parse, self._lines[name]))
        return {instruction.name: instruction for instruction in instructions}

    def _has(self, name: str, opcodes: tuple[str, ...]) -> bool:
        """Whether a computation has one of these instructions, in nested fusions too."""
        return any(
            instruction.opcode in opcodes
            or any(self.has(inner, opcodes) for inner in instruction.called("calls"))
            for instruction in self.computation(name).values()
        )

    def trip_count(self, loop: Instruction) -> int | None:
        """How often a loop runs; the largest bound in its condition if the compiler is silent."""
        if loop.trip_count is not None:
            return loop.trip_count
        waiting, bounds = loop.called("condition"), [0]
        while waiting:
            for instruction in self.computation(waiting.pop()).values():
                waiting += instruction.called("calls")
                if instruction.opcode == "constant" and re.match(r"[su]\d+\[\]", instruction.shape):
                    bounds += map(int, re.findall(r"^-?\d+", instruction.attributes))
        return max(bounds) or None

    def inside(self, name: str) -> Iterator[tuple[str, Instruction]]:
        """(computation, instruction) of a computation and of the fusions nested in it."""
        for instruction in self.computation(name).values():
            yield name, instruction
            for inner in instruction.called("calls"):
                yield from self.inside(inner)


def parse(line: str) -> Instruction | None:
    """The instruction on a line; None if there is none."""
    name = _NAME.match(line)
    if name is None:
        return None
    end = _end_of_shape(line, name.end())
    opcode = _OPCODE.match(line, end)
    if opcode is None:
        return None
    close = _closing(line, opcode.end() - 1)
    inside = line[opcode.end() : close]
    attributes = line[close + 1 :]
    if opcode[1] == "constant":
        inside, attributes = "", f"{inside}{attributes}"
    operands = tuple(_OPERAND.findall(inside))
    return Instruction(
        name[2], line[name.end() : end], opcode[1], operands, attributes, bool(name[1])
    )


def size(shape: str, *, hbm_only: bool = False) -> float:
    """The bytes of all arrays in a shape; with `hbm_only` without those in faster memory."""
    total = 0.0
    for dtype, sides, layout in _ARRAY.findall(shape):
        if hbm_only and _ELSEWHERE.search(layout):
            continue
        bits = re.search(r"\d+", dtype)
        each = _BYTES.get(dtype, int(bits[0]) / 8 if bits else 0)
        if dtype.startswith("f8"):
            each = 1
        total += each * math.prod(int(side) for side in sides.split(",") if side)
    return total


def _end_of_shape(line: str, start: int) -> int:
    if line[start] == "(":
        return _closing(line, start) + 1
    return line.index(" ", start)


def _closing(line: str, start: int) -> int:
    """The place of the parenthesis that closes the one at `start`."""
    depth = 0
    for place in range(start, len(line)):
        if line[place] == "(":
            depth += 1
        elif line[place] == ")":
            depth -= 1
            if not depth:
                return place
    return len(line)
