"""A corpus whose rows have named fields, some of which are its columns."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, Self

from t5x_like.core.protocols.data import PAIRS, PLAIN_TEXT, Column, names
from t5x_like.data.corpora.corpus import Corpus


class NamedFields(Corpus):
    """A corpus that reads columns from the fields of rows.

    Args:
      columns: the columns of its documents; None for `PAIRS` if a row has both fields and `field`
        does not name another, otherwise for plain text.
      field: the field that holds plain text; None for `text`. {column: field} for columns whose
        fields have other names, such as {"inputs": "sentence"}.

    Raises:
      ValueError: `field` names the text of other columns than those of plain text.
    """

    def __init__(
        self, columns: Sequence[Column] | None, field: str | Mapping[str, str] | None
    ) -> None:
        if isinstance(field, str) and columns not in (None, PLAIN_TEXT):
            raise ValueError(
                f"field={field!r} is that of plain text: for other columns name the field of each, "
                "as in {'inputs': 'sentence'}"
            )
        self._columns = None if columns is None else tuple(columns)
        self._field = field

    @functools.cached_property
    def columns(self) -> tuple[Column, ...]:
        if self._columns is not None:
            return self._columns
        if isinstance(self._field, Mapping):
            return tuple(map(Column, self._field))
        return PAIRS if self._field is None and self._offers(PAIRS) else PLAIN_TEXT

    def with_columns(self, columns: Sequence[Column]) -> Self | None:
        """The same text read for other columns; None where its rows lack a field."""
        if not self._offers(columns):
            return None
        made = copy.copy(self)
        made._columns = tuple(columns)
        vars(made).pop("columns", None)
        return made

    @property
    def fields(self) -> dict[Column, str]:
        """The field of each column."""
        return {one: self._field_of(one, self.columns) for one in self.columns}

    @property
    def unread(self) -> tuple[str, ...]:
        read = self.fields.values()
        return tuple(name for name in self.present if name not in read)

    def _offers(self, columns: Sequence[Column]) -> bool:
        if not self.present:
            return tuple(columns) == PLAIN_TEXT
        return {self._field_of(one, columns) for one in columns} <= {*self.present}

    def _field_of(self, column: Column, columns: Sequence[Column]) -> str:
        if isinstance(self._field, Mapping):
            return self._field.get(column.name, column.name)
        return self._field or "text" if tuple(columns) == PLAIN_TEXT else column.name

    @property
    def reading(self) -> list[Any]:
        """JSON that decides its documents besides the text."""
        fields = {column.name: field for column, field in self.fields.items()}
        if self.text_columns == names(self.columns):
            return [fields]
        kinds = [dataclasses.astuple(one) for one in self.columns]
        return [fields, kinds, *([self.label_names] if self._given_names is not None else [])]
