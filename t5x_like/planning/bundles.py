"""The cycles of a kernel, counted from its final bundles: one instruction word, one cycle.

The count is static. It knows no stalls, and no waiting for memory. Loops run as often as their exit
tests say. A region that runs only where an index has one value, such as the first step of a grid's
innermost axis, runs once in each round of that axis.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

_LINE = re.compile(r"^ *(?:0x)?([0-9a-f]+) *((?:[A-Z]{2})?(?: [A-Z]{2})*) *: *(>*) *\{(.*)")
_EXIT = re.compile(
    r"scmp\.ge\.s32\.totalorder (?:\([^)]*\), )?(%\w+), (\S+?) /\* loop exit test \*/"
)
_STEP = r"%{name} = sadd\.s32 (\d+),"
_SKIP = re.compile(r"sbr\.rel \((%p\w+)\) target = \$region(\d+)")
_ONE_VALUE = re.compile(r"(%p\w+) = scmp\.ne\.s32\.totalorder (?:\([^)]*\), )?%\w+, \d+")
_WRAP = re.compile(r"%p\w+ = scmp\.ge\.s32\.totalorder %(s\w+), (\d+)(?! /\* loop exit)")


class Bundle(NamedTuple):
    """An instruction word: how many loops it is in, its label, and its text."""

    depth: int
    label: str
    text: str


def cycles(text: str) -> float | None:
    """The cycles of a kernel; None if a loop's number of rounds is not in the text.

    Args:
      text: the compiler's dump `final_bundles`.
    """
    bundles = [*_bundles(text)]
    rounds = _rounds_by_bundle(bundles)
    if rounds is None:
        return None
    rare = _rare(bundles)
    shares = (1 / _innermost(bundles) if n in rare else 1.0 for n in range(len(bundles)))
    return sum(count * share for count, share in zip(rounds, shares, strict=True))


def _bundles(text: str) -> Iterator[Bundle]:
    depth = 0
    for line in text.splitlines():
        if match := _LINE.match(line):
            if not match[4].startswith("}"):  # an empty one does not say in which loop it is
                depth = len(match[3])
            yield Bundle(depth, match[2].strip(), match[4])


def _rounds_by_bundle(bundles: list[Bundle]) -> list[float] | None:
    """How often each bundle runs; None if unknown."""
    stack: list[float] = []
    left: dict[int, float] = {}  # rounds of the loops that have ended, by depth
    all_rounds: list[float] = []
    for n, bundle in enumerate(bundles):
        begins = "LB" in bundle.label.split()
        outer = bundle.depth - begins
        left |= {depth: rounds for depth, rounds in enumerate(stack) if depth >= outer}
        del stack[outer:]
        while len(stack) < bundle.depth:
            rounds = _rounds(bundles, n, len(stack) + 1)
            if rounds is None and not begins:
                # The branch that closes a loop is written outside, its shadow inside.
                rounds = left.get(len(stack))
            if rounds is None:
                return None
            stack.append(rounds)
        all_rounds.append(math.prod(stack))
    return all_rounds


def _rounds(bundles: list[Bundle], start: int, depth: int) -> float | None:
    """How often the loop of this depth runs that begins at bundle `start`."""
    inside = []
    for n, bundle in enumerate(bundles[start:]):
        again = n and bundle.depth == depth and "LB" in bundle.label.split()
        if bundle.depth < depth or again:
            break
        if bundle.depth == depth:
            inside.append(bundle.text)
    body = "\n".join(inside)
    test = _EXIT.search(body)
    if test is None or not test[2].isdecimal():
        return None
    step = re.search(_STEP.format(name=test[1][1:]), body)
    return math.ceil(int(test[2]) / (int(step[1]) if step else 1))


def _innermost(bundles: list[Bundle]) -> int:
    """The rounds of the innermost axis of a grid; 1 if there is no grid of several axes."""
    for bundle in bundles:
        if bundle.depth == 1 and (match := _WRAP.search(bundle.text)):
            return max(1, int(match[2]))
    return 1


def _rare(bundles: list[Bundle]) -> set[int]:
    """The bundles in regions that run only where an index has one value."""
    only = {index for bundle in bundles for index in _ONE_VALUE.findall(bundle.text)}
    rare: set[int] = set()
    for n, bundle in enumerate(bundles):
        skip = _SKIP.search(bundle.text)
        if skip is None or skip[1] not in only:
            continue
        ends = re.compile(rf"(?:End|empty) region {skip[2]}\b")
        end = next((m for m in range(n + 1, len(bundles)) if ends.search(bundles[m].text)), n)
        rare.update(range(n + 1, end))
    return rare
