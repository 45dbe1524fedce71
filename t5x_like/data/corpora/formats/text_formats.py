"""The division of a text file into documents: plain text, JSON lines, tables, tagged words."""

from __future__ import annotations

import csv
import dataclasses
import io
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from t5x_like.core.buckets.storage import RemoteFile
from t5x_like.core.protocols.data import PLAIN_TEXT, Column, names
from t5x_like.core.spelling import alike
from t5x_like.data.corpora import text_pieces
from t5x_like.data.corpora.corpus import CorpusError, ReadReport
from t5x_like.data.corpora.formats import compression, parquet, squad
from t5x_like.data.corpora.formats.layout import Layout, document

SEPARATORS = ("line", "blank_line", "file")

MAX_LINE = 1 << 26
"""The maximum number of bytes in a row of a structured file; a longer row is an error."""

_LONGEST_SENTENCE = 1 << 16
_UNREADABLE = (".bz2", ".xz", ".zip", ".tar", ".7z", ".pdf", ".docx", ".arrow", ".pkl", ".npy")

Documents = Iterator[dict[str, Any]]


def documents(path: Path | RemoteFile, layout: Layout, *, report: ReadReport) -> Documents:
    """The documents of one file in order, with undecodable bytes as lone surrogates.

    Long documents of plain text come as `text_pieces.Piece`s.

    Raises:
      CorpusError: the file is damaged, has an unreadable format or lacks a field.
    """
    if (suffix := _format(path)) == ".parquet":
        yield from parquet.documents(path, layout)
        return
    with compression.open_stream(path, report) as stream:
        yield from _STREAMED.get(suffix, _PLAIN).read(stream, path, layout)


