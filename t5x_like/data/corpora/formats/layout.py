"""The place of documents in the rows of files, and the values of a row by column."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from t5x_like.core.protocols.data import Column, text_columns
from t5x_like.core.spelling import nearest
from t5x_like.data.corpora.corpus import CorpusError
from t5x_like.data.corpora.formats import cells, field_paths


@dataclasses.dataclass(frozen=True)
class Layout:
    """The place of documents in a file: the separator of plain text, {column: field} of rows.

    `header` names the columns of tables whose first line does not.
    """

    fields: Mapping[Column, str]
    separator: str
    header: Sequence[str] = ()

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The names of the columns that hold text or words, as `text_columns` of them."""
        return text_columns(self.fields)

    def read(self, names: Collection[str]) -> list[str]:
        """The fields to read, of rows with these names: answers may have their places beside."""
        beside = {cells.STARTS} & {*names} if any(c.holds == "spans" for c in self.fields) else ()
        fields = (field_paths.base(field, names) for field in self.fields.values())
        return [*dict.fromkeys([*fields, *beside])]


def document(row: Mapping[str, Any], layout: Layout, *, place: str) -> dict[str, Any]:
    """The values of a row by column.

    Raises:
      CorpusError: a field is missing, or its cell is not of its column's kind.
    """
    check_fields(row, layout.fields.values(), place=place)
    document = {
        column.name: _value(column, row, field, where=f"{place}: field {field!r}")
        for column, field in layout.fields.items()
    }
    cells.check_row(document, layout.fields, where=place)
    return document


def _value(column: Column, row: Mapping[str, Any], field: str, *, where: str) -> Any:
    try:
        cell = cells.of_row(column, row, field)
    except ValueError as error:
        raise CorpusError(f"{where}: {error}") from error
    return cells.value(column, cell, where=where)


def check_fields(present: Collection[str], wanted: Collection[str], *, place: str) -> None:
    """Raises CorpusError where a wanted field is missing."""
    for field in wanted:
        if field_paths.base(field, present) not in present:
            raise CorpusError(
                f"{place} has no field {field!r}" + nearest(field, present, of="fields")
            )
