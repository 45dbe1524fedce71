"""The weights of labelled rows in the loss, a number in a column of each."""

from __future__ import annotations

import math

from t5x_like.data.corpora.corpus import CorpusError
from t5x_like.data.labelled import columns
from t5x_like.data.labelled.rows import Rows

_KINDS = ("classes", "several", "numbers", "choices", "tags")
"""The kinds of labels whose rows may have weights."""


def check(rows: Rows, field: str, kind: str) -> None:
    """Compares a column of weights with what a loss can read.

    Args:
      rows: the rows.
      field: the column.
      kind: the kind of label.

    Raises:
      CorpusError: rows of this kind have no weights, there is no such column, a cell is not a
        number that is 0 or more, or all are 0.
    """
    if kind not in _KINDS:
        raise CorpusError(
            f"weights of rows are for {', '.join(_KINDS)}, not for {kind}: leave out the column "
            f"{field!r} (--weight)"
        )
    rows.check_column(field)
    heaviest = 0.0
    for number, cell in enumerate(rows.cells(field), start=1):
        weight = None if isinstance(cell, bool) else columns.number(cell)
        if weight is None or not 0 <= weight < math.inf:
            raise CorpusError(
                f"{rows.files}: {field!r} of row {number:,} is {cell!r}: the weight of a row is a "
                "number, 0 or more"
            )
        heaviest = max(heaviest, weight)
    if heaviest == 0:
        raise CorpusError(
            f"{rows.files}: all weights in the column {field!r} are 0: there is nothing to learn"
        )
