"""From documents to records: segments, tokens, pieces of bounded length.

The rule of segments: a document is cut after every run of newlines, which stays with the line
before it, and a line of more than `MAX_SEGMENT` characters is cut again after a space. Segments
are tokenised one by one, and the tokens of a document are those of its segments, end to end.
Joined, the segments are the document to the last character. So bytes give exactly
`encode(document)`; so does a SentencePiece model with T5's settings, which takes a newline for a
space and lets no piece cross one, and WordPiece, for which white space only divides words.
Byte-level BPE does not at blank lines: of a run of white space it leaves the last character to
the word that follows, which in a document is a newline before the next line, and here there is no
next line. Either way the tokens of a line do not depend on what is around it.
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from t5x_like.data import text_pieces
from t5x_like.protocols import Vocabulary

SEGMENTATION = "newlines-kept-v1"
PIECE_TOKENS = 8192
_BATCH_CHARACTERS = 1 << 19
_LINE = re.compile(r".*\n+|.+")

Document = Mapping[str, str]


class Record(NamedTuple):
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
    lines: list[str] = _LINE.findall(text)
    if len(text) <= text_pieces.MAX_LINE:
        return lines
    return list(itertools.chain.from_iterable(map(_in_parts, lines)))


def _in_parts(line: str) -> Iterator[str]:
    """A line with the ends of lines after it, cut as `text_pieces.parts` cuts it."""
    start, body = 0, len(line.rstrip("\r\n"))
    while body - start > text_pieces.MAX_LINE:
        limit = start + text_pieces.MAX_LINE
        cut = line.rfind(" ", start, limit) + 1 or limit
        yield line[start:cut]
        start = cut
    yield line[start:]


def plain_records(documents: Iterable[Document], vocabulary: Vocabulary) -> Iterator[Record]:
    """Records of documents with the one feature 'targets', cut into pieces.

    Documents without a token give none. What goes on with a document (`text_pieces.Piece`) gives
    records that do, too: also of another call.
    """
    for batch in batches(documents):
        begins = [not text_pieces.continues(document) for document in batch]
        segments = [split_segments(document["targets"]) for document in batch]
        tokens, bounds = _encode(vocabulary, list(itertools.chain.from_iterable(segments)))
        ends = bounds[np.cumsum([len(document) for document in segments])].tolist()
        # Segments without a token are none.
        starts = bounds[:-1][np.diff(bounds) > 0].astype(np.int32)
        places = starts.tolist()
        for i, (begin, end) in enumerate(itertools.pairwise([0, *ends])):
            if begin == end and begins[i] and isinstance(batch[i], text_pieces.Piece):
                # Others follow, and are not of the document before.
                yield Record({"targets": tokens[:0]}, starts[:0], new_document=True)
            for start in range(begin, end, PIECE_TOKENS):
                stop = min(start + PIECE_TOKENS, end)
                # Bisecting a list takes a tenth of the time of `np.searchsorted`.
                first, last = bisect.bisect_left(places, start), bisect.bisect_left(places, stop)
                yield Record(
                    features={"targets": tokens[start:stop]},
                    segments=starts[first:last] - start,
                    new_document=begins[i] and start == begin,
                )


def text_to_text_records(
    documents: Iterable[Document], vocabulary: Vocabulary, features: Sequence[str]
) -> Iterator[Record]:
    """One record a document, each feature encoded whole."""
    none = np.zeros(0, np.int32)
    for batch in batches(documents):
        columns = []
        for feature in features:
            tokens, bounds = _encode(vocabulary, [document[feature] for document in batch])
            columns.append([tokens[i:j] for i, j in itertools.pairwise(bounds.tolist())])
        for row in zip(*columns, strict=True):
            yield Record(dict(zip(features, row, strict=True)), none, True)


def batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
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


def _encode(vocabulary: Vocabulary, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """The ids of all texts end to end, int32, and their bounds, int64 [texts + 1]."""
    ids = vocabulary.encode_batch(texts)
    bounds = np.zeros(len(ids) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, ids), np.int64, len(ids)), out=bounds[1:])
    if ids and isinstance(ids[0], np.ndarray):
        return np.concatenate(ids, dtype=np.int32), bounds
    # One array for the whole batch: arrays of single texts take several times as long.
    return np.fromiter(itertools.chain.from_iterable(ids), np.int32, int(bounds[-1])), bounds
