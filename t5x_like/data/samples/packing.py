"""Packed rows. A plan, made once from the samples' sizes and kept, says which share a row."""

from __future__ import annotations

import array
import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from t5x_like.core.protocols.data import PLAIN_TEXT, Objective, TokenIds
from t5x_like.data.cache.reader import CacheSplit
from t5x_like.data.samples import plans
from t5x_like.data.samples.planned_samples import PlannedSamples, plan_samples, split_documents
from t5x_like.data.samples.samples import (
    RecordSamples,
    Sample,
    Samples,
    constant_features,
    make_samples,
)
from t5x_like.data.samples.token_stream import Split, TokenStream
from t5x_like.objectives.parts.geometry import PerRecord, RecordWindows, SplitDocuments
from t5x_like.objectives.parts.sentence_blocks import LineBlocks, SentenceBlocks

_OPEN_ROWS = 256
_LEVELS = 32
_BLOCK = 1 << 16


class Needs(Protocol):
    """The sizes of samples, as a function: a frozen dataclass, whose repr identifies the sizes."""

    def __call__(self, first: int, last: int) -> np.ndarray:
        """int64 [features, last - first]: the tokens of samples `first` to `last`."""


def first_fit(blocks: Iterable[np.ndarray], capacity: Sequence[int]) -> Iterator[list[int]]:
    """Rows of samples. Each sample, in order, goes to the first open row that has room.

    At most 256 rows are open. If another row is needed, the fullest row is closed, where fullness
    is measured to a 32nd of a row. So planning takes linear time and little memory, and the samples
    of a row lie near each other.

    Args:
      blocks: int64 [features, n], the tokens of the next n samples, at most `capacity`.
      capacity: the tokens of a row for each feature.

    Yields:
      The numbers of a row's samples, ascending, whenever a row is closed.
    """
    return _fitted(blocks, capacity, _place)


def best_fit(blocks: Iterable[np.ndarray], capacity: Sequence[int]) -> Iterator[list[int]]:
    """Rows as `first_fit` makes them, but each sample goes to the tightest open row that has room.

    The room that counts is that for the first feature. Rows of pieces of text get fuller.
    """
    return _fitted(blocks, capacity, _tightest)


