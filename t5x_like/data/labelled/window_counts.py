"""The windows in which a model reads the texts of questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from t5x_like.core.protocols.data import Vocabulary
from t5x_like.data.labelled.rows import Rows
from t5x_like.objectives.parts.geometry import TextWindows


class WindowCounts(NamedTuple):
    """The questions of files, their windows, and the questions that are cut."""

    questions: int
    windows: int
    shortened: int


def window_counts(
    files: str | Sequence[str],
    fields: Mapping[str, str],
    vocabulary: Vocabulary,
    windows: TextWindows,
) -> WindowCounts:
    """The windows of the questions of labelled files.

    Args:
      files: the files.
      fields: the fields of `inputs`, the questions, and of `context`.
      vocabulary: makes tokens of them.
      windows: the division of texts.
    """
    rows = Rows(files)
    questions, contexts = (rows.cells(fields[name]) for name in ("inputs", "context"))
    several = [*dict.fromkeys(contexts)]
    sizes = dict(zip(several, map(len, vocabulary.encode_batch(several)), strict=True))
    asked = np.array([len(ids) for ids in vocabulary.encode_batch(questions)])
    counts = windows.counts(asked, np.array([sizes[text] for text in contexts]))
    return WindowCounts(len(rows), int(counts.sum()), int((asked > windows.asked).sum()))
