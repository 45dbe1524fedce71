"""The cached tokens of sample i, for every geometry of an objective."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from t5x_like.core.protocols.data import TokenIds
from t5x_like.data.samples import planned_samples
from t5x_like.data.samples.passes import Passes
from t5x_like.data.samples.token_stream import FEATURE, Split, TokenStream
from t5x_like.objectives.parts import geometry

Sample = dict[str, np.ndarray]
_LARGE = 1 << 26
"""Tokens of a text that takes more than a few seconds to plan."""


class Samples(Protocol):
    """Random access to rows. It can be pickled, and any number of threads may read it."""

    def __len__(self) -> int: ...

    def __getitem__(self, i: int) -> tuple[Sample, ...]:
        """The samples that share row `i`: one, unless rows are packed.

        Each is {feature: int32 [n], or without axes}. Text-to-text records are as stored.
        """


class ConcatenatedSamples:
    """Samples that start every `stride` tokens of a stream. The last sample may be shorter.

    Args:
      stream: the tokens.
      length: the number of tokens in a sample.
      stride: the number of tokens between the starts of two samples; None for `length`.
      constants: additional features of every sample.
    """

    def __init__(
        self,
        stream: TokenStream,
        length: int,
        *,
        stride: int | None = None,
        constants: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        self.stream = stream
        self.length = length
        self.stride = stride or length
        self.constants = dict(constants or {})
        # A sample after the one that reaches the end would hold nothing new.
        further = max(stream.total - length, 0)
        self._size = 1 - (-further // self.stride) if stream.total else 0

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, i: int) -> tuple[Sample]:
        if not 0 <= i < self._size:
            raise IndexError(f"no sample {i} among {self._size}")
        start = i * self.stride
        end = min(start + self.length, self.stream.total)
        return ({FEATURE: self.stream.read(start, end), **self.constants},)


class RecordSamples:
    """Samples that are the cached records, cut as a geometry says."""

    def __init__(self, split: Split, shape: geometry.PerRecord) -> None:
        self.split = split
        self.shape = shape
        self.constants = constant_features(shape)

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, i: int) -> tuple[Sample]:
        return ({**self.shape.cut(self.split.record(i)), **self.constants},)

    def rows(self, number: int) -> range:
        """The samples of a record: one."""
        return range(number, number + 1)


class WindowSamples:
    """The windows of cached records: first those of the first record.

    Attributes:
      split: the records.
      firsts: int64 [records + 1]: the number of windows before each record.
    """

    def __init__(self, split: Split, shape: geometry.RecordWindows) -> None:
        self.split = split
        self.shape = shape
        counts = shape.windows.counts(*shape.sizes(split.offsets))
        self.firsts = np.concatenate([[0], np.cumsum(counts)])

    def __len__(self) -> int:
        return int(self.firsts[-1])

    def __getitem__(self, i: int) -> tuple[Sample]:
        if not 0 <= i < len(self):
            raise IndexError(f"no sample {i} among {len(self)}")
        number = int(self.firsts.searchsorted(i, side="right")) - 1
        record, shape = self.split.record(number), self.shape
        place = i - int(self.firsts[number])
        begin, end = shape.windows.window(place, *self._sizes(record))
        cut = {name: record[name][begin:end] for name in shape.texts}
        if shape.question is not None:
            cut[shape.question] = record[shape.question][: shape.windows.asked]
        return ({**record, **cut, "window": np.array([begin, end], np.int32)},)

    def rows(self, number: int) -> range:
        """The samples of a record."""
        return range(*self.firsts[number : number + 2].tolist())

    def bounds(self, number: int) -> list[tuple[int, int]]:
        """Where the windows of a record begin and end in its text, in tokens."""
        return self.shape.windows.bounds(*self._sizes(self.split.record(number)))

    def _sizes(self, record: Sample) -> tuple[int, int]:
        """The tokens of the question and of the text of a record."""
        question = self.shape.question
        asked = 0 if question is None else len(record[question])
        return asked, len(record[self.shape.texts[0]])


class DuplicatedSamples:
    """Other samples, repeated `times` times, one whole pass after another."""

    def __init__(self, samples: Samples, times: int) -> None:
        self.samples = samples
        self.times = times

    def __len__(self) -> int:
        return len(self.samples) * self.times

    def __getitem__(self, i: int) -> tuple[Sample, ...]:
        if not 0 <= i < len(self):
            raise IndexError(f"no sample {i} among {len(self)}")
        return self.samples[i % len(self.samples)]


def make_samples(
    shape: Any,
    split: Split,
    *,
    separator: int | None = None,
    rows: int | None = None,
    ids: TokenIds | None = None,
    later: bool = False,
) -> Samples:
    """The samples of a split for an objective's geometry.

    Samples that need a plan are planned now, unless the plan exists.

    Args:
      shape: the geometry, of `geometry`.
      split: the records.
      separator: the id between documents, for geometries that have separators.
      rows: the rows of a batch, for geometries whose rows continue from batch to batch.
      ids: the ids of the vocabulary, for geometries that keep words whole.
      later: whether they are read only later, so that a large text is planned when they are.

    Raises:
      TypeError: samples of this geometry cannot be made.
      ValueError: the geometry needs a separator, or rows; or the plan does not fit the split.
    """
    match shape:
        case geometry.PerRecord():
            return RecordSamples(split, shape)
        case geometry.RecordWindows():
            return WindowSamples(split, shape)
        case geometry.Duplicated():
            base = make_samples(shape.geometry, split, separator=separator, rows=rows, ids=ids)
            return DuplicatedSamples(base, shape.times)
    separated = getattr(shape, "separators", False)
    if separated and separator is None:
        raise ValueError(
            f"{shape} separates documents, but the vocabulary has no token for it, neither <eod> "
            "nor an end of sequence nor [SEP]; train one that has such a token with `t5x_like "
            "vocab`"
        )
    stream = TokenStream(split, separator=separator if separated else None)
    constants = constant_features(shape)
    if isinstance(shape, geometry.ConcatenateAndSplit):
        return ConcatenatedSamples(stream, shape.length, stride=shape.stride, constants=constants)
    if isinstance(shape, geometry.SplitDocuments):
        return planned_samples.split_documents(stream, shape.length)
    if is_planned(shape):
        plan = functools.partial(
            planned_samples.plan_samples, stream, shape, constants=constants, rows=rows, ids=ids
        )
        passes = getattr(shape, "passes", 1)
        if later and stream.total > _LARGE:
            return Passes(plan, passes, glimpse=functools.partial(plan, glimpse=True))
        return plan() if passes == 1 else Passes(plan, passes)
    raise TypeError(
        f"no samples of geometry {shape!r} can be made; see t5x_like.data.samples.samples"
    )


def is_planned(shape: object) -> bool:
    """Whether the samples of a geometry are planned (`geometry.Planned`, `geometry.Carried`)."""
    return hasattr(shape, "plan") or is_carried(shape)


def is_carried(shape: object) -> bool:
    """Whether a geometry is a `geometry.Carried`."""
    return hasattr(shape, "plan_rows")


def constant_features(shape: object) -> Sample:
    """The numbers that every sample of a geometry holds, int32 without axes."""
    return {name: np.array(value, np.int32) for name, value in geometry.constants(shape).items()}
