"""The rows of labelled files, in memory, and what is checked of their cells."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from t5x_like.core.protocols.data import Column
from t5x_like.core.spelling import nearest
from t5x_like.data.corpora.corpus import CorpusError
from t5x_like.data.corpora.formats import cells, field_paths, text_formats
from t5x_like.data.corpora.text_files import TextFiles
from t5x_like.data.samples.order import spread

_LOOKED_AT = 2_000


class Rows:
    """The rows of files.

    Attributes:
      files: the files as they were given.
      names: the names of the columns, without those that are set aside.
    """

    def __init__(
        self,
        files: str | Sequence[str],
        *,
        header: Sequence[str] = (),
        aside: Sequence[str] = (),
    ) -> None:
        """Reads files by path or glob.

        Args:
          files: the files.
          header: the names of the columns of tables whose first line is a row.
          aside: columns that are neither a text nor a label.

        Raises:
          CorpusError: there are none, they are damaged, or they have no rows.
        """
        self.files = files
        self._aside = aside
        paths = TextFiles(files, validation=0.0).files("train")
        read = functools.partial(text_formats.rows, header=header)
        self._rows = [*itertools.chain.from_iterable(map(read, paths))]
        if not self._rows:
            raise CorpusError(f"{files} has no rows")
        if len(only := [*self._rows[0]]) == 1 and (mark := re.search(r"[;\t|]", only[0])):
            raise CorpusError(
                f"{files} has one column, {only[0]!r:.60}: its cells seem to be separated by "
                f"{mark[0]!r}, and .csv files are read with commas, .tsv files with tabs"
            )

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(self._rows)

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name in self._rows[0] if name not in self._aside)

    def some(self) -> list[Mapping[str, Any]]:
        """Some rows, spread evenly."""
        return [self._rows[number] for number in spread(len(self), _LOOKED_AT)]

    def cells(self, field: str) -> list[Any]:
        """The cells of a column, or the parts of its lists; None where a row lacks them."""
        return [self.cell(row, field) for row in self]

    def cell(self, row: Mapping[str, Any], field: str) -> Any:
        """The cell of a row, as `field_paths.cell`; None where the row lacks it."""
        return field_paths.cell(row, field) if field_paths.base(field, row) in row else None

    def values(self, field: str, column: Column) -> Iterator[Any]:
        """The values of a column, as a cache has them; raises CorpusError for other cells."""
        for number, cell in enumerate(self.cells(field), start=1):
            yield cells.value(column, cell, where=f"{self.files}: {field!r} of row {number:,}")

    def check_column(self, field: str) -> None:
        """Raises CorpusError where there is no such column."""
        names = [*self._rows[0]]
        if field_paths.base(field, names) not in names:
            raise CorpusError(
                f"{self.files} has no column {field!r}" + nearest(field, names, of="columns")
            )

    def check_texts(self, fields: Sequence[str]) -> None:
        """Raises CorpusError where a text is empty, or is none."""
        for field in fields:
            for number, cell in enumerate(self.cells(field), start=1):
                if isinstance(cell, str) and cell.strip():
                    continue
                what = "is empty" if cell is None or isinstance(cell, str) else f"is {cell!r}"
                raise CorpusError(
                    f"{self.files}: the text {field!r} of row {number:,} {what}: leave the row "
                    "out, or give it a text"
                )
