"""Word vectors and their files: word2vec's, as text and binary, and GloVe's.

A text file has a line for each word: the word and its numbers, with a space between. word2vec's
begins with a line of two numbers, of words and of their dimensions, and GloVe's does not. After the
same line, a binary file has each word, a space, and its numbers as little-endian float32.
"""

from __future__ import annotations

import dataclasses
import functools
import mmap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from t5x_like.core import progress, whole_files
from t5x_like.core.protocols.data import Vocabulary
from t5x_like.data.corpora.corpus import ReadReport
from t5x_like.data.corpora.formats import compression

_BINARY = ".bin"
_NUMBER = np.dtype("<f4")


@dataclasses.dataclass(frozen=True)
class WordVectors:
    """Words, mostly in the order of their frequency, and float32 vectors [words, D]."""

    words: Sequence[str]
    vectors: np.ndarray

    @functools.cached_property
    def places(self) -> dict[str, int]:
        """{word: its row}; of equal words the first counts."""
        return {word: n for n, word in reversed([*enumerate(self.words)])}


def read(path: Path, *, limit: int | None = None) -> WordVectors:
    """The words of a file, or the first `limit` of them.

    Args:
      path: a file whose name ends with `.bin`, or else text, which may be compressed.
      limit: how many words are read; None: all.

    Raises:
      FileNotFoundError: there is no such file.
      ValueError: it is not such a file, is cut, or has a number that is not finite.
    """
    if path.is_dir():
        raise ValueError(f"{path} is a folder: `t5x_like export --vectors` writes a run's file")
    made = _read_binary(path, limit) if path.suffix == _BINARY else _read_text(path, limit)
    if not np.isfinite(made.vectors).all():
        row = int(np.flatnonzero(~np.isfinite(made.vectors).all(axis=1))[0])
        raise ValueError(
            f"{path}: the vector of {made.words[row]!r} has numbers that are not finite"
        )
    return made


def write(path: Path, of: WordVectors, *, header: bool = True) -> None:
    """Writes a file, whole or not at all: binary where its name ends with `.bin`, or else text.

    Args:
      path: the file.
      of: what it holds; numbers keep their float32 value.
      header: whether text begins with the numbers of words and dimensions; GloVe's does not.

    Raises:
      ValueError: a word has white space, which would end it.
      OSError: the file cannot be written.
    """
    for word in of.words:
        if not word or word.split() != [word]:
            raise ValueError(f"{path}: {word!r} is empty or has white space: no file can hold it")
    binary = path.suffix == _BINARY
    vectors = np.asarray(of.vectors, _NUMBER)
    with whole_files.writing(path) as file:
        if header or binary:
            file.write(f"{len(of.words)} {vectors.shape[1]}\n".encode())
        for word, vector in zip(of.words, vectors, strict=True):
            file.write(f"{word} ".encode())
            numbers = " ".join(f"{x:.9g}" for x in vector.tolist()).encode()
            file.write((vector.tobytes() if binary else numbers) + b"\n")


def of_table(table: np.ndarray, vocabulary: Vocabulary) -> WordVectors:
    """The tokens of a table that are words, or the beginning of one.

    Args:
      table: float [vocab_size or more, D].
      vocabulary: that of the table.

    Raises:
      ValueError: no token of the vocabulary tells whether it begins a word.
    """
    starts = vocabulary.token_ids.word_starts
    words: dict[str, int] = {}
    for i in np.flatnonzero(starts) if starts is not None else ():
        word = vocabulary.decode([int(i)]).strip()
        if any(map(str.isalnum, word)) and word.split() == [word]:
            words.setdefault(word, int(i))
    if not words:
        raise ValueError(f"{vocabulary!r} has no tokens that are words")
    return WordVectors([*words], np.asarray(table, np.float32)[[*words.values()]])


def _read_text(path: Path, limit: int | None) -> WordVectors:
    words: list[str] = []
    vectors: list[np.ndarray] = []
    with compression.open_stream(path, ReadReport()) as stream:
        lines = _numbered(stream)
        first = next(lines, (1, ""))[1].split(" ")
        if first == [""]:
            raise ValueError(f"{path} has no word vectors in its first line")
        stated = _header(first)
        if stated is None:
            size = len(first) - 1
            lines = _with_first(" ".join(first), lines)
        else:
            size = stated[1]
        most = stated[0] if limit is None and stated else limit
        for number, line in progress.bar(lines, total=most, unit=" words", leave=False):
            if len(words) == limit:
                break
            # From the right: GloVe has words with spaces in them.
            word, *numbers = line.rsplit(" ", size)
            if len(numbers) != size or not size:
                raise ValueError(f"{path}:{number}: not a word and {size} numbers: {line[:60]!r}")
            try:
                vectors.append(np.array(numbers, _NUMBER))
            except ValueError as error:
                raise ValueError(f"{path}:{number}: {error}: {line[:60]!r}") from error
            words.append(word)
    if stated and limit is None and len(words) != stated[0]:
        raise ValueError(
            f"{path} says that it has {stated[0]:,} words, and has {len(words):,}: is it cut?"
        )
    return WordVectors(words, np.stack(vectors))


def _numbered(stream: IO[bytes]) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(stream, start=1):
        yield number, line.decode(errors="replace").rstrip("\r\n").rstrip(" ")


def _with_first(line: str, others: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    yield 1, line
    yield from others


def _header(cells: Sequence[str]) -> tuple[int, int] | None:
    """The numbers of words and dimensions; None if these are the cells of a word."""
    if len(cells) == 2 and all(cell.isascii() and cell.isdigit() for cell in cells):
        return int(cells[0]), int(cells[1])
    return None


def _read_binary(path: Path, limit: int | None) -> WordVectors:
    with path.open("rb") as file:
        line = file.readline(64)
        stated = _header(line.decode(errors="replace").split())
        if stated is None or not line.endswith(b"\n") or not all(stated):
            raise ValueError(f"{path} does not begin with its numbers of words and dimensions")
        count, size = stated
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    with content:
        at, length = len(line), size * _NUMBER.itemsize
        if len(content) < at + count * (length + 2):  # before memory is taken for what it says
            raise ValueError(f"{path} is too short for {count:,} words: is it cut?")
        count = count if limit is None else min(count, limit)
        words, vectors = [], np.empty((count, size), np.float32)
        for n in progress.bar(range(count), unit=" words", leave=False):
            end = content.find(b" ", at)
            if end < 0 or end + 1 + length > len(content):
                raise ValueError(f"{path} ends in the middle of its word {n + 1:,}: is it cut?")
            words.append(content[at:end].lstrip(b"\n").decode(errors="replace"))
            vectors[n] = np.frombuffer(content[end + 1 : end + 1 + length], _NUMBER)
            at = end + 1 + length
    return WordVectors(words, vectors)
