"""Tokenisation of documents into records: segments, tokens, pieces of bounded length.

A document is cut after every run of newlines, which stays with the preceding line. A line of more
than `text_pieces.MAX_LINE` characters is cut again after a space. The segments are these parts, or
the sentences in them. They are tokenised one by one, and the tokens of a document are those of its
segments, end to end. The segments, joined, equal the document in every character.

The tokens compare with `encode(document)` as follows. Bytes and characters give exactly the same
tokens. So does WordPiece, for which white space and punctuation divide words. So does a
SentencePiece model with T5's settings, which reads a newline as a space and has no piece across a
space; but where a sentence follows another without a space, no piece crosses the end of the first.
Byte-level BPE differs at blank lines: it attaches the last character of a run of white space to the
next word. In a document this is a newline before the next line, and a segment has no next line. It
also does not join the punctuation of two sentences.
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from t5x_like.core.protocols.data import Column, GoesOn, Vocabulary, names
from t5x_like.data.cache import words
from t5x_like.data.cache.format import CacheError
from t5x_like.data.corpora import passages, text_pieces
from t5x_like.data.corpora.corpus import Document
from t5x_like.data.corpora.sentences import LINES, of_line

PIECE_TOKENS = 8192
_BATCH_CHARACTERS = 1 << 19
_LINE = re.compile(r".*\n+|.+")


class Record(NamedTuple):
    """One record of a shard, before it is encoded.

    Attributes:
      features: {feature: int32 [n]}.
      segments: int32 [S], the positions at which segments start; empty for a corpus without
        segments.
      new_document: whether it is the first record of a document.
    """

    features: dict[str, np.ndarray]
    segments: np.ndarray
    new_document: bool


def split_segments(text: str, sentences: str = LINES) -> list[str]:
    """The segments of a document. Joined, they equal the text.

    Args:
      text: the text of the document.
      sentences: a language, or `LINES`.
    """
    return list(itertools.chain.from_iterable(_split(text, sentences)))


def _split(text: str, sentences: str) -> Iterator[list[str]]:
    """The segments of each line, or of each part of a long line."""
    lines: Iterable[str] = _LINE.findall(text)
    if len(text) > text_pieces.MAX_LINE:
        lines = itertools.chain.from_iterable(map(_line_parts, lines))
    for line in lines:
        yield [line] if sentences == LINES else of_line(line, sentences)


def _line_parts(line: str) -> Iterator[str]:
    """The parts of a line, with the line ends after it, cut as by `text_pieces.parts`."""
    start, body = 0, text_pieces.body_length(line)
    while body - start > text_pieces.MAX_LINE:
        limit = start + text_pieces.MAX_LINE
        cut = line.rfind(" ", start, limit) + 1 or limit
        yield line[start:cut]
        start = cut
    yield line[start:]


def plain_records(
    documents: Iterable[Document], vocabulary: Vocabulary, sentences: str = LINES
) -> Iterator[Record]:
    """The records of documents with the single feature 'targets', cut into pieces.

    A document without tokens gives no record. A `text_pieces.Piece` that continues a document gives
    records that continue it, even if an earlier call had the beginning. `sentences` is as for
    `split_segments`.
    """
    for batch in batches(documents):
        begins = [not text_pieces.continues(document) for document in batch]
        lines = [list(_split(document["targets"], sentences)) for document in batch]
        tokens, bounds = _encode(vocabulary, itertools.chain.from_iterable(lines))
        ends = bounds[np.cumsum([sum(map(len, document)) for document in lines])].tolist()
        # Segments without tokens do not count.
        starts = bounds[:-1][np.diff(bounds) > 0].astype(np.int32)
        places = starts.tolist()
        for i, (begin, end) in enumerate(itertools.pairwise([0, *ends])):
            if begin == end and begins[i] and isinstance(batch[i], text_pieces.Piece):
                # Other pieces follow, and they must not continue the previous document.
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


def column_records(
    documents: Iterable[Document],
    vocabulary: Vocabulary,
    columns: Sequence[Column],
    labels: Mapping[str, Sequence[str]],
) -> Iterator[Record]:
    """One record for each document: tokens of texts, numbers of labels and of tags, numbers.

    `labels` has the names of each column's classes, in their order.

    Raises:
      CacheError: a label is not one of the names, a row has other numbers of words and of tags, or
        the vocabulary has no token for a word.
    """
    none = np.zeros(0, np.int32)
    places = {
        name: {class_name: place for place, class_name in enumerate(of)}
        for name, of in labels.items()
    }
    for batch in batches(documents):
        by_column: list[list[np.ndarray]] = []
        of_words = [_words(document, columns, vocabulary) for document in batch]
        for column in columns:
            values = [document[column.name] for document in batch]
            if column.holds == "words":
                by_column.append([np.concatenate(tokens) for tokens in of_words])
            elif column.holds == "tags":
                by_column.append(
                    [
                        _tags(tags, tokens, column, places[column.name])
                        for tags, tokens in zip(values, of_words, strict=True)
                    ]
                )
            elif column.holds == "spans":
                by_column.append(_spans(batch, column, columns, vocabulary))
            elif column.holds == "characters":
                by_column.append(list(map(passages.characters, values)))
            elif column.holds in ("text", "passage"):
                tokens, bounds = _encode(vocabulary, ([text] for text in values))
                by_column.append([tokens[i:j] for i, j in itertools.pairwise(bounds.tolist())])
            elif column.holds == "labels":
                of_column = places[column.name]
                by_column.append(
                    [
                        np.array([_place(x, column.name, of_column) for x in column.parts(cell)])
                        for cell in values
                    ]
                )
            elif column.holds == "label":
                by_column.append(
                    [_place(cell, column.name, places[column.name]) for cell in values]
                )
            else:
                by_column.append(values)
        for row in zip(*by_column, strict=True):
            yield Record(dict(zip(names(columns), row, strict=True)), none, True)


def _words(
    document: Document, columns: Sequence[Column], vocabulary: Vocabulary
) -> list[np.ndarray]:
    """The tokens of each word of a row; empty where no column holds words."""
    for column in columns:
        if column.holds == "words":
            try:
                return words.encode(vocabulary, column.parts(document[column.name]))
            except ValueError as error:
                raise CacheError(f"column {column.name!r}: {error}") from error
    return []


def _tags(
    tags: str, of_words: Sequence[np.ndarray], column: Column, places: Mapping[str, int]
) -> np.ndarray:
    """The number of each word's tag at its first token, -1 at others: int32 [tokens]."""
    numbers = [_place(tag, column.name, places) for tag in column.parts(tags)]
    if len(numbers) != len(of_words):
        raise CacheError(
            f"column {column.name!r} has {len(numbers):,} tags in a row of {len(of_words):,} words"
        )
    is_first = words.starts(of_words)
    aligned = np.full(len(is_first), -1, np.int32)
    aligned[is_first] = numbers
    return aligned


