"""The traffic of a program's collectives: bytes by kind, within a slice and between slices."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from t5x_like.planning import hlo

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")


class Group(NamedTuple):
    """The devices of a collective: how many in each slice, and in how many slices."""

    in_slice: int
    slices: int


@dataclasses.dataclass(frozen=True)
class Traffic:
    """Collectives of a kind in a step.

    Attributes:
      count: how many a step executes.
      bytes: of the whole arrays: what a device has before an all-reduce or a reduce-scatter, and
        after an all-gather.
      ici_bytes: what a device sends to others of its slice.
      dcn_bytes: what a device sends to other slices.
      blocking_ici_bytes: those of `ici_bytes` that the device waits for: of collectives that are
        not asynchronous, nothing runs beside them.
      blocking_dcn_bytes: those of `dcn_bytes` that it waits for.
    """

    count: float = 0.0
    bytes: float = 0.0
    ici_bytes: float = 0.0
    dcn_bytes: float = 0.0
    blocking_ici_bytes: float = 0.0
    blocking_dcn_bytes: float = 0.0

    def __add__(self, other: Traffic) -> Traffic:
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
        return Traffic(*(a + b for a, b in pairs))

    def times(self, n: float) -> Traffic:
        return Traffic(*(n * value for value in dataclasses.astuple(self)))

    def blocking(self) -> Traffic:
        """The same traffic, all of it of collectives that the device waits for."""
        return dataclasses.replace(
            self, blocking_ici_bytes=self.ici_bytes, blocking_dcn_bytes=self.dcn_bytes
        )


def kind_of(one: hlo.Instruction) -> str | None:
    """The kind of a collective, `-start` included; None for other instructions."""
    name = one.opcode.removesuffix("-start")
    if name in KINDS:
        return name
    if one.opcode == "send" and (match := re.search(r'transfer_type="(\w+)"', one.attributes)):
        return match[1].lower().replace("_", "-")  # how multi-slice programs leave their slice
    return None


def traffic(one: hlo.Instruction, sent: float, *, devices_of_slice: int, slices: int) -> Traffic:
    """The traffic of a collective.

    Args:
      one: the collective.
      sent: bytes of its operands.
      devices_of_slice: devices of a slice, which have consecutive numbers.
      slices: the number of slices.
    """
    kind = kind_of(one)
    if one.opcode == "send":
        share = 2 * (slices - 1) / slices if kind == "all-reduce" else 1.0
        return Traffic(1, sent, 0, sent * share)
    if kind == "collective-permute":
        crossing = _crossing(one.attributes, devices_of_slice)
        return Traffic(1, sent, sent * (1 - crossing), sent * crossing)
    group = _group(one.attributes, devices_of_slice, devices_of_slice * slices)
    n, s = group.in_slice, group.slices
    match kind:
        case "all-gather":
            # First between slices, then what has arrived within each.
            return Traffic(1, sent * n * s, sent * s * (n - 1), sent * (s - 1))
        case "all-to-all":
            devices = n * s
            return Traffic(1, sent, sent * (n - 1) / devices, sent * (s - 1) * n / devices)
    once = Traffic(1, sent, sent * (n - 1) / n, sent / n * (s - 1) / s)
    if kind == "reduce-scatter":
        return once
    return dataclasses.replace(once, ici_bytes=2 * once.ici_bytes, dcn_bytes=2 * once.dcn_bytes)


def _group(attributes: str, devices_of_slice: int, devices: int) -> Group:
    """The devices of one group; all groups of a collective are alike."""
    numbers = _first_group(attributes) or list(range(devices))
    slices = len({number // devices_of_slice for number in numbers})
    return Group(max(1, len(numbers) // slices), slices)


_LIST = re.compile(r"\{\{([\d,]*)\}")
_IOTA = r"\[[\d,]+\](?:<=\[[\d,]+\])?(?:T\([\d,]+\))?"
_MESH = re.compile(rf"mesh\[([^\]]*)\](?:,? *device_ids=\(({_IOTA})\))? *\{{([^}}]*)\}}")


def _first_group(attributes: str) -> list[int]:
    """The numbers in the first of `replica_groups`; empty for one group of all.

    XLA writes {{0,1},{2,3}}, or [2,2]<=[4] (an iota, perhaps transposed), or the axes of a mesh.

    Raises:
      ValueError: it is written in another way.
    """
    match = re.search(r"replica_groups=(.*)", attributes)
    text = match[1] if match else "{}"
    if plain := _LIST.match(text):
        return [int(number) for number in plain[1].split(",") if number]
    if text.startswith("{}"):
        return []
    if mesh := _MESH.match(text):
        return _mesh_group(*mesh.groups())
    if iota := re.match(_IOTA, text):
        return [int(number) for number in _iota(iota[0])[0]]
    raise ValueError(
        f"the devices of a collective are written in a way that is not known here: {text[:80]}"
    )


def _iota(text: str) -> np.ndarray:
    """`[groups,devices]<=[sizes]T(order)`; without sizes, what is left is [sizes]T(order)."""
    shape, dims, order = re.fullmatch(  # type: ignore[union-attr]
        r"\[([\d,]+)\](?:<=\[([\d,]+)\])?(?:T\(([\d,]+)\))?", text
    ).groups()
    sizes = _ints(dims or shape)
    numbers = np.arange(math.prod(sizes)).reshape(sizes)
    if order:
        numbers = numbers.transpose(_ints(order))
    return numbers.reshape(_ints(shape)) if dims else numbers


def _mesh_group(axes: str, ids: str | None, used: str) -> list[int]:
    """The first group over some axes of a mesh: `'a'=2,'b'=4`, used `'a'` or `'b':(2)2`.

    The devices of the mesh are numbered in order, or in that of `ids`.
    """
    sizes = {name: int(size) for name, size in re.findall(r"'([^']*)'=(\d+)", axes)}
    numbers = np.arange(math.prod(sizes.values())) if ids is None else np.ravel(_iota(ids))
    grid = numbers.reshape(tuple(sizes.values()))
    index: list[slice | int] = [0] * len(sizes)
    for name, before, part in re.findall(r"'([^']*)'(?::\((\d+)\)(\d+))?", used):
        place, whole = list(sizes).index(name), sizes[name]
        step = whole // (int(before) * int(part)) if part else 1
        stop = step * int(part) if part else whole
        index[place] = slice(0, stop, step)
    return [int(number) for number in np.ravel(grid[tuple(index)])]


def _crossing(attributes: str, devices_of_slice: int) -> float:
    """The share of a permutation's pairs that are in different slices."""
    match = re.search(r"source_target_pairs=\{(.*?)\}\}", attributes)
    pairs = re.findall(r"\{(\d+),(\d+)", match[1] + "}") if match else []
    if not pairs:
        return 0.0
    across = sum(int(a) // devices_of_slice != int(b) // devices_of_slice for a, b in pairs)
    return across / len(pairs)


def _ints(text: str) -> Sequence[int]:
    return [int(part) for part in text.split(",")]