def rows(path: Path | RemoteFile, *, header: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """The rows of one file with fields, each {field: cell}; cells are those of the file.

    `header` names the columns of a table whose first line does not.

    Raises:
      CorpusError: the file is damaged, has an unreadable format, or is plain text.
    """
    if (suffix := _format(path)) == ".parquet":
        file = parquet.open_file(path)
        for batch in file.iter_batches(batch_size=64):
            yield from batch.to_pylist()
        return
    if suffix not in _STREAMED:
        raise CorpusError(f"{path} is plain text, whose lines have no labels: give a table")
    with compression.open_stream(path, ReadReport()) as stream:
        if _STREAMED[suffix] is _WORDS:
            for document in _tagged_words(stream, path, _OF_WORDS):
                yield {name: lines.split("\n") for name, lines in document.items()}
        elif _STREAMED[suffix] is _JSON:
            yield from (row for _, row in _objects(stream, path))
        else:
            yield from (row for _, row in _named_cells(_rows(stream, path), header, path))


def is_plain(path: Path | RemoteFile) -> bool:
    """Whether a file is plain text, which has no fields.

    Raises:
      CorpusError: the file has an unreadable format.
    """
    suffix = _format(path)
    return suffix != ".parquet" and _STREAMED.get(suffix, _PLAIN).columns is None


def columns(path: Path | RemoteFile, *, header: Sequence[str] = ()) -> tuple[str, ...]:
    """The names of the file's fields, for JSON those of its first row; empty for plain text.

    `header` is that of `rows`.

    Raises:
      CorpusError: the file is damaged or has an unreadable format.
    """
    suffix = _format(path)
    if suffix == ".parquet":
        return tuple(parquet.open_file(path).schema_arrow.names)
    if (named := _STREAMED.get(suffix, _PLAIN).columns) is None:
        return ()
    if header and _STREAMED[suffix] is _TABLE:
        return tuple(header)
    with compression.open_stream(path, ReadReport()) as stream:
        return tuple(named(stream, path))


def _format(path: Path | RemoteFile) -> str:
    """The extension that decides the format, in lower case, without that of a compression."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in compression.COMPRESSED:
        suffixes.pop()
    last = suffixes[-1] if suffixes else ""
    if last in _UNREADABLE:
        raise CorpusError(
            f"{path}: {last} files cannot be read; give plain text, .jsonl, .tsv, .csv, .conll or "
            ".parquet; the text formats may also be .gz or .zst"
        )
    return last


def _plain(stream: io.BufferedReader, path: Path | RemoteFile, layout: Layout) -> Documents:
    if tuple(layout.fields) != PLAIN_TEXT:
        raise CorpusError(
            f"{path} is plain text, which has no {' and '.join(names(layout.fields))}: give a "
            ".tsv, .csv, .jsonl or .parquet file with fields of these names"
        )
    # Undecodable bytes are found later, document by document.
    text = io.TextIOWrapper(stream, encoding="utf-8", errors="surrogateescape", newline="\n")
    try:
        divided = _divide(text_pieces.parts(text), layout.separator)
        yield from text_pieces.pieces(divided, strip=True)
    finally:
        text.detach()


def _divide(parts: Iterator[str], separator: str) -> Iterator[tuple[bool, str]]:
    """The lines of documents (or parts of long lines), each with whether it begins a document."""
    inside = False
    begins_line = True
    for part in parts:
        blank = begins_line and not part.strip()
        begins_line = part.endswith("\n")
        if blank and not (inside and separator == "file"):
            inside = False
            continue
        yield not inside, part[:-2] + "\n" if part.endswith("\r\n") else part
        inside = not (separator == "line" and begins_line)


def _json_lines(stream: io.BufferedReader, path: Path | RemoteFile, layout: Layout) -> Documents:
    for place, row in _objects(stream, path):
        yield document(row, layout, place=place)


def _objects(
    stream: io.BufferedReader, path: Path | RemoteFile
) -> Iterator[tuple[str, dict[str, Any]]]:
    if squad.is_squad(stream):
        yield from squad.rows(stream, str(path))
        return
    for number, line in _whole_lines(stream, path):
        place = f"{path}:{number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:  # ValueError: a number of many digits, too
            raise CorpusError(
                f"{place} is not one JSON object on a line of its own: {error}"
            ) from error
        if not isinstance(row, dict):
            raise CorpusError(
                f"{place} holds a {type(row).__name__}: write one JSON object on each line"
            )
        yield place, row


def _delimited(stream: io.BufferedReader, path: Path | RemoteFile, layout: Layout) -> Documents:
    rows = _rows(stream, path)
    header = layout.header or next(rows, (0, []))[1]
    if header and not any(alike(field, header) for field in layout.fields.values()):
        wanted = " and ".join(map(repr, layout.fields.values()))
        raise CorpusError(
            f"{path}: its first line must name the columns, but it is {header[:6]}. Add a line "
            f"with {wanted}, or name the column of the text (CORPUS_FIELD, --field)"
        )
    for place, row in _named_cells(rows, header, path):
        yield document(row, layout, place=place)


def _named_cells(
    rows: Iterator[tuple[int, list[str]]], header: Sequence[str], path: Path | RemoteFile
) -> Iterator[tuple[str, dict[str, str]]]:
    """The place and the cells of each row; without a `header` the first row is it."""
    header = header or next(rows, (0, []))[1]
    for number, row in rows:
        if len(row) != len(header):
            named = ", ".join(header[:6])
            raise CorpusError(
                f"{path}:{number} has {len(row)} columns, its header {len(header)} ({named})"
            )
        yield f"{path}:{number}", dict(zip(header, row, strict=True))


def _rows(stream: io.BufferedReader, path: Path | RemoteFile) -> Iterator[tuple[int, list[str]]]:
    """The rows, each with the number of its last line. Quotes have a meaning in CSV, not in TSV."""
    csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE))
    if _format(path) == ".csv":
        bound = _RowBound(path)
        lines = map(bound.count, _whole_lines(stream, path, skip_blank=False))
        reader = csv.reader(lines, strict=True)
        try:
            for row in reader:
                bound.size = 0
                if row:
                    yield reader.line_num, row
        except csv.Error as error:
            raise CorpusError(f"{path}:{reader.line_num} is not CSV: {error}") from error
        return
    for number, line in _whole_lines(stream, path):
        yield number, line.split("\t")


@dataclasses.dataclass
class _RowBound:
    """Counts the characters of the lines of a row, which quotes may make as many as they like."""

    path: Path | RemoteFile
    size: int = 0

    def count(self, numbered: tuple[int, str]) -> str:
        """The line with its end; raises CorpusError where its row is too long."""
        number, line = numbered
        self.size += len(line) + 1
        if self.size > MAX_LINE:
            raise CorpusError(
                f"{self.path}:{number} ends a row of more than {MAX_LINE >> 20} MiB: a quote is "
                "not closed"
            )
        return line + "\n"


def _tagged_words(stream: io.BufferedReader, path: Path | RemoteFile, layout: Layout) -> Documents:
    sentence: list[tuple[int, str]] = []
    for number, line in itertools.chain(_whole_lines(stream, path, skip_blank=False), [(0, "")]):
        if line.startswith("-DOCSTART-"):
            continue
        if line.strip():
            sentence.append((number, line))
            if len(sentence) > _LONGEST_SENTENCE:
                raise CorpusError(
                    f"{path}:{number} is in a sentence of more than {_LONGEST_SENTENCE:,} lines: "
                    "end each sentence with an empty line"
                )
            continue
        if rows := _rows_of_words(sentence, path):
            words, tags = zip(*rows, strict=True)
            row = {"words": [*words], "tags": [*tags]}
            yield document(row, layout, place=f"{path}:{sentence[0][0]}")
        sentence = []


def _rows_of_words(
    sentence: Sequence[tuple[int, str]], path: Path | RemoteFile
) -> list[tuple[str, str]]:
    """The first and the last column of a sentence's lines, without the comments before it.

    A line that begins with `#` is a comment if it has other columns than the first line that does
    not: the word `#` may begin a sentence, too.
    """
    begun = next((n for n, (_, line) in enumerate(sentence) if line[0] != "#"), len(sentence))
    separator = "\t" if any("\t" in line for _, line in sentence[begun:]) else None
    columns = [line.split(separator) for _, line in sentence]
    wide = len(columns[begun]) if begun < len(columns) else 0
    rows = []
    for n, ((number, _), cells_of) in enumerate(zip(sentence, columns, strict=True)):
        if n < begun and len(cells_of) != wide:
            continue
        if len(cells_of) < 2:
            raise CorpusError(
                f"{path}:{number} has one column: write a word and its tag on each line, with a "
                "tab or blanks between them, and an empty line after each sentence"
            )
        rows.append((cells_of[0], cells_of[-1]))
    return rows


def _whole_lines(
    stream: io.BufferedReader, path: Path | RemoteFile, *, skip_blank: bool = True
) -> Iterator[tuple[int, str]]:
    number = 0
    while line := stream.readline(MAX_LINE):
        number += 1
        if len(line) == MAX_LINE and not line.endswith(b"\n"):
            raise CorpusError(f"{path}:{number} is a line of more than {MAX_LINE >> 20} MiB")
        if line.strip() or not skip_blank:
            ended = line.removesuffix(b"\n").removesuffix(b"\r")
            yield number, ended.decode(errors="surrogateescape")


@dataclasses.dataclass(frozen=True)
class _Format:
    """The functions that read documents and names of fields; `columns` is None without fields."""

    read: Callable[[io.BufferedReader, Path | RemoteFile, Layout], Documents]
    columns: Callable[[io.BufferedReader, Path | RemoteFile], Iterable[str]] | None = None


_PLAIN = _Format(_plain)
_JSON = _Format(_json_lines, lambda stream, path: next(_objects(stream, path), ("", {}))[1])
_TABLE = _Format(_delimited, lambda stream, path: next(_rows(stream, path), (0, []))[1])
_WORDS = _Format(_tagged_words, lambda stream, path: ("words", "tags"))
_STREAMED = {
    ".conll": _WORDS,
    ".json": _JSON,
    ".jsonl": _JSON,
    ".ndjson": _JSON,
    ".tsv": _TABLE,
    ".csv": _TABLE,
}
"""The format of each extension, except Parquet. Every other extension is plain text."""
_OF_WORDS = Layout(
    {Column("words", "words"): "words", Column("tags", "tags"): "tags"}, SEPARATORS[0]
)
