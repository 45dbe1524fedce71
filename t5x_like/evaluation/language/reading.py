"""Files of evaluations of language: their paths, lines and rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from t5x_like.data.corpora.corpus import ReadReport
from t5x_like.data.corpora.formats import compression, text_formats
from t5x_like.data.corpora.matching_files import File
from t5x_like.data.corpora.text_files import TextFiles


def files(named: str | Sequence[str]) -> list[File]:
    """The files of paths and globs; raises CorpusError where there are none."""
    return TextFiles(named, validation=0.0).files("train")


def stem(path: File) -> str:
    """The name of a file without its extensions."""
    return str(path).rpartition("/")[2].partition(".")[0]


def lines(path: File) -> Iterator[tuple[int, str]]:
    """The lines of a text file that are not blank, with their numbers from 1."""
    with compression.open_stream(path, ReadReport()) as stream:
        for number, line in enumerate(stream, start=1):
            if text := line.decode(errors="replace").rstrip("\r\n"):
                yield number, text


def has_fields(path: File) -> bool:
    """Whether a file is a table or JSON lines, and not plain text."""
    return not text_formats.is_plain(path)


def rows(path: File, header: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """The rows of a table or of JSON lines; `header` names the columns of a table without names."""
    return text_formats.rows(path, header=header)


def first_line(path: File) -> tuple[str, ...]:
    """The cells of a table's first line, or the fields of the first JSON line."""
    return text_formats.columns(path)


def text_of(row: Mapping[str, Any], field: str, place: str) -> str:
    """The text in a field of a row.

    Raises:
      ValueError: it is missing, empty or something else.
    """
    value = row.get(field)
    if not (isinstance(value, str) and value.strip()):
        raise ValueError(f"{place}: the field {field!r} is {value!r:.60}, and not a text")
    return value


def shared(one: Sequence[int], other: Sequence[int]) -> int:
    """The number of first elements that two sequences have in common."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))
