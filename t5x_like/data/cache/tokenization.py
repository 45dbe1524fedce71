"""From documents to records: segments, tokens, pieces of bounded length.

A document is cut after every run of newlines, which stays with the line before it, and a line of
more than `text_pieces.MAX_LINE` characters is cut again after a space. Segments are these, or the
sentences in them. They are tokenised one by one, and the tokens of a document are those of its
segments, end to end. Joined, the segments are the document to the last character.

So bytes and characters give exactly `encode(document)`; so does WordPiece, for which white space
and punctuation divide words, and so does a SentencePiece model with T5's settings, which takes a
newline for a space and lets no piece cross one: but where a sentence follows another without a
space, no piece crosses its end. Byte-level BPE does not at blank lines: of a run of white space it
leaves the last character to the word that follows, which in a document is a newline before the next
line, and here there is no next line. Nor does it join the punctuation of two sentences.
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from t5x_like.core.protocols import GoesOn, Vocabulary
from t5x_like.data.corpora import text_pieces
from t5x_like.data.corpora.sentences import LINES, of_line

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


def split_segments(text: str, sentences: str = LINES) -> list[str]:
    """The segments of a document; joined, they are the text.

    Args:
      text: of the document.
      sentences: a language, or `LINES`.
    """
    return list(itertools.chain.from_iterable(_split(text, sentences)))


def _split(text: str, sentences: str) -> Iterator[list[str]]:
    """The segments of each line, or part of a long one."""
    lines: Iterable[str] = _LINE.findall(text)
    if len(text) > text_pieces.MAX_LINE:
        lines = itertools.chain.from_iterable(map(_in_parts, lines))
    for line in lines:
        yield [line] if sentences == LINES else of_line(line, sentences)


def _in_parts(line: str) -> Iterator[str]:
    """A line with the ends of lines after it, cut as `text_pieces.parts` cuts it."""
    start, body = 0, len(line.rstrip("\r\n"))
    while body - start > text_pieces.MAX_LINE:
        limit = start + text_pieces.MAX_LINE
        cut = line.rfind(" ", start, limit) + 1 or limit
        yield line[start:cut]
        start = cut
    yield line[start:]


def plain_records(
    documents: Iterable[Document], vocabulary: Vocabulary, sentences: str = LINES
) -> Iterator[Record]:
    """Records of documents with the one feature 'targets', cut into pieces.

    Documents without a token give none. What continues with a document (`text_pieces.Piece`) gives
    records that do, too: also of another call. `sentences` as of `split_segments`.
    """
    for batch in batches(documents):
        begins = [not text_pieces.continues(document) for document in batch]
        lines = [list(_split(document["targets"], sentences)) for document in batch]
        tokens, bounds = _encode(vocabulary, itertools.chain.from_iterable(lines))
        ends = bounds[np.cumsum([sum(map(len, document)) for document in lines])].tolist()
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
            tokens, bounds = _encode(vocabulary, [[document[feature]] for document in batch])
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


def _encode(
    vocabulary: Vocabulary, lines: Iterable[Sequence[str]]
) -> tuple[np.ndarray, np.ndarray]:
    """The ids of all segments end to end, int32, and their bounds, int64 [segments + 1]."""
    texts: list[str] = []
    follows: list[bool] = []
    for first, *others in lines:
        texts += [first, *others]
        follows += [False] + [True] * len(others)
    ids = _encode_each(vocabulary, texts, follows)
    bounds = np.zeros(len(ids) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, ids), np.int64, len(ids)), out=bounds[1:])
    if ids and isinstance(ids[0], np.ndarray):
        return np.concatenate(ids, dtype=np.int32), bounds
    # One array for the whole batch: arrays of single texts take several times as long.
    return np.fromiter(itertools.chain.from_iterable(ids), np.int32, int(bounds[-1])), bounds


def _encode_each(vocabulary: Vocabulary, texts: list[str], follows: list[bool]) -> Sequence[Any]:
    """The ids of each text; a text that continues a line is encoded as a continuation."""
    if not any(follows) or not isinstance(vocabulary, GoesOn):
        return vocabulary.encode_batch(texts)
    begun = iter(vocabulary.encode_batch([t for t, f in zip(texts, follows, strict=True) if not f]))
    further = iter(vocabulary.encode_following(list(itertools.compress(texts, follows))))
    return [next(further if follow else begun) for follow in follows]
