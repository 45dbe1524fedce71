"""Which cached tokens make sample i: index arithmetic over the lengths of records."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from t5x_like.data.cache import CacheSplit
from t5x_like.objectives import geometry

Sample = dict[str, np.ndarray]


class Samples(Protocol):
    """Random access to rows. Pickles; any number of threads may read."""

    def __len__(self) -> int: ...

    def __getitem__(self, i: int) -> tuple[Sample, ...]:
        """The samples that share row `i`, each {feature: int32 [n]}: one, unless packed."""


class ConcatenatedSamples:
    """All tokens of a feature end to end, cut every `length`; the last sample may be shorter.

    Args:
      split: the cached records.
      length: tokens of a sample.
      feature: which feature.
    """

    def __init__(self, split: CacheSplit, length: int, *, feature: str = "targets") -> None:
        self.split = split
        self.length = length
        self.feature = feature
        self._total = int(split.offsets[feature][-1])

    def __len__(self) -> int:
        return -(-self._total // self.length)

    def __getitem__(self, i: int) -> tuple[Sample, ...]:
        start = i * self.length
        if not 0 <= start < self._total:
            raise IndexError(f"no sample {i} among {len(self)}")
        end = min(start + self.length, self._total)
        offsets = self.split.offsets[self.feature]
        # 'right' steps over empty records that start at the same token.
        record = int(np.searchsorted(offsets, start, side="right")) - 1
        parts = []
        while start < end:
            first = int(offsets[record])
            tokens = self.split.record(record)[self.feature][start - first : end - first]
            parts.append(tokens)
            start += len(tokens)
            record += 1
        return ({self.feature: parts[0] if len(parts) == 1 else np.concatenate(parts)},)


class RecordSamples:
    """One cached record is one sample."""

    def __init__(self, split: CacheSplit) -> None:
        self.split = split

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, i: int) -> tuple[Sample, ...]:
        return (self.split.record(i),)


def make_samples(shape: object, split: CacheSplit) -> Samples:
    """The samples of a split in the shape, of `objectives.geometry`, that an objective asks for.

    Raises:
      TypeError: nothing here makes samples of that shape.
    """
    match shape:
        case geometry.ConcatenateAndSplit(length):
            return ConcatenatedSamples(split, length)
        case geometry.PerRecord():
            return RecordSamples(split)
    raise TypeError(f"no samples of geometry {shape!r} can be made; see t5x_like.data.samples")
