"""From documents to records: segments, tokens, pieces of bounded length.

The rule of segments: a document is cut after every run of newlines, which stays with the line
before it, and a line of more than `MAX_SEGMENT` characters is cut again after a space. Segments
are tokenised one by one, and the tokens of a document are those of its segments, end to end.
Joined, the segments are the document to the last character. So a vocabulary that encodes white
space (bytes) gives exactly `encode(document)`; a SentencePiece model with T5's settings, which
takes a newline for a space and lets no piece cross one, does so too.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from t5x_like.protocols import Vocabulary

SEGMENTATION = "newlines-kept-v1"
PIECE_TOKENS = 8192
MAX_SEGMENT = 1 << 16
_BATCH_CHARACTERS = 1 << 18
_LINE = re.compile(r"[^\n]*\n+|[^\n]+")

Document = Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class Record:
    """What becomes one record of a shard.

    Attributes:
      features: {feature: int32 [n]}.
      segments: int32 [S], where segments start; empty where the corpus has none.
      new_document: False for all but the first record of a document.
    """

    features: dict[str, np.ndarray]
    segments: np.ndarray
    new_document: bool


def split_segments(text: str) -> list[str]:
    """The segments of a document; joined, they are the text."""
    segments = []
    for line in _LINE.findall(text):
        start = 0
        while len(line) - start > MAX_SEGMENT:
            # A line without spaces is cut anywhere: memory is bounded by the segment.
            cut = line.rfind(" ", start, start + MAX_SEGMENT) + 1 or start + MAX_SEGMENT
            segments.append(line[start:cut])
            start = cut
        segments.append(line[start:])
    return segments


def plain_records(documents: Iterable[Document], vocabulary: Vocabulary) -> Iterator[Record]:
    """Records of documents with the one feature 'targets', cut into pieces.

    Documents without a token give none.
    """
    for batch in _batches(documents):
        segments = [split_segments(document["targets"]) for document in batch]
        encoded = iter(_encode(vocabulary, list(itertools.chain.from_iterable(segments))))
        for document in segments:
            ids = list(itertools.islice(encoded, len(document)))
            lengths = np.fromiter(map(len, ids), np.int64, len(ids))
            total = int(lengths.sum())
            tokens = np.fromiter(itertools.chain.from_iterable(ids), np.int32, total)
            starts = (np.cumsum(lengths) - lengths)[lengths > 0]
            yield from _pieces(tokens, starts)


def _pieces(tokens: np.ndarray, starts: np.ndarray) -> Iterator[Record]:
    for begin in range(0, len(tokens), PIECE_TOKENS):
        piece = tokens[begin : begin + PIECE_TOKENS]
        first, last = np.searchsorted(starts, (begin, begin + len(piece)))
        segments = (starts[first:last] - begin).astype(np.int32)
        yield Record({"targets": piece}, segments, begin == 0)


def text_to_text_records(
    documents: Iterable[Document], vocabulary: Vocabulary, features: Sequence[str]
) -> Iterator[Record]:
    """One record a document, each feature encoded whole."""
    none = np.zeros(0, np.int32)
    for batch in _batches(documents):
        columns = [
            _encode(vocabulary, [document[feature] for document in batch]) for feature in features
        ]
        for row in zip(*columns, strict=True):
            arrays = {
                feature: np.asarray(ids, np.int32)
                for feature, ids in zip(features, row, strict=True)
            }
            yield Record(arrays, none, True)


def _batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """Groups small enough that their ids, as Python lists, stay small."""
    batch: list[Document] = []
    characters = 0
    for document in documents:
        batch.append(document)
        characters += sum(map(len, document.values()))
        if characters >= _BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _encode(vocabulary: Vocabulary, texts: list[str]) -> list[list[int]]:
    return vocabulary.encode_batch(texts) if texts else []
