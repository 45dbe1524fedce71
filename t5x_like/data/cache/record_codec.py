"""The bytes of a record."""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

FLOAT = "float32"

_OTHER_LENGTHS = "a record has other lengths than it says"


class Joined(NamedTuple):
    """Consecutive records end to end.

    Attributes:
      values: [n]: a feature of all records, in its stored dtype.
      segments: int32 [S]: the positions in its own record at which each segment starts.
      counts: int64 [records]: the number of segments that start in each record.
    """

    values: np.ndarray
    segments: np.ndarray
    counts: np.ndarray


@dataclasses.dataclass(frozen=True)
class RecordCodec:
    """The encoding of a record: int32 lengths, the segments' starts, then each feature's values.

    Attributes:
      features: the stored dtype of each feature, in stored order.
      shapes: the shape of each feature that is not tokens; None for an axis of any length.
    """

    features: Mapping[str, str]
    shapes: Mapping[str, tuple[int | None, ...]] = dataclasses.field(default_factory=dict)

    def encode(self, record: Mapping[str, np.ndarray], segments: np.ndarray | None = None) -> bytes:
        """The bytes of a record.

        Args:
          record: an array for each feature, of one axis where `shapes` does not give others.
          segments: int32 [S], the positions in the first feature at which a segment starts.
        """
        starts = np.zeros(0, "<i4") if segments is None else segments.astype("<i4", copy=False)
        values = [
            record[name].astype(dtype, copy=False).ravel() for name, dtype in self._types.items()
        ]
        header = self._header.pack(*map(len, values), len(starts))
        return b"".join([header, starts.tobytes(), *(array.tobytes() for array in values)])

    def decode(self, data: bytes) -> dict[str, np.ndarray]:
        """{feature: int32 or float32, [n] or its shape}, which the caller may change."""
        arrays = {
            name: self.raw_feature(data, name).astype(np.float32 if stored == FLOAT else np.int32)
            for name, stored in self.features.items()
        }
        for name, shape in self.shapes.items():
            arrays[name] = arrays[name].reshape([-1 if size is None else size for size in shape])
        return arrays

    def raw_feature(self, data: bytes, feature: str) -> np.ndarray:
        """[n] of the stored dtype: the values of a feature, a view that must not be changed."""
        lengths = self._header.unpack_from(data)
        position = self._header.size + 4 * lengths[-1]
        for (name, dtype), length in zip(self._types.items(), lengths, strict=False):
            if name == feature:
                return np.frombuffer(data, dtype, length, position)
            position += length * dtype.itemsize
        raise KeyError(f"records have no feature {feature!r}, only {', '.join(self.features)}")

    def joined(self, data: Sequence[bytes], feature: str) -> Joined:
        """A feature and the segments of many records, without a call for each."""
        # Every part of a record has an even number of bytes.
        halves = np.frombuffer(b"".join(data), "<u2")
        sizes = np.fromiter(map(len, data), np.int64, len(data)) // 2
        at = np.cumsum(sizes) - sizes
        size = np.full(len(data), self._header.size // 2)
        if (size > sizes).any():
            raise ValueError(_OTHER_LENGTHS)
        header = gathered(halves, at, size).view("<i4").reshape(-1, len(self.features) + 1)
        header = header.astype(np.int64)
        if (header < 0).any() or (header @ self._widths // 2 + size != sizes).any():
            raise ValueError(_OTHER_LENGTHS)
        counts = header[:, -1]
        segments = gathered(halves, at + size, 2 * counts).view("<i4").astype(np.int32)
        at += size + 2 * counts
        for (name, dtype), lengths in zip(self._types.items(), header.T, strict=False):
            size = lengths * (dtype.itemsize // 2)
            if name == feature:
                return Joined(gathered(halves, at, size).view(dtype), segments, counts)
            at += size
        raise KeyError(f"records have no feature {feature!r}, only {', '.join(self.features)}")

    def check(self, data: bytes) -> None:
        """Raises ValueError where a record is not as long as its header says."""
        lengths = self._header.unpack_from(data) if len(data) >= self._header.size else ()
        size = sum(map(operator.mul, lengths, self._widths)) + self._header.size
        if size != len(data) or min(lengths) < 0:
            raise ValueError(_OTHER_LENGTHS)
        for name, length in zip(self.features, lengths, strict=False):
            if (shape := self.shapes.get(name)) is None:
                continue
            known = math.prod(axis for axis in shape if axis is not None)
            if length % known or (None not in shape and length != known):
                raise ValueError(_OTHER_LENGTHS)

    @functools.cached_property
    def _widths(self) -> list[int]:
        """The bytes of a value of each feature, then of the start of a segment."""
        return [*(dtype.itemsize for dtype in self._types.values()), 4]

    @functools.cached_property
    def _header(self) -> struct.Struct:
        return struct.Struct(f"<{len(self.features) + 1}i")

    @functools.cached_property
    def _types(self) -> dict[str, np.dtype]:
        return {name: _little_endian(stored) for name, stored in self.features.items()}

    def segments(self, data: bytes) -> np.ndarray:
        """int32 [S]: the positions in a record's first feature at which a segment starts."""
        count = self._header.unpack_from(data)[-1]
        return np.frombuffer(data, "<i4", count, self._header.size).astype(np.int32)


def gathered(values: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The ranges of `values` of these starts and sizes (int64 [n] each), one after another."""
    before = np.cumsum(sizes) - sizes
    return values[np.arange(sizes.sum()) + np.repeat(starts - before, sizes)]


def _little_endian(dtype: str) -> np.dtype:
    return np.dtype(dtype).newbyteorder("<")