def _fitted(
    blocks: Iterable[np.ndarray], capacity: Sequence[int], place_of: Callable[..., tuple[int, int]]
) -> Iterator[list[int]]:
    """`first_fit`, where `place_of` chooses the open row of a sample as `_place` does."""
    steps = [max(1, -(-limit // _LEVELS)) for limit in capacity]
    everywhere = (1 << _OPEN_ROWS) - 1
    # roomy[f][k] has a bit for each open row, set where feature f has room for k steps or more.
    roomy = [
        [everywhere] * (limit // step + 1) for limit, step in zip(capacity, steps, strict=True)
    ]
    room = [[limit] * _OPEN_ROWS for limit in capacity]
    members: list[list[int]] = [[] for _ in range(_OPEN_ROWS)]
    features = list(zip(room, roomy, steps, strict=True))
    sample = 0
    for block in blocks:
        for need in zip(*block.tolist(), strict=True):
            bit, place = place_of(need, features, everywhere)
            if not bit:
                bit = _fullest(roomy, everywhere)
                place = bit.bit_length() - 1
                yield members[place]
                members[place] = []
                for (rooms, levels, _), limit in zip(features, capacity, strict=True):
                    rooms[place] = limit
                    levels[:] = [level | bit for level in levels]
            members[place].append(sample)
            for (rooms, levels, step), tokens in zip(features, need, strict=True):
                before = rooms[place]
                rooms[place] = after = before - tokens
                for level in range(after // step + 1, before // step + 1):
                    levels[level] ^= bit
            sample += 1
    yield from filter(None, members)


def _place(need: tuple[int, ...], features: Sequence[Any], everywhere: int) -> tuple[int, int]:
    """The bit and the number of the first row with room for `need`; the bit is 0 without one."""
    possible = everywhere
    for (_, levels, step), tokens in zip(features, need, strict=True):
        possible &= levels[tokens // step]
    while possible:
        bit = possible & -possible
        place = bit.bit_length() - 1
        for (rooms, _, _), tokens in zip(features, need, strict=True):
            if rooms[place] < tokens:
                break
        else:
            return bit, place
        possible ^= bit
    return 0, 0


def _tightest(need: tuple[int, ...], features: Sequence[Any], everywhere: int) -> tuple[int, int]:
    """As `_place`, the row with the least room in the first feature."""
    possible = everywhere
    for (_, levels, step), tokens in zip(features, need, strict=True):
        possible &= levels[tokens // step]
    rooms, levels, step = features[0]
    for level in range(need[0] // step, len(levels)):
        if not possible:
            break
        wider = levels[level + 1] if level + 1 < len(levels) else 0
        here, possible = possible & ~wider, possible & wider
        best, tightest = 0, 0
        while here:
            bit = here & -here
            here ^= bit
            place = bit.bit_length() - 1
            fits = all(of[place] >= n for (of, _, _), n in zip(features, need, strict=True))
            if fits and (not best or rooms[place] < tightest):
                best, tightest = bit, rooms[place]
        if best:
            return best, best.bit_length() - 1
    return 0, 0


def _fullest(roomy: Sequence[Sequence[int]], everywhere: int) -> int:
    """The bit of the row with the least room in any feature, the first of several such rows."""
    for level in range(1, max(map(len, roomy))):
        rooms = everywhere
        for levels in roomy:
            rooms &= levels[min(level, len(levels) - 1)]
        if full := everywhere & ~rooms:
            return full & -full
    return 1


class PackedSamples:
    """Rows of several samples each, as many as fit.

    The plan is computed once and kept beside the cache. Use `packed_records` or `packed_documents`.

    Args:
      samples: the samples to pack.
      split: the split of the samples.
      needs: the tokens of each sample; a sample larger than a row is trimmed.
      capacity: the tokens of a row for each feature, in the order of `needs`.
      tight: whether each sample goes to the tightest row (`best_fit`), or to the first.
    """

    def __init__(
        self,
        samples: Samples,
        split: Split,
        *,
        needs: Needs,
        capacity: Mapping[str, int],
        tight: bool = False,
    ) -> None:
        self.samples = samples
        self.capacity = dict(capacity)
        self._needs = needs
        self._tight = tight
        what = f"packed {self.capacity} {needs}" + (" tightly" if tight else "")
        self._plan = plans.load_or_make(split, what, self._rows)
        # The values are the samples of all rows, the end of each row among them, the row count.
        numbers = self._plan.values[:, 0]
        self._size = int(numbers[-1])
        self._first_end = len(numbers) - 1 - self._size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, i: int) -> tuple[Sample, ...]:
        return tuple(self.samples[number][0] for number in self.row(i))

    def row(self, i: int) -> list[int]:
        """The samples of row `i`, in the order of the cache."""
        if not 0 <= i < self._size:
            raise IndexError(f"no row {i} among {self._size}")
        numbers = self._plan.values[:, 0]
        place = self._first_end + i
        return numbers[numbers[place - 1] if i else 0 : numbers[place]].tolist()

    @functools.cached_property
    def efficiency(self) -> dict[str, float]:
        """The fraction of each feature's places that hold tokens, computed from `needs`."""
        totals = np.zeros(len(self.capacity), np.int64)
        for block in self._blocks():
            totals += block.sum(axis=1)
        return {
            name: total / (max(1, len(self)) * length)
            for (name, length), total in zip(self.capacity.items(), totals.tolist(), strict=True)
        }

    def _blocks(self) -> Iterator[np.ndarray]:
        limits = np.array(list(self.capacity.values()))[:, None]
        for first in range(0, len(self.samples), _BLOCK):
            last = min(first + _BLOCK, len(self.samples))
            yield np.minimum(self._needs(first, last), limits)

    def _rows(self) -> Iterator[np.ndarray]:
        ends = array.array("q")
        placed = 0
        pending: list[int] = []
        fit = best_fit if self._tight else first_fit
        for row in fit(self._blocks(), list(self.capacity.values())):
            pending += row
            placed += len(row)
            ends.append(placed)
            if len(pending) >= _BLOCK:
                yield np.array(pending, np.int64)
                pending = []
        yield np.array(pending, np.int64)
        for first in range(0, len(ends), _BLOCK):
            yield np.array(ends[first : first + _BLOCK], np.int64)
        yield np.array([len(ends)])


@dataclasses.dataclass(frozen=True)
class _RecordNeeds:
    """The tokens of records, and those that steps after the cache add."""

    split: CacheSplit = dataclasses.field(repr=False)
    extra: Mapping[str, int]

    def __call__(self, first: int, last: int) -> np.ndarray:
        return np.stack(
            [
                np.diff(self.split.offsets[name][first : last + 1]) + added
                for name, added in self.extra.items()
            ]
        )


@dataclasses.dataclass(frozen=True)
class _ExampleNeeds:
    """The sizes of a sample's examples, which the objective gives."""

    samples: PlannedSamples = dataclasses.field(repr=False)
    length: int
    objective: Any = dataclasses.field(repr=False)
    said: str
    features: tuple[str, ...]

    def __call__(self, first: int, last: int) -> np.ndarray:
        starts, ends = self.samples.plan.values[first:last, :2].T
        sizes = self.objective.sizes(ends - starts)
        return np.stack([np.asarray(sizes[name], np.int64) for name in self.features])


@dataclasses.dataclass(frozen=True)
class _RowNeeds:
    """The tokens of labelled texts, which their geometry gives."""

    tokens: np.ndarray = dataclasses.field(repr=False)
    shape: PerRecord | RecordWindows

    def __call__(self, first: int, last: int) -> np.ndarray:
        return self.tokens[None, first:last].astype(np.int64)


def packed_records(
    split: CacheSplit,
    lengths: Mapping[str, int],
    *,
    late_steps: Sequence[str] = (),
    eos: Mapping[str, int],
) -> PackedSamples:
    """Packed rows of records.

    Args:
      split: the records.
      lengths: the tokens of a row for each feature; longer records are trimmed to that length.
      late_steps: the names of `late_steps.STEPS` that run on each record.
      eos: the id that they append to each feature that takes one.

    Raises:
      ValueError: the cache lacks a feature.
    """
    missing = sorted(lengths.keys() - split.manifest.features.keys())
    if missing:
        known = ", ".join(split.manifest.features)
        raise ValueError(f"the cache {split.directory} has no feature {missing}, only {known}")
    appended = sum(step.startswith("append_eos") for step in late_steps)
    extra = {name: appended if name in eos else 0 for name in lengths}
    needs = _RecordNeeds(split, extra)
    return PackedSamples(RecordSamples(split, PerRecord()), split, needs=needs, capacity=lengths)


def packed_texts(
    split: CacheSplit, shape: PerRecord | RecordWindows, *, length: int
) -> PackedSamples:
    """Packed rows of labelled texts, or of windows of them, packed tightly (`best_fit`).

    Args:
      split: the records.
      shape: cuts or divides them, and knows the tokens of each.
      length: the tokens of a row.
    """
    samples, needs = (
        make_samples(shape, split),
        _RowNeeds(shape.packed_tokens(split.offsets), shape),
    )
    capacity = {"inputs": length}
    return PackedSamples(samples, split, needs=needs, capacity=capacity, tight=True)


def packed_documents(
    split: Split, objective: Objective, lengths: Mapping[str, int], *, ids: TokenIds
) -> PackedSamples:
    """Packed rows of samples that are documents, or parts of documents.

    Rows of encoders are packed tightly (`best_fit`).

    Args:
      split: the documents.
      objective: an objective with a method `sizes(n)`. For samples of n tokens (int64 [m]), it
        returns the maximum number of tokens in each feature of their examples, end of sequence
        included ({feature: int64 [m]}). If it has a method `documents(lengths)`, this gives the
        geometry of packed rows.
      lengths: the feature lengths of a row.
      ids: the ids of the vocabulary.

    Raises:
      ValueError: the objective has no such method, its samples are not parts of documents, or its
        examples have numbers that belong to a whole row.
    """
    shaped = getattr(objective, "documents", objective.geometry)
    shape = shaped(lengths)
    features = objective.features(lengths)
    of_rows = [name for name, spec in features.items() if spec.length is None]
    texts = objective.reads == PLAIN_TEXT and _in_documents(shape) and not of_rows
    if not hasattr(objective, "sizes") or not texts:
        raise ValueError(
            f"{type(objective).__name__} cannot be packed: packing needs samples of one plain text "
            "each, without a number for a whole row, and a method `sizes` that gives the lengths "
            "of their examples. Choose a converter with pack=False: leave out PACK=True, or "
            "--pack of `show`"
        )
    stream, said = TokenStream(split), plans.identity(objective)
    if isinstance(shape, SplitDocuments):
        samples = split_documents(stream, shape.length)
    else:
        constants = constant_features(shape)
        samples = plan_samples(stream, shape, constants=constants, rows=None, ids=ids)
        said += f"|{plans.identity(shape)}"
    sized = objective.sizes(np.zeros(1, np.int64))
    capacity = {n: length for n in sized if (length := features[n].length) is not None}
    needs = _ExampleNeeds(samples, shape.length, objective, said, tuple(capacity))
    tight = objective.kind == "encoder"
    return PackedSamples(samples, split, needs=needs, capacity=capacity, tight=tight)


def _in_documents(shape: Any) -> bool:
    """Whether the samples of a geometry are single texts of one document each."""
    if isinstance(shape, SplitDocuments | LineBlocks):
        return True
    return isinstance(shape, SentenceBlocks) and not shape.cross_documents