def _spans(
    batch: Sequence[Document], column: Column, columns: Sequence[Column], vocabulary: Vocabulary
) -> list[np.ndarray]:
    """The answers of each row in its passage, int32 [answers, 4]."""
    (passage,) = (other.name for other in columns if other.holds == "passage")
    located: dict[str, np.ndarray] = {}  # many questions have the same passage
    of_rows = []
    for document in batch:
        text = document[passage]
        if text not in located:
            located[text] = passages.located(vocabulary, text)[1]
        of_rows.append(passages.spans(document[column.name], located[text]))
    return of_rows


def _place(label: str, column: str, places: Mapping[str, int]) -> np.ndarray:
    if label not in places:
        raise CacheError(
            f"column {column!r} holds the label {label!r}, which is not one of {', '.join(places)}"
        )
    return np.array(places[label], np.int32)


def batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """The documents in groups whose ids, as Python lists, take little memory."""
    batch: list[Document] = []
    characters = 0
    for document in documents:
        batch.append(document)
        characters += sum(len(cell) for cell in document.values() if isinstance(cell, str))
        if characters >= _BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _encode(
    vocabulary: Vocabulary, lines: Iterable[Sequence[str]]
) -> tuple[np.ndarray, np.ndarray]:
    """The ids of all segments end to end, int32, and the segments' bounds, int64 [segments + 1]."""
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
    # The whole batch becomes one array. An array for each text takes several times as long.
    return np.fromiter(itertools.chain.from_iterable(ids), np.int32, int(bounds[-1])), bounds


def _encode_each(vocabulary: Vocabulary, texts: list[str], follows: list[bool]) -> Sequence[Any]:
    """The ids of each text. A text that continues a line is encoded by `encode_following`."""
    if not any(follows) or not isinstance(vocabulary, GoesOn):
        return vocabulary.encode_batch(texts)
    begun = iter(vocabulary.encode_batch([t for t, f in zip(texts, follows, strict=True) if not f]))
    further = iter(vocabulary.encode_following(list(itertools.compress(texts, follows))))
    return [next(further if follow else begun) for follow in follows]
