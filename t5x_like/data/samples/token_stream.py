"""The tokens of a split as one stream, which is divided into documents and segments."""

from __future__ import annotations

import contextlib
import functools
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from t5x_like.core.protocols import TokenIds
from t5x_like.data.samples import plans
from t5x_like.objectives.parts.words import begins_word

FEATURE = "targets"
_BLOCK = 1 << 20
_REMEMBERED = 1 << 21
"""Offsets of the documents that are kept in memory."""


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

    def read_ahead(self, begin: int, end: int) -> contextlib.AbstractContextManager[None]: ...


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
        self.total = int(self._starts[-1])

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(TokenStream, separator=self.separator), (self.split,)

    @functools.cached_property
    def _starts(self) -> np.ndarray:
        """int64 [records + 1]: the offset in the stream at which each record starts."""
        if self.separator is not None:
            return self._table.values[:, 0]
        # A plain array lacks the overhead of the class np.memmap.
        return np.asarray(self.split.offsets[FEATURE])

    @functools.cached_property
    def _firsts(self) -> np.ndarray:
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
        starts = self._starts
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
        starts = self._starts
        first = int(starts.searchsorted(start, "right")) - 1
        if end <= starts[first + 1]:
            return self._within(first, start, end), none
        last = int(starts.searchsorted(end - 1, "right")) - 1
        own = slice(*self._firsts.searchsorted((first, last), "right").tolist())
        documents = starts[self._firsts[own]] - start
        documents = documents[documents > 0]
        segments = [self._within(record, start, end) for record in range(first, last + 1)]
        return (
            np.unique(np.concatenate([documents, *segments])).astype(np.int32),
            documents.astype(np.int32),
        )

    def _within(self, record: int, start: int, end: int) -> np.ndarray:
        """The starts of a record's segments between `start` and `end`, counted from `start`."""
        shift = int(self._starts[record]) - start
        stored = self.split.segments(record)
        low, high = stored.searchsorted(1 - shift), stored.searchsorted(end - start - shift)
        return stored[low:high] + np.int32(shift)

    def documents(self) -> Iterator[np.ndarray]:
        """The offsets of documents' starts and ends, without separators: blocks, int64 [n, 2]."""
        gap = int(self.separator is not None)
        for begin in range(0, len(self._firsts) - 1, _BLOCK):
            bounds = self._starts[self._firsts[begin : begin + _BLOCK + 1]]
            yield np.stack([bounds[:-1], bounds[1:] - gap], axis=1)

    def read_ahead(self, documents: range, *, most: int) -> contextlib.AbstractContextManager[None]:
        """Has these documents in memory, read together, unless they have over `most` tokens."""
        begin, end = self._firsts[[documents.start, documents.stop]].tolist()
        if self._starts[end] - self._starts[begin] > most:
            return contextlib.nullcontext()
        return self.split.read_ahead(begin, end)

    def document_edges(self, tokens: int) -> list[int]:
        """Numbers of documents, from 0 to their number, with `tokens` tokens or more between."""
        offsets = np.arange(tokens, self.total, tokens)
        records = self._starts.searchsorted(offsets)
        last = len(self._firsts) - 1
        between = np.unique(self._firsts.searchsorted(records))
        return [0, *between[(between > 0) & (between < last)].tolist(), last]


class Segments:
    """The `geometry.Sentences` of a stream, with the most recent documents in memory.

    `ids` are those of the vocabulary, whose `word_starts` tell where words begin. Without them,
    every token begins a word.
    """

    def __init__(self, stream: TokenStream, ids: TokenIds | None = None) -> None:
        self._stream = stream
        self._begins = None if ids is None or ids.word_starts is None else begins_word(ids)
        self._split = stream.split
        self._firsts = stream._firsts
        self._starts = stream._starts
        self._remembered: OrderedDict[int, np.ndarray] = OrderedDict()
        self._size = 0
        self.total = stream.total

    def __len__(self) -> int:
        """The number of documents, without empty ones."""
        return len(self._firsts) - 1

    def document_at(self, offset: int) -> int:
        """The document that holds the token at `offset`."""
        record = self._starts.searchsorted(offset, "right") - 1
        return int(self._firsts.searchsorted(record, "right")) - 1

    def word_starts(self, start: int, end: int) -> np.ndarray:
        """bool [end - start]: whether a word starts at each of these offsets."""
        if self._begins is None:
            return np.ones(end - start, bool)
        return self._begins.take(self._stream.read(start, end))

    def __getitem__(self, document: int) -> np.ndarray:
        """int64 [S + 1]: the offsets at which a document's S >= 1 segments start, then its end.

        A document without segments counts as one segment. The array must not be changed.
        """
        bounds = self._remembered.get(document)
        if bounds is not None:
            self._remembered.move_to_end(document)
            return bounds
        bounds = self._remembered[document] = self._bounds(document)
        self._size += len(bounds)
        while self._size > _REMEMBERED and len(self._remembered) > 1:
            self._size -= len(self._remembered.popitem(last=False)[1])
        return bounds

    def _bounds(self, document: int) -> np.ndarray:
        if not 0 <= document < len(self):
            raise IndexError(f"no document {document} among {len(self)}")
        first, last = self._firsts[document : document + 2].tolist()
        begin, end = self._starts[first], self._starts[last]
        segments = [self._split.segments(i) + self._starts[i] for i in range(first, last)]
        if not len(segments[0]) or segments[0][0] != begin:
            segments.insert(0, [begin])
        bounds = np.concatenate([*segments, [end]])
        bounds.flags.writeable = False
        return bounds


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
