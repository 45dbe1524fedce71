"""The order of a stream: the number of the example in each row of each step."""

from __future__ import annotations

import dataclasses
import functools
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from math import gcd, lcm
from typing import Any, Protocol

import numpy as np

Numbered = tuple[int, int]
"""The place of a component, and the number n = epoch * size + index of one of its examples."""


@dataclasses.dataclass(frozen=True)
class Part:
    """A component of a stream.

    Attributes:
      name: the name from which, with the seed, its order is derived.
      size: the number of examples in an epoch.
      weight: its share of the rows, relative to those of the other components.
      rows: its number of rows in every batch, where rows are carried from batch to batch.
    """

    name: str
    size: int
    weight: int
    rows: int | None


class Order(Protocol):
    """The example of each row, where the rows of all steps are numbered in one sequence."""

    def __getitem__(self, row: int) -> Numbered: ...


def order(parts: Sequence[Part], *, batch_size: int, seed: int, shuffle: bool) -> Order:
    """The order of an endless stream.

    Args:
      parts: the components, drawn from in exact proportion to their weights, each in epochs.
      batch_size: the rows of a batch.
      seed: the seed of the order.
      shuffle: whether to shuffle each epoch differently. Carried rows are never shuffled.

    Raises:
      ValueError: a weight is less than 1, or the carried rows do not make a batch.
    """
    weights = [part.weight for part in parts]
    if not parts or min(weights) < 1:
        raise ValueError(f"a mixture needs weights of at least 1, got {weights}")
    if any(part.rows is not None for part in parts):
        return CarriedOrder.of(parts, batch_size)
    return _mix(parts, seed=seed, shuffle=shuffle)


def _mix(parts: Sequence[Part], *, seed: int, shuffle: bool) -> Order:
    epochs = [
        Epochs(k, part.size, _seed(seed, part.name) if shuffle else None)
        for k, part in enumerate(parts)
    ]
    return epochs[0] if len(epochs) == 1 else Mixed(epochs, _choice([p.weight for p in parts]))


@dataclasses.dataclass(frozen=True)
class Epochs:
    """The rows of one component: its examples in epochs. Each epoch has all of them.

    Attributes:
      component: its place among the components.
      size: the number of examples in an epoch.
      seed: the seed of the shuffling, from which each epoch derives its own; None does not shuffle.
    """

    component: int
    size: int
    seed: int | None

    def __getitem__(self, row: int) -> Numbered:
        epoch, index = divmod(row, self.size)
        if self.seed is not None:
            seed = (self.seed + epoch) % 2**32
            index = _shuffle()(index, max_index=self.size - 1, seed=seed, rounds=4)
        return self.component, epoch * self.size + index


@functools.cache
def _shuffle() -> Callable[..., int]:
    """The function behind `grain.MapDataset.shuffle`. A direct call takes half its time."""
    from grain.experimental import index_shuffle

    return index_shuffle


@dataclasses.dataclass(frozen=True)
class Mixed:
    """The rows of several components.

    Attributes:
      epochs: the rows of each component.
      choice: for each row, the place of its component plus len(epochs) times the number of earlier
        rows of that component.
    """

    epochs: Sequence[Epochs]
    choice: Any

    def __getitem__(self, row: int) -> Numbered:
        number, component = divmod(self.choice[row], len(self.epochs))
        return self.epochs[component][number]


def _choice(weights: Sequence[int]) -> Any:
    """The `choice` of `Mixed`, a `grain.MapDataset`. Grain is fast with single numbers only."""
    import grain

    count = len(weights)
    numbers = [grain.MapDataset.range(k, sys.maxsize, count) for k in range(count)]
    return grain.MapDataset.mix(numbers, weights=weights)


def _seed(seed: int, name: str) -> int:
    """The seed of a component's epoch 0; later epochs add their number to it.

    It is a hash, because epochs of neighbouring seeds would otherwise share their orders.
    """
    sequence = np.random.SeedSequence([seed, zlib.crc32(name.encode())])
    return int(sequence.generate_state(1)[0])


@dataclasses.dataclass(frozen=True)
class CarriedOrder:
    """Row r of every batch continues where row r of the batch before ended.

    Attributes:
      batch_size: the rows of a batch.
      owners: for each row of a batch, the component, the number of its rows, and the row's place
        among these.
    """

    batch_size: int
    owners: tuple[tuple[int, int, int], ...]

    @classmethod
    def of(cls, parts: Sequence[Part], batch_size: int) -> CarriedOrder:
        """The order in which the rows of the components follow one another in a batch."""
        if any(part.rows is None for part in parts):
            names = ", ".join(part.name for part in parts if part.rows is None)
            raise ValueError(
                f"a mixture cannot have tasks that carry rows from batch to batch beside others "
                f"({names}): give such an objective to all of them, or to none"
            )
        owners = [
            (k, rows, place)
            for k, rows in enumerate(part.rows or 0 for part in parts)
            for place in range(rows)
        ]
        if len(owners) != batch_size:
            raise ValueError(
                f"rows were planned for batches of {len(owners)}, not of {batch_size}: open the "
                "data again for this batch size"
            )
        return cls(batch_size, tuple(owners))

    def __getitem__(self, row: int) -> Numbered:
        step, place = divmod(row, self.batch_size)
        component, rows, own = self.owners[place]
        return component, step * rows + own


def shares(weights: Sequence[int], rows: int, *, multiple: int = 1) -> list[int]:
    """`rows` divided in proportion to the weights, at least `multiple` each (Webster's method).

    Args:
      weights: one weight for each task.
      rows: the rows of a batch.
      multiple: the number that divides each share: 2 where rows come in pairs.

    Raises:
      ValueError: there are too few rows, or their number is not a multiple of `multiple`.
    """
    least = multiple * len(weights)
    if rows < least or rows % multiple:
        raise ValueError(
            f"batches need at least {least} rows, a multiple of {multiple}, not {rows}: rows of "
            f"{len(weights)} task{'s' * (len(weights) > 1)} are carried from batch to batch"
        )
    given = [1] * len(weights)
    for _ in range(rows // multiple - len(weights)):
        quotients = [weight / (2 * n + 1) for weight, n in zip(weights, given, strict=True)]
        given[quotients.index(max(quotients))] += 1
    return [multiple * n for n in given]


def integer_weights(rates: Mapping[str, float]) -> dict[str, int]:
    """The smallest integers in the proportion of `rates`, which are rounded to nine digits.

    Raises:
      ValueError: a rate is negative, or all are zero.
    """
    exact = {name: Fraction(rate).limit_denominator(10**9) for name, rate in rates.items()}
    if any(rate < 0 for rate in exact.values()) or not any(exact.values()):
        raise ValueError(f"mixture rates must be positive: {dict(rates)}")
    scale = lcm(*(rate.denominator for rate in exact.values()))
    whole = {name: int(rate * scale) for name, rate in exact.items()}
    divisor = gcd(*whole.values())
    return {name: weight // divisor for name, weight in whole.items()}
