"""A corpus whose rows have named fields, some of which are its columns."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping, Sequence
from typing import Any, Self

from t5x_like.core.protocols.data import PAIRS, PLAIN_TEXT, Column
from t5x_like.data.corpora.corpus import Corpus
from t5x_like.data.corpora.formats import field_paths


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
        other = copy.copy(self)
        other._columns = tuple(columns)
        vars(other).pop("columns", None)
        return other

    @property
    def fields(self) -> dict[Column, str]:
        """The field of each column."""
        return {column: self._field_of(column, self.columns) for column in self.columns}

    @property
    def unread(self) -> tuple[str, ...]:
        read = {field_paths.base(field, self.present) for field in self.fields.values()}
        return tuple(name for name in self.present if name not in read)

    def lacking(self, columns: Sequence[Column]) -> list[str]:
        """The fields of columns that no row has."""
        wanted = dict.fromkeys(self._field_of(column, columns) for column in columns)
        return [one for one in wanted if field_paths.base(one, self.present) not in self.present]

    def _offers(self, columns: Sequence[Column]) -> bool:
        if not self.present:
            return tuple(columns) == PLAIN_TEXT
        return not self.lacking(columns)

    def _field_of(self, column: Column, columns: Sequence[Column]) -> str:
        if column.holds == "characters" or (column.holds == "spans" and column.markers):
            column = next(other for other in columns if other.holds == "passage")
        if isinstance(self._field, Mapping):
            return self._field.get(column.name, column.name)
        return self._field or "text" if tuple(columns) == PLAIN_TEXT else column.name

    @property
    def reading(self) -> list[Any]:
        """JSON that decides its documents besides the text."""
        fields = {column.name: field for column, field in self.fields.items()}
        if all(column.holds == "text" for column in self.columns):
            return [fields]
        kinds = [
            (
                *(column.name, column.holds, column.shape),
                *(["BIO"] if column.as_bio else []),
                *(column.markers or ()),
            )
            for column in self.columns
        ]
        return [fields, kinds, *([self.label_names] if self._given_names is not None else [])]
