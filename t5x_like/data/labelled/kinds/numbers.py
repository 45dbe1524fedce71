"""A number for a text or for two."""

from __future__ import annotations

from t5x_like.data.corpora.corpus import CorpusError
from t5x_like.data.labelled import columns, kind
from t5x_like.data.labelled.columns import Named
from t5x_like.data.labelled.kind import Content
from t5x_like.data.labelled.rows import Rows


class Numbers:
    """Numbers that are not all whole: whole ones may be the names of classes."""

    name = "numbers"

    def fits(self, rows: Rows, named: Named) -> bool:
        """Whether all labels are numbers, and not all whole.

        Raises:
          CorpusError: all are whole and some are written as 1.0.
        """
        _, label = columns.texts_and_label(rows, named)
        cells = rows.cells(label)
        numbers = [None if isinstance(cell, bool) else columns.number(cell) for cell in cells]
        if any(number is None for number in numbers):
            return False
        if any(number is not None and not number.is_integer() for number in numbers):
            return True
        if any(
            isinstance(cell, float) or (isinstance(cell, str) and "." in cell) for cell in cells
        ):
            shown = ", ".join(sorted({str(cell) for cell in cells})[:4])
            raise CorpusError(
                f"{rows.files}: the column {label!r} holds {shown}: say whether these are names of "
                "classes (--kind classes) or numbers (--kind numbers)"
            )
        return False

    def content(self, rows: Rows, named: Named) -> Content:
        """The texts and the number; raises CorpusError where they cannot be found, or are empty."""
        texts, label = columns.texts_and_label(rows, named)
        rows.check_texts(texts)
        return kind.of_texts("a number", texts, label)

    def check_held_out(self, rows: Rows, content: Content) -> None:
        """Nothing: the cache checks that cells are numbers."""
