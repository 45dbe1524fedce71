"""The division of a text file into documents: plain text, JSON lines, TSV, CSV, Parquet."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from t5x_like.core.buckets.storage import RemoteFile
from t5x_like.core.protocols.data import PLAIN_TEXT, Column, names
from t5x_like.core.spelling import alike, nearest
from t5x_like.data import extras
from t5x_like.data.corpora import cells, compression, text_pieces
from t5x_like.data.corpora.corpus import CorpusError, ReadReport

SEPARATORS = ("line", "blank_line", "file")

MAX_LINE = 1 << 26
"""The maximum number of bytes in a row of a structured file; a longer row is an error."""

_UNREADABLE = (".bz2", ".xz", ".zip", ".tar", ".7z", ".pdf", ".docx", ".arrow", ".pkl", ".npy")

Documents = Iterator[dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Layout:
    """The place of documents in a file: the separator of plain text, {column: field} of rows."""

    fields: Mapping[Column, str]
    separator: str

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The names of the columns that hold text."""
        return names(one for one in self.fields if one.holds == "text")


def documents(path: Path | RemoteFile, layout: Layout, *, report: ReadReport) -> Documents:
    """The documents of one file in order, with undecodable bytes as lone surrogates.

    Long documents of plain text come as `text_pieces.Piece`s.

    Raises:
      CorpusError: the file is damaged, has an unreadable format or lacks a field.
    """
    if (suffix := _format(path)) == ".parquet":
        yield from _parquet(path, layout)
        return
    with compression.open_stream(path, report) as stream:
        yield from _STREAMED.get(suffix, _PLAIN).read(stream, path, layout)


def is_plain(path: Path | RemoteFile) -> bool:
    """Whether a file is plain text, which has no fields.

    Raises:
      CorpusError: the file has an unreadable format.
    """
    suffix = _format(path)
    return suffix != ".parquet" and _STREAMED.get(suffix, _PLAIN).columns is None


def columns(path: Path | RemoteFile) -> tuple[str, ...]:
    """The names of the file's fields, for JSON those of its first row; empty for plain text.

    Raises:
      CorpusError: the file is damaged or has an unreadable format.
    """
    suffix = _format(path)
    if suffix == ".parquet":
        return tuple(_open_parquet(path).schema_arrow.names)
    if (named := _STREAMED.get(suffix, _PLAIN).columns) is None:
        return ()
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
            f"{path}: {last} files cannot be read; give plain text, .jsonl, .tsv, .csv or "
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
        yield _document(row, layout, place=place)


def _objects(
    stream: io.BufferedReader, path: Path | RemoteFile
) -> Iterator[tuple[str, dict[str, Any]]]:
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
    _, header = next(rows, (0, []))
    if header and not any(alike(field, header) for field in layout.fields.values()):
        wanted = " and ".join(map(repr, layout.fields.values()))
        raise CorpusError(
            f"{path}: its first line must name the columns, but it is {header[:6]}. Add a line "
            f"with {wanted}, or name the column of the text (CORPUS_FIELD, --field)"
        )
    for number, row in rows:
        place = f"{path}:{number}"
        if len(row) != len(header):
            raise CorpusError(
                f"{place} has {len(row)} columns, its header {len(header)} "
                f"({', '.join(header[:6])})"
            )
        yield _document(dict(zip(header, row, strict=True)), layout, place=place)


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


def _parquet(path: Path | RemoteFile, layout: Layout) -> Documents:
    file = _open_parquet(path)
    arrow = extras.require("pyarrow", "data")
    schema = file.schema_arrow
    _check_fields(schema.names, layout.fields.values(), place=str(path))
    for column, field in layout.fields.items():
        if schema.names.count(field) > 1:
            raise CorpusError(f"{path} has several columns {field!r}")
        if column.holds == "text" and not _holds_text(arrow, kind := schema.field(field).type):
            raise CorpusError(f"{path}: column {field!r} holds {kind}, not text")
    batches = file.iter_batches(batch_size=64, columns=list(layout.fields.values()))
    number = 0
    while True:
        try:
            if (batch := next(batches, None)) is None:
                return
            cells_of = [_cells(arrow, batch.column(field)) for field in layout.fields.values()]
        except (arrow.ArrowException, OSError) as error:
            raise CorpusError(f"{path} cannot be read: {error}") from error
        for row in zip(*cells_of, strict=True):
            number += 1
            found = dict(zip(layout.fields.values(), row, strict=True))
            yield _document(found, layout, place=f"{path}: row {number}")


def _cells(arrow: Any, column: Any) -> list[Any]:
    """The cells of a column; texts are read as bytes, as pyarrow stops at the first invalid one."""
    if not _holds_text(arrow, column.type):
        found: list[Any] = column.to_pylist()
        return found
    texts = column.cast(arrow.large_binary()).to_pylist()
    return [text and text.decode(errors="surrogateescape") for text in texts]


def _holds_text(arrow: Any, kind: Any) -> bool:
    """Whether a type of Arrow is text or bytes, or a dictionary of these."""
    inside = kind.value_type if arrow.types.is_dictionary(kind) else kind
    tests = ("string", "large_string", "binary", "large_binary", "fixed_size_binary")
    return any(getattr(arrow.types, f"is_{name}")(inside) for name in tests)


def _open_parquet(path: Path | RemoteFile) -> Any:
    arrow = extras.require("pyarrow", "data", purpose="reading Parquet")
    parquet = extras.require("pyarrow.parquet", "data", purpose="reading Parquet")
    try:
        return parquet.ParquetFile(path if isinstance(path, Path) else path.open())
    except (arrow.ArrowException, OSError) as error:
        raise CorpusError(f"{path} is not a whole Parquet file: {error}") from error


def _document(row: Mapping[str, Any], layout: Layout, *, place: str) -> dict[str, Any]:
    """The values of a row by column."""
    _check_fields(row, layout.fields.values(), place=place)
    return {
        column.name: cells.value(column, row[field], where=f"{place}: field {field!r}")
        for column, field in layout.fields.items()
    }


def _check_fields(present: Collection[str], wanted: Collection[str], *, place: str) -> None:
    for field in wanted:
        if field not in present:
            raise CorpusError(
                f"{place} has no field {field!r}" + nearest(field, present, of="fields")
            )


@dataclasses.dataclass(frozen=True)
class _Format:
    """The functions that read documents and names of fields; `columns` is None without fields."""

    read: Callable[[io.BufferedReader, Path | RemoteFile, Layout], Documents]
    columns: Callable[[io.BufferedReader, Path | RemoteFile], Iterable[str]] | None = None


_PLAIN = _Format(_plain)
_JSON = _Format(_json_lines, lambda stream, path: next(_objects(stream, path), ("", {}))[1])
_TABLE = _Format(_delimited, lambda stream, path: next(_rows(stream, path), (0, []))[1])
_STREAMED = {
    ".json": _JSON,
    ".jsonl": _JSON,
    ".ndjson": _JSON,
    ".tsv": _TABLE,
    ".csv": _TABLE,
}
"""The format of each extension, except Parquet. Every other extension is plain text."""
