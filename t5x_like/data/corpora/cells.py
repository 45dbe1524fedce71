"""The value of a cell of a row, for the column that it stands in."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from t5x_like.core.protocols.data import Column
from t5x_like.data.corpora.corpus import CorpusError


def value(column: Column, cell: Any, *, where: str) -> Any:
    """The value of a cell that JSON, Parquet or a table gives.

    Args:
      column: says what the cell holds.
      cell: the cell; None for null.
      where: the place of the cell, for messages.

    Returns:
      A text ("" for null), the name of a class, or float32 of the column's shape.

    Raises:
      CorpusError: the cell holds something else.
    """
    if column.holds == "text":
        if cell is not None and not isinstance(cell, str):
            raise CorpusError(f"{where} is a {type(cell).__name__}, not a string")
        return cell or ""
    if column.holds == "label":
        return _label(cell, where=where)
    return _numbers(column, cell, where=where)


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


def _numbers(column: Column, cell: Any, *, where: str) -> np.ndarray:
    wanted = f"numbers of the shape {_shape(column)}"
    try:
        found = np.array(json.loads(cell) if isinstance(cell, str) else cell, np.float32)
    except (ValueError, TypeError, RecursionError) as error:
        raise CorpusError(f"{where} does not hold {wanted}: {error}") from error
    fits = found.ndim == len(column.shape) and all(
        size in (None, there) for size, there in zip(column.shape, found.shape, strict=True)
    )
    if not fits:
        raise CorpusError(f"{where} has the shape {list(found.shape)}, not {_shape(column)}")
    if not np.isfinite(found).all():
        raise CorpusError(f"{where} holds a number that is not finite, or is null: {cell!r:.60}")
    return found


def _shape(column: Column) -> str:
    return f"[{', '.join('any' if size is None else str(size) for size in column.shape)}]"
