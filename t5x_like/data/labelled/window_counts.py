"""The windows in which a model reads long texts, and the texts of questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from t5x_like.core.protocols.data import Vocabulary
from t5x_like.data.cache import words
from t5x_like.data.labelled.rows import Rows
from t5x_like.objectives.parts.geometry import RecordWindows


class WindowCounts(NamedTuple):
    """The texts of files, their windows, those with several, and the questions that are cut."""

    texts: int
    windows: int
    divided: int
    shortened: int


def window_counts(
    files: str | Sequence[str],
    fields: Mapping[str, str],
    vocabulary: Vocabulary,
    geometry: RecordWindows,
    *,
    header: Sequence[str] = (),
) -> WindowCounts:
    """The windows of the texts of labelled files.

    Args:
      files: the files.
      fields: the field of each column that an objective reads.
      vocabulary: makes tokens of them.
      geometry: the division, and the columns of texts and questions.
      header: the names of the columns of tables whose first line does not have them.
    """
    rows = Rows(files, header=header)
    texts = sizes(rows.cells(fields[geometry.texts[0]]), vocabulary)
    asked = np.zeros_like(texts)
    if geometry.question is not None:
        asked = sizes(rows.cells(fields[geometry.question]), vocabulary)
    counts = geometry.windows.counts(asked, texts)
    divided, shortened = (counts > 1).sum(), (asked > geometry.windows.asked).sum()
    return WindowCounts(len(rows), int(counts.sum()), int(divided), int(shortened))


def sizes(cells: Sequence[Any], vocabulary: Vocabulary) -> np.ndarray:
    """The tokens of each text, or of each list of words, int64 [n]."""
    if isinstance(cells[0], str):
        several = [*dict.fromkeys(cells)]
        known = dict(zip(several, map(len, vocabulary.encode_batch(several)), strict=True))
        return np.array([known[text] for text in cells])
    return np.array([sum(map(len, words.encode(vocabulary, of_row))) for of_row in cells])
