"""Records to predict, from text, JSON lines, TSV, CSV or Parquet."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from t5x_like.core.buckets import staging
from t5x_like.core.protocols.data import Column
from t5x_like.core.spelling import alike, nearest
from t5x_like.data.corpora.corpus import ReadReport
from t5x_like.data.corpora.formats import compression, text_formats

_TEXT = "inputs"


def read(path: str, *, field: str | None = None) -> list[dict[str, Any]]:
    """The records of a file; `-` is standard input, as text or, if it begins with `{`, JSON lines.

    Args:
      path: a text file has a record on each line that is not blank.
      field: the field of the input, where it is neither `inputs` nor `text` nor `words`.

    Returns:
      Records, each with `inputs` and the file's other fields.

    Raises:
      ValueError, OSError: the file cannot be read, is empty, or has no field for the input.
    """
    records = list(_standard_input() if path == "-" else _file(staging.fetched(path)))
    if not records:
        raise ValueError(f"{path} has no input: it is empty")
    return [
        _named(record, field, place=f"{path}, input {n}") for n, record in enumerate(records, 1)
    ]


def _standard_input() -> Iterator[dict[str, Any]]:
    text = sys.stdin.read()
    lines = _lines(text.splitlines())
    yield from (
        _objects(lines, "standard input")
        if text.lstrip().startswith("{")
        else ({_TEXT: line} for line in lines)
    )


def _file(path: Path) -> Iterator[dict[str, Any]]:
    if not path.exists():
        beside = (
            [neighbour.name for neighbour in path.parent.iterdir()] if path.parent.is_dir() else []
        )
        near = alike(path.name, beside)
        raise FileNotFoundError(
            f"there is no file {path} of inputs" + (f"; nearest: {', '.join(near)}" if near else "")
        )
    suffixes = [suffix for suffix in path.suffixes if suffix not in compression.COMPRESSED]
    if suffixes and suffixes[-1].lower() in (".jsonl", ".json", ".ndjson"):
        # Values may be lists, such as choices, which corpora do not have.
        with compression.open_stream(path, ReadReport()) as stream:
            lines = (line.decode(errors="replace") for line in stream)
            yield from _objects(_lines(lines), str(path))
        return
    if text_formats.is_plain(path):
        with compression.open_stream(path, ReadReport()) as stream:
            for line in _lines(line.decode(errors="replace") for line in stream):
                yield {_TEXT: line}
        return
    names = text_formats.columns(path)
    layout = text_formats.Layout({Column(name): name for name in names}, "line")
    yield from text_formats.documents(path, layout, report=ReadReport())


def _lines(lines: Iterable[str]) -> Iterator[str]:
    return (line.rstrip("\r\n") for line in lines if line.strip())


def _objects(lines: Iterable[str], place: str) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{place}:{number} is not one JSON object a line: {error}") from error
        if not isinstance(record, dict):
            raise ValueError(f"{place}:{number} is not a JSON object: {line[:60]!r}")
        yield record


def _named(record: dict[str, Any], field: str | None, *, place: str) -> dict[str, Any]:
    """The record with the text, or the list of words, to read as `inputs`."""
    key = field or next((name for name in (_TEXT, "text", "words") if name in record), _TEXT)
    value = record.get(key)
    are_words = isinstance(value, list) and all(isinstance(word, str) for word in value)
    if not (isinstance(value, str) or are_words):
        wrong = "is not text" if key in record else "is missing"
        raise ValueError(
            f"{place}: field {key!r} {wrong}{nearest(key, list(record), of='fields')}; "
            "--field names another"
        )
    return record if key == _TEXT else {_TEXT: record[key], **record}
