"""The tokens of a split as one stream, which is divided into documents and segments."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from t5x_like.core.protocols.data import TokenIds
from t5x_like.data.cache.record_codec import Joined
from t5x_like.data.samples import plans

FEATURE = "targets"
_BLOCK = 1 << 20


class Split(plans.Described, Protocol):
    """Records with `targets`: a `reader.CacheSplit` or a `memory_split.MemorySplit`."""

    @property
    def offsets(self) -> Mapping[str, np.ndarray]: ...

    @property
    def new_document(self) -> np.ndarray: ...

    def __len__(self) -> int: ...

    def record(self, i: int) -> dict[str, np.ndarray]: ...

    def raw_feature(self, i: int, feature: str) -> np.ndarray: ...

    def segments(self, i: int) -> np.ndarray: ...

    def joined(self, begin: int, end: int, feature: str) -> Joined: ...


class StreamPart(NamedTuple):
    """Consecutive documents of a stream, in memory.

    Attributes:
      documents: their numbers.
      offset: where the first of them starts in the stream.
      tokens: [n]: their tokens, separators included.
      bounds: int64 [S + 1]: the offsets at which their segments start, then where the last ends.
      heads: int64 [documents + 1]: where each document's start, and the last one's end, is in
        `bounds`.
    """

    documents: range
    offset: int
    tokens: np.ndarray
    bounds: np.ndarray
    heads: np.ndarray


def separator(ids: TokenIds) -> int | None:
    """The id that separates documents: `<eod>` if it exists, else end of sequence or [SEP]."""
    if "<eod>" in ids.named:
        return ids.named["<eod>"]
    return ids.eos if ids.eos is not None else ids.sep


class TokenStream:
    """All documents of a split end to end, without empty ones.

    A document is consecutive records, according to `new_document`. The stream can be pickled, and
    any number of threads may read it.

    Args:
      split: the records.
      separator: the id after each document, which counts in every offset; None for none.

    Attributes:
      total: the number of tokens in the stream.
    """

    def __init__(self, split: Split, *, separator: int | None = None) -> None:
        self.split = split
        self.separator = separator
        if separator is not None:
            self._table = plans.load_or_make(split, "separated", self._starts_with_separators)
        self.total = int(self.starts[-1])

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(TokenStream, separator=self.separator), (self.split,)

    @functools.cached_property
    def starts(self) -> np.ndarray:
        """int64 [records + 1]: the offset in the stream at which each record starts."""
        if self.separator is not None:
            return self._table.values[:, 0]
        # A plain array lacks the overhead of the class np.memmap.
        return np.asarray(self.split.offsets[FEATURE])

    @functools.cached_property
    def firsts(self) -> np.ndarray:
        """int64 [documents + 1]: the first record of each document, then the number of records."""

        def blocks() -> Iterator[np.ndarray]:
            for _, _, firsts in _documents(self.split):
                yield firsts
            yield np.array([len(self.split)])

        return plans.load_or_make(self.split, "documents", blocks).values[:, 0]

    def _starts_with_separators(self) -> Iterator[np.ndarray]:
        documents = 0
        for begin, end, firsts in _documents(self.split):
            before = np.zeros(end - begin, np.int64)
            before[firsts - begin] = 1
            # A separator lies between a document's last token and the next record.
            before = np.maximum(documents + np.cumsum(before) - 1, 0)
            yield self.split.offsets[FEATURE][begin:end] + before
            documents += len(firsts)
        yield self.split.offsets[FEATURE][-1:] + documents

    def read(self, start: int, end: int) -> np.ndarray:
        """int32 [end - start]: the tokens between two offsets. The caller may change the array."""
        if start >= end:
            return np.zeros(0, np.int32)
        starts = self.starts
        # "right" steps over empty records that start at the same token.
        record = int(starts.searchsorted(start, "right")) - 1
        first = int(starts[record])
        values = self.split.raw_feature(record, FEATURE)
        if end - first <= len(values):
            return values[start - first : end - first].astype(np.int32)
        tokens = np.empty(end - start, np.int32)
        while first < end:
            part = values[max(start - first, 0) : end - first]
            at = max(first - start, 0)
            tokens[at : at + len(part)] = part
            after, first = first + len(values), int(starts[record + 1])
            if after < min(first, end) and self.separator is not None:
                tokens[after - start] = self.separator
            if first < end:
                record += 1
                values = self.split.raw_feature(record, FEATURE)
        return tokens

    def marks(self, start: int, end: int) -> tuple[np.ndarray, np.ndarray]:
        """The positions, from `start`, at which segments and documents start: int32 [s] and [d].

        Starts at `start` itself are left out. Every start of a document is also one of a segment.
        """
        none = np.zeros(0, np.int32)
        if start >= end:
            return none, none
        starts = self.starts
        first = int(starts.searchsorted(start, "right")) - 1
        if end <= starts[first + 1]:
            return self._within(first, start, end), none
        last = int(starts.searchsorted(end - 1, "right")) - 1
        documents_here = slice(*self.firsts.searchsorted((first, last), "right").tolist())
        documents = starts[self.firsts[documents_here]] - start
        documents = documents[documents > 0]
        segments = [self._within(record, start, end) for record in range(first, last + 1)]
        return (
            np.unique(np.concatenate([documents, *segments])).astype(np.int32),
            documents.astype(np.int32),
        )

    def _within(self, record: int, start: int, end: int) -> np.ndarray:
        """The starts of a record's segments between `start` and `end`, counted from `start`."""
        shift = int(self.starts[record]) - start
        stored = self.split.segments(record)
        low, high = stored.searchsorted(1 - shift), stored.searchsorted(end - start - shift)
        return stored[low:high] + np.int32(shift)

    def documents(self) -> Iterator[np.ndarray]:
        """The offsets of documents' starts and ends, without separators: blocks, int64 [n, 2]."""
        gap = int(self.separator is not None)
        for begin in range(0, len(self.firsts) - 1, _BLOCK):
            bounds = self.starts[self.firsts[begin : begin + _BLOCK + 1]]
            yield np.stack([bounds[:-1], bounds[1:] - gap], axis=1)

    def part(self, documents: range) -> StreamPart:
        """Some documents, read together."""
        begin, end = self.firsts[[documents.start, documents.stop]].tolist()
        starts = np.asarray(self.starts[begin : end + 1])
        offset = int(starts[0])
        joined = self.split.joined(begin, end, FEATURE)
        tokens = joined.values
        if self.separator is not None:
            tokens = np.full(int(starts[-1]) - offset, self.separator, np.int32)
            sizes = np.diff(self.split.offsets[FEATURE][begin : end + 1])
            before = np.cumsum(sizes) - sizes
            place = np.arange(len(joined.values)) + np.repeat(starts[:-1] - offset - before, sizes)
            tokens[place] = joined.values
        heads = self.starts[self.firsts[documents.start : documents.stop + 1]]
        segments = joined.segments + np.repeat(starts[:-1], joined.counts)
        bounds = np.unique(np.concatenate([heads, segments]))
        return StreamPart(documents, offset, tokens, bounds, bounds.searchsorted(heads))

    def document_edges(self, tokens: int) -> list[int]:
        """Numbers of documents, from 0 to their number, with `tokens` tokens or more between."""
        offsets = np.arange(tokens, self.total, tokens)
        records = self.starts.searchsorted(offsets)
        last = len(self.firsts) - 1
        between = np.unique(self.firsts.searchsorted(records))
        return [0, *between[(between > 0) & (between < last)].tolist(), last]


def _documents(split: Split) -> Iterator[tuple[int, int, np.ndarray]]:
    """Blocks of records: the first record, the end, and the first non-empty record of documents."""
    offsets, seen, latest = split.offsets[FEATURE], 0, -1
    for begin in range(0, len(split), _BLOCK):
        end = min(begin + _BLOCK, len(split))
        numbers = seen + np.cumsum(split.new_document[begin:end])
        filled = np.flatnonzero(np.diff(offsets[begin : end + 1]))
        document = numbers[filled]
        is_first = np.diff(document, prepend=latest) != 0
        yield begin, end, begin + filled[is_first]
        seen = int(numbers[-1])
        latest = int(document[-1]) if len(document) else latest
