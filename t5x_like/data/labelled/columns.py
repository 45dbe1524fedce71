"""Which columns of labelled rows are the texts and the label: by their names, else by content."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from t5x_like.data.corpora.corpus import CorpusError
from t5x_like.data.labelled.rows import Rows

_LABELS = (
    *("label", "labels", "class", "category", "target", "sentiment", "gold_label", "intent"),
    *("score", "similarity", "rating", "stars", "topic", "emotion", "stance", "y"),
)
_TEXTS = ("sentence", "text", "inputs", "review", "content", "tweet", "document", "comment", "body")
_PAIRS = (
    *(("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2")),
    *(("question", "sentence"), ("text1", "text2"), ("inputs", "inputs2"), ("query", "passage")),
    *(("string1", "string2"), ("question", "passage"), ("text_a", "text_b")),
)


class Named(NamedTuple):
    """The columns that a user names; None for those to be found.

    Attributes:
      text: of the text.
      second: of the second text.
      label: of the label.
    """

    text: str | None = None
    second: str | None = None
    label: str | None = None


NONE_NAMED = Named()


def texts_and_label(rows: Rows, named: Named) -> tuple[tuple[str, ...], str]:
    """The columns of the text or the two texts, and that of the label.

    Raises:
      CorpusError: a column is missing, or cannot be found.
    """
    of_texts = texts(rows, named)
    return of_texts, _label(rows, named.label, of_texts)


def number(cell: Any) -> float | None:
    """The number that a cell holds or writes; None where it is none."""
    try:
        return float(cell)
    except (TypeError, ValueError):
        return None


def size(cell: Any) -> int | None:
    """The length of a list, which a table writes as JSON; None for something else."""
    if isinstance(cell, str) and cell.startswith("["):
        try:
            cell = json.loads(cell)
        except ValueError:
            return None
    return len(cell) if isinstance(cell, list) else None


def texts(rows: Rows, named: Named) -> tuple[str, ...]:
    """The columns of the text or the two texts.

    Raises:
      CorpusError: a column is missing, or cannot be found.
    """
    given = tuple(field for field in (named.text, named.second) if field is not None)
    for field in given:
        rows.check_column(field)
    if named.text is not None:
        return given
    if named.second is not None:
        raise CorpusError("name the column of the first text, too (--text)")
    known = {name.lower(): name for name in rows.names if name != named.label}
    for pair in _PAIRS:
        if {*pair} <= known.keys():
            return tuple(known[name] for name in pair)
    if usual := [known[name] for name in _TEXTS if name in known]:
        return (usual[0],)
    some = rows.some()
    sizes = {
        name: _mean_size([row.get(name) for row in some])
        for name in known.values()
        if name.lower() not in _LABELS
    }
    if longest := [name for name, size in sizes.items() if size and size == max(sizes.values())]:
        return (longest[0],)
    raise CorpusError(
        f"{rows.files} has the columns {', '.join(rows.names)}, and no text is among them: name "
        "its column (--text)"
    )


def _mean_size(cells: Sequence[Any]) -> float:
    """The mean number of characters of texts; 0 where a cell is not a text, or a number."""
    if not all(isinstance(cell, str) and number(cell) is None for cell in cells):
        return 0.0
    return sum(map(len, cells)) / len(cells)


def _repeats(cells: Sequence[Any]) -> bool:
    """Whether cells have a few values, as labels do, and not one each, as texts and numbers do."""
    return 1 < len({str(cell) for cell in cells}) <= len(cells) / 2


def _name_of_column(name: str, rows: Rows) -> str:
    """The name; raises CorpusError where it is a cell of a table without names of columns."""
    if number(name) is not None or name in {str(row.get(name)) for row in rows.some()}:
        raise CorpusError(
            f"{rows.files}: the first line looks like a row, and not like the names of columns: "
            f"{', '.join(map(repr, rows.names)):.100}. Name the columns (--columns)"
        )
    return name


def _label(rows: Rows, label: str | None, texts: Sequence[str]) -> str:
    if label is not None:
        rows.check_column(label)
        return label
    rest = [name for name in rows.names if name not in texts]
    known = {name.lower(): name for name in rest}
    if usual := [known[name] for name in _LABELS if name in known]:
        return usual[0]
    repeated = [name for name in rest if _repeats([row.get(name) for row in rows.some()])]
    for only in (rest, repeated):
        if len(only) == 1:
            return _name_of_column(only[0], rows)
    raise CorpusError(
        f"{rows.files} has the columns {', '.join(rows.names)}: name that of the label (--label)"
    )
