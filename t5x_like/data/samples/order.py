"""The order of a stream: the number of the example in each row of each step."""

from __future__ import annotations

import dataclasses
import functools
import sys
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

_GOLDEN_RATIO = 0x9E3779B97F4A7C15
"""Its part behind the point, times 2 ** 64."""

Numbered = tuple[int, int]
"""The place of a component, and the number of one of its examples, counted through all epochs."""


class Epoch(NamedTuple):
    """Some consecutive numbers of examples, which a stream reads in an order of their own.

    Attributes:
      number: 0 for the first.
      begin: the number of its first example.
      size: how many examples it has.
    """

    number: int
    begin: int
    size: int


class Epochs(Protocol):
    """The division of numbers 0, 1, ... into epochs, and the sample that each number is."""

    def epoch_of(self, n: int) -> Epoch:
        """The epoch that holds number `n`."""

    def sample_of(self, n: int) -> int:
        """The sample that number `n` is."""


@dataclasses.dataclass(frozen=True)
class EqualEpochs:
    """Epochs of all `size` samples."""

    size: int

    def epoch_of(self, n: int) -> Epoch:
        """The epoch that holds number `n`."""
        number = n // self.size
        return Epoch(number, number * self.size, self.size)

    def sample_of(self, n: int) -> int:
        """The sample that number `n` is."""
        return n % self.size


@dataclasses.dataclass(frozen=True)
class Part:
    """A component of a stream.

    Attributes:
      name: the name from which, with the seed, its order is derived.
      epochs: its epochs.
      weight: its share of the rows, relative to those of the other components.
      rows: its number of rows in every batch, where rows are carried from batch to batch.
    """

    name: str
    epochs: Epochs
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
    rows = [
        OwnRows(k, part.epochs, _seed(seed, part.name) if shuffle else None)
        for k, part in enumerate(parts)
    ]
    return rows[0] if len(rows) == 1 else Mixed(rows, _choice([p.weight for p in parts]))


@dataclasses.dataclass(frozen=True)
class OwnRows:
    """The rows of one component: its examples, epoch by epoch.

    Attributes:
      component: its place among the components.
      epochs: its epochs.
      seed: the seed of the shuffling, from which each epoch derives its own; None does not shuffle.
    """

    component: int
    epochs: Epochs
    seed: int | None

    def __getitem__(self, row: int) -> Numbered:
        if self.seed is None:
            return self.component, row
        epoch, begin, size = self.epochs.epoch_of(row)
        seed = (self.seed + epoch) % 2**32
        index = _shuffle()(row - begin, max_index=size - 1, seed=seed, rounds=4)
        return self.component, begin + index


@functools.cache
def _shuffle() -> Callable[..., int]:
    """The function behind `grain.MapDataset.shuffle`. A direct call takes half its time."""
    from grain.experimental import index_shuffle

    return index_shuffle


@dataclasses.dataclass(frozen=True)
class Mixed:
    """The rows of several components.

    Attributes:
      parts: the rows of each component.
      choice: for each row, the place of its component plus len(parts) times the number of earlier
        rows of that component.
    """

    parts: Sequence[OwnRows]
    choice: Any

    def __getitem__(self, row: int) -> Numbered:
        number, component = divmod(self.choice[row], len(self.parts))
        return self.parts[component][number]


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
        component, rows, place_in_rows = self.owners[place]
        return component, step * rows + place_in_rows


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
    counts = [1] * len(weights)
    for _ in range(rows // multiple - len(weights)):
        quotients = [weight / (2 * n + 1) for weight, n in zip(weights, counts, strict=True)]
        counts[quotients.index(max(quotients))] += 1
    return [multiple * n for n in counts]


def spread(total: int, at_most: int | None = None) -> Sequence[int]:
    """Some of the numbers 0, ..., `total` - 1, spread evenly; all of them if `at_most` allows it.

    One is taken from each of `at_most` stretches of equal lengths. Its place in the stretch goes on
    by the golden ratio, so that no period of the numbered things gives all places the same kind.
    """
    if at_most is None or at_most >= total:
        return range(total)
    numbers = []
    for n in range(at_most):
        begin, end = n * total // at_most, (n + 1) * total // at_most
        numbers.append(begin + ((n * _GOLDEN_RATIO % 2**64) * (end - begin) >> 64))
    return numbers
