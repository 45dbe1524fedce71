"""Several classes of a text or of two at once."""

from __future__ import annotations

from typing import ClassVar

from t5x_like.data.labelled import columns
from t5x_like.data.labelled.columns import Named
from t5x_like.data.labelled.kinds.classes import Classes
from t5x_like.data.labelled.rows import Rows


class Several(Classes):
    """Lists of names, of which a row has none, one or many."""

    name = "several"
    what: ClassVar = "several classes at once"
    holds: ClassVar = "labels"

    def fits(self, rows: Rows, named: Named) -> bool:
        """Whether all labels are lists, which tables write as JSON."""
        _, label = columns.texts_and_label(rows, named)
        return all(columns.size(cell) is not None for cell in rows.cells(label))
