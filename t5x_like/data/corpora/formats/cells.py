"""The value of a cell of a row, for the column that it stands in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from t5x_like.core import tag_schemes
from t5x_like.core.protocols.data import Column
from t5x_like.data.corpora.corpus import CorpusError
from t5x_like.data.corpora.formats import field_paths, marked_texts

STARTS = "answer_start"
"""The field of the places of answers, in characters."""
_ANSWERS = (
    'answers are {"text": [...], "answer_start": [...]}, or a text beside a column answer_start'
)


def value(column: Column, cell: Any, *, where: str) -> Any:
    """The value of a cell that JSON, Parquet or a table gives.

    Args:
      column: says what the cell holds.
      cell: the cell; None for null.
      where: the place of the cell, for messages.

    Returns:
      A text ("" for null), the name of a class, float32 of the column's shape, words, tags or
      labels, a text with one a line, or JSON of spans.

    Raises:
      CorpusError: the cell holds something else.
    """
    if column.holds in ("text", "passage", "characters"):
        if cell is not None and not isinstance(cell, str):
            raise CorpusError(f"{where} is a {type(cell).__name__}, not a string")
        if column.markers is not None:
            return marked_texts.read(cell or "", column.markers, where=where).text
        return cell or ""
    if column.holds == "label":
        return _label(cell, where=where)
    if column.holds == "spans":
        if column.markers is not None:
            return json.dumps(
                marked_texts.read(cell or "", column.markers, where=where).parts, ensure_ascii=False
            )
        return _spans(cell, where=where)
    if column.holds in ("words", "tags", "labels"):
        return _lines(column, cell, where=where)
    return _numbers(column, cell, where=where)


def of_row(column: Column, row: Mapping[str, Any], field: str) -> Any:
    """The cell of a column; the places of answers may be in a cell of their own.

    Raises:
      ValueError: it is a part of a list, and there is none.
    """
    if column.holds == "spans" and STARTS in row and not isinstance(row[field], Mapping):
        return {"text": row[field], STARTS: row[STARTS]}
    return field_paths.cell(row, field)


def check_row(document: Mapping[str, Any], columns: Iterable[Column], *, where: str) -> None:
    """Raises CorpusError where columns of a row do not fit each other: tags, answers in texts."""
    _check_tags(document, columns, where=where)
    _check_spans(document, columns, where=where)


def _check_spans(document: Mapping[str, Any], columns: Iterable[Column], *, where: str) -> None:
    """Raises CorpusError where the passage of a row does not have an answer at its place."""
    name = {column.holds: column.name for column in columns}
    if "spans" not in name:
        return
    passage = document[name["passage"]]
    for begin, text in json.loads(document[name["spans"]]):
        present = passage[begin : begin + len(text)]
        if present == text:
            continue
        places = [match.start() for match in re.finditer(re.escape(text), passage)]
        advice = f"it is at {places[0]}" if places else "it is not in this text"
        raise CorpusError(
            f"{where}: the answer {text!r:.60} is not at character {begin} of the text that it "
            f"answers from, where {present!r:.60} is: {advice}"
        )


def _check_tags(document: Mapping[str, Any], columns: Iterable[Column], *, where: str) -> None:
    """Raises CorpusError where a row has other numbers of words and of tags."""
    size = {
        column.holds: len(column.parts(document[column.name]))
        for column in columns
        if column.holds in ("words", "tags")
    }
    if size.get("tags", size.get("words")) != size.get("words"):
        raise CorpusError(
            f"{where} has {size['words']:,} words and {size['tags']:,} tags: give each word one tag"
        )


def _label(cell: Any, *, where: str) -> str:
    if cell is None or cell == "":
        raise CorpusError(f"{where} has no label: leave its row out, or give it one")
    if isinstance(cell, bool):
        return str(cell).lower()
    if not isinstance(cell, int | str):
        raise CorpusError(
            f"{where} is {cell!r}, a {type(cell).__name__}: a label is a text or a whole number"
        )
    return str(cell)


def _lines(column: Column, cell: Any, *, where: str) -> str:
    """Words or tags, from a list or from JSON in a table, as a text with one a line."""
    try:
        several = json.loads(cell) if isinstance(cell, str) else cell
    except (ValueError, RecursionError) as error:
        raise CorpusError(f"{where} does not hold a list of {column.holds}: {error}") from error
    if not isinstance(several, list | None):
        raise CorpusError(f"{where} is a {type(several).__name__}, not a list of {column.holds}")
    lines = []
    for n, item in enumerate(several or (), start=1):
        place = f"{where}, number {n},"
        if column.holds == "words" and not isinstance(item, str):
            raise CorpusError(f"{place} is a {type(item).__name__}, not a word")
        lines.append(item if column.holds == "words" else _label(item, where=place))
        if "\n" in lines[-1]:
            raise CorpusError(f"{place} has a line end in it: {item!r:.60}")
    return "\n".join(tag_schemes.as_bio(lines) if column.as_bio else lines)


def _spans(cell: Any, *, where: str) -> str:
    """JSON [[place, text], ...] of answers, as SQuAD and data sets of Hugging Face have them."""
    try:
        answers = json.loads(cell) if isinstance(cell, str) and cell[:1] in ("{", "[") else cell
    except (ValueError, RecursionError) as error:
        raise CorpusError(f"{where} does not hold answers: {error}") from error
    if isinstance(answers, list):  # as in SQuAD's own files
        if not all(isinstance(answer, Mapping) for answer in answers):
            raise CorpusError(f"{where} is {cell!r:.60}: {_ANSWERS}")
        answers = {key: [answer.get(key) for answer in answers] for key in ("text", STARTS)}
    if not isinstance(answers, Mapping) or not {"text", STARTS} <= {*answers}:
        raise CorpusError(f"{where} is {cell!r:.60}: {_ANSWERS}")
    texts, starts = (_several(answers[key]) for key in ("text", STARTS))
    if len(texts) != len(starts):
        raise CorpusError(f"{where} has {len(texts)} texts and {len(starts)} places of answers")
    spans = []
    for text, start in zip(texts, starts, strict=True):
        if not isinstance(text, str) or not text.strip():
            raise CorpusError(
                f"{where} has the answer {text!r}: a question without an answer has no texts, and "
                "no places"
            )
        if isinstance(start, str) and start.isdecimal():
            start = int(start)
        if isinstance(start, bool) or not isinstance(start, int) or start < 0:
            raise CorpusError(f"{where}: the answer {text!r:.60} has the place {start!r}")
        spans.append([start, text])
    return json.dumps(spans, ensure_ascii=False)


def _several(cell: Any) -> list[Any]:
    """The values of a cell that holds some, one, or none."""
    if isinstance(cell, list):
        return cell
    return [] if cell is None or cell == "" else [cell]


def _numbers(column: Column, cell: Any, *, where: str) -> np.ndarray:
    wanted = f"numbers of the shape {_shape(column)}"
    try:
        array = np.array(json.loads(cell) if isinstance(cell, str) else cell, np.float32)
    except (ValueError, TypeError, RecursionError) as error:
        raise CorpusError(f"{where} does not hold {wanted}: {error}") from error
    fits = array.ndim == len(column.shape) and all(
        size in (None, length) for size, length in zip(column.shape, array.shape, strict=True)
    )
    if not fits:
        raise CorpusError(f"{where} has the shape {list(array.shape)}, not {_shape(column)}")
    if not np.isfinite(array).all():
        raise CorpusError(f"{where} holds a number that is not finite, or is null: {cell!r:.60}")
    return array


def _shape(column: Column) -> str:
    return f"[{', '.join('any' if size is None else str(size) for size in column.shape)}]"
