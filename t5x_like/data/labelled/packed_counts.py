"""The rows that the texts of labelled files fill where rows hold several texts."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from t5x_like.core.protocols.data import Vocabulary
from t5x_like.data.labelled.rows import Rows
from t5x_like.data.labelled.window_counts import sizes
from t5x_like.data.samples.packing import best_fit
from t5x_like.objectives.parts.geometry import PerRecord, RecordWindows

_OF_WORDS = {"tags": "words"}
"""Columns that have as many values as another has tokens."""


def packed_rows(
    files: str | Sequence[str],
    fields: Mapping[str, str],
    vocabulary: Vocabulary,
    geometry: PerRecord | RecordWindows,
    *,
    length: int,
    header: Sequence[str] = (),
) -> tuple[int, float]:
    """How many rows labelled files fill, and the share of their places that hold tokens.

    Args:
      files: the files.
      fields: the field of each column that an objective reads.
      vocabulary: makes tokens of them.
      geometry: cuts or divides the texts.
      length: the tokens of a row.
      header: the names of the columns of tables whose first line does not have them.
    """
    rows = Rows(files, header=header)
    if isinstance(geometry, RecordWindows):
        columns = (*geometry.texts, *([geometry.question] if geometry.question else []))
    else:
        groups = [*geometry.groups, geometry.pair or (), tuple(geometry.room)]
        columns = tuple(dict.fromkeys(itertools.chain(*groups)))
    of_columns = {
        name: sizes(["" if cell is None else cell for cell in rows.cells(fields[name])], vocabulary)
        for name in columns
        if name not in _OF_WORDS
    }
    offsets = {
        name: np.cumsum([0, *of_columns[_OF_WORDS.get(name, name)].tolist()]) for name in columns
    }
    tokens = np.minimum(geometry.packed_tokens(offsets), length)
    count = sum(1 for _ in best_fit([tokens[None]], [length]))
    return count, float(tokens.sum()) / (count * length)
