"""A class of a text or of two."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import ClassVar, Literal

from t5x_like.core.protocols.data import Column
from t5x_like.data.labelled import columns, kind
from t5x_like.data.labelled.columns import Named
from t5x_like.data.labelled.kind import Content
from t5x_like.data.labelled.rows import Rows


class Classes:
    """Names, or whole numbers, of which each row has one."""

    name = "classes"
    what: ClassVar = "a class"
    holds: ClassVar[Literal["label", "labels"]] = "label"

    def fits(self, rows: Rows, named: Named) -> bool:
        """True: other kinds are asked first."""
        return True

    def content(self, rows: Rows, named: Named) -> Content:
        """The texts and how often each class occurs; raises CorpusError as `kind.counted` does."""
        texts, label = columns.texts_and_label(rows, named)
        rows.check_texts(texts)
        counts = kind.counted(self._names(rows, label), label, rows.files)
        return kind.of_texts(self.what, texts, label, counts)

    def check_held_out(self, rows: Rows, content: Content) -> None:
        """Raises CorpusError for a class that training never shows."""
        label = content.fields["label"]
        kind.check_known(self._names(rows, label), content.labels, label, rows.files)

    def _names(self, rows: Rows, label: str) -> Iterator[str]:
        column = Column(label, self.holds)
        return itertools.chain.from_iterable(map(column.parts, rows.values(label, column)))
