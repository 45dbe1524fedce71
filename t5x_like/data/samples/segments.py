"""The segments of a stream's documents, and where words begin, as plans ask for them."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from t5x_like.core.protocols.data import TokenIds
from t5x_like.data.samples.token_stream import StreamPart, TokenStream
from t5x_like.objectives.parts.words import begins_word

_REMEMBERED = 1 << 21
"""Offsets of single documents that are kept in memory."""
_TOKENS = 1 << 25
"""Tokens of documents that are read together, at most; parts are kept up to as many."""


class Segments:
    """The `geometry.Sentences` of a stream, with the most recent documents in memory.

    Args:
      stream: the tokens.
      ids: those of the vocabulary, whose `word_starts` tell where words begin. Without them, every
        token begins a word.
      part: documents to read together now, because all of them will be asked for. If they are too
        large for memory, each is read when it is.
    """

    def __init__(
        self, stream: TokenStream, ids: TokenIds | None = None, *, part: range = range(0)
    ) -> None:
        self._stream = stream
        self._begins = None if ids is None or ids.word_starts is None else begins_word(ids)
        self._split = stream.split
        self._firsts = stream.firsts
        self._starts = stream.starts
        self._remembered: OrderedDict[int, np.ndarray] = OrderedDict()
        self._size = 0
        self.total = stream.total
        self._parts: list[StreamPart] = []
        self.remember(part)

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
        for part in self._parts:
            at = start - part.offset
            if at >= 0 and at + end - start <= len(part.tokens):
                return self._begins.take(part.tokens[at : at + end - start])
        return self._begins.take(self._stream.read(start, end))

    def remember(self, documents: range) -> None:
        """Reads documents together, unless they are too large; others are forgotten in turn."""
        if documents and int(np.ptp(self.heads(documents))) <= _TOKENS:
            self._parts.append(self._stream.part(documents))
        while sum(len(part.tokens) for part in self._parts) > _TOKENS:
            del self._parts[1 if len(self._parts) > 2 else 0]

    def heads(self, documents: range) -> np.ndarray:
        """int64 [documents + 1]: where consecutive documents start, then where the last ends."""
        return self._starts[self._firsts[documents.start : documents.stop + 1]]

    def bounds(self, documents: range) -> np.ndarray:
        """int64 [S + 1]: the offsets of the S segments of consecutive documents, then their end."""
        for part in self._parts:
            held = part.documents
            if held.start <= documents.start and documents.stop <= held.stop:
                places = [documents.start - held.start, documents.stop - held.start]
                first, last = part.heads[places].tolist()
                return part.bounds[first : last + 1]
        if not documents:
            return self.heads(documents)
        each = [self[document] for document in documents]
        return np.concatenate([*(bounds[:-1] for bounds in each), each[-1][-1:]])

    def __getitem__(self, document: int) -> np.ndarray:
        """int64 [S + 1]: the offsets at which a document's S >= 1 segments start, then its end.

        A document without segments counts as one segment. The array must not be changed.
        """
        if any(document in part.documents for part in self._parts):
            return self.bounds(range(document, document + 1))
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
