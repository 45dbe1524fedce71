"""The segments of a stream's documents, and where words begin, as plans ask for them."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from t5x_like.core.protocols import TokenIds
from t5x_like.data.samples.token_stream import TokenStream
from t5x_like.objectives.parts.words import begins_word

_REMEMBERED = 1 << 21
"""Offsets of the documents that are kept in memory."""
_TOKENS = 1 << 25
"""Tokens of documents that are read together, at most."""


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
        begin, end = self._starts[self._firsts[[part.start, part.stop]]].tolist()
        self._part = stream.part(part if end - begin <= _TOKENS else range(0))

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
        at = start - self._part.offset
        if at >= 0 and at + end - start <= len(self._part.tokens):
            return self._begins.take(self._part.tokens[at : at + end - start])
        return self._begins.take(self._stream.read(start, end))

    def heads(self, documents: range) -> np.ndarray:
        """int64 [documents + 1]: where consecutive documents start, then where the last ends."""
        return self._starts[self._firsts[documents.start : documents.stop + 1]]

    def bounds(self, documents: range) -> np.ndarray:
        """int64 [S + 1]: the offsets of the S segments of consecutive documents, then their end."""
        own = self._part.documents
        if own.start <= documents.start and documents.stop <= own.stop:
            first, last = self._part.heads[
                [documents.start - own.start, documents.stop - own.start]
            ].tolist()
            return self._part.bounds[first : last + 1]
        each = [self[document] for document in documents]
        return np.concatenate([*(bounds[:-1] for bounds in each), each[-1][-1:]])

    def __getitem__(self, document: int) -> np.ndarray:
        """int64 [S + 1]: the offsets at which a document's S >= 1 segments start, then its end.

        A document without segments counts as one segment. The array must not be changed.
        """
        if document in self._part.documents:
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
