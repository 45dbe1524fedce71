"""How a run that fine-tunes reads its texts: in rows of which length, whole or in windows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

from t5x_like.core.protocols.data import Vocabulary
from t5x_like.data.labelled import window_counts
from t5x_like.data.labelled.labelled_files import Labelled, LabelledFiles
from t5x_like.data.labelled.window_counts import WindowCounts
from t5x_like.objectives.parts.geometry import RecordWindows
from t5x_like.objectives.supervised.labelled_rows import LabelledRows
from t5x_like.objectives.supervised.tags import Tags

_DIVIDED = ("classes", "numbers", "several", "spans", "tags")
"""The kinds whose answers to windows are joined (`evaluation.label_metrics`)."""


class Reading(NamedTuple):
    """How texts become rows; None for the usual.

    Attributes:
      length: the tokens of a row.
      stride: the tokens from a window of a long text to the next.
      pieces: the pieces of a word that carry its tag, of `tags.PIECES`.
    """

    length: int | None = None
    stride: int | None = None
    pieces: str | None = None

    def check(self, kind: str) -> None:
        """Raises ValueError where a kind of label has no such settings."""
        if self.stride is not None and kind not in _DIVIDED:
            raise ValueError(
                f"a stride is that of windows of a text, and {kind} are not read in windows: leave "
                "out the stride"
            )
        if self.pieces is not None and kind != "tags":
            raise ValueError(f"pieces are those of words with tags (--kind tags), not of {kind}")

    def applied(self, objective: LabelledRows, labels: Sequence[str]) -> LabelledRows:
        """The objective with these settings; `labels` are in the order of their numbers.

        Raises:
          ValueError: there are no such pieces.
        """
        if self.pieces is not None:
            assert isinstance(objective, Tags)
            objective = objective.with_pieces(self.pieces, labels)
        if self.stride is not None:
            stride: dict[str, Any] = {"stride": self.stride}
            objective = dataclasses.replace(objective, **stride)
        return objective


class Rows(NamedTuple):
    """The rows of training and held-out files, as models read them, and lines about them."""

    train: int
    held_out: int | None
    notes: Sequence[str] = ()


def rows(labelled: Labelled, files: LabelledFiles, geometry: Any, vocabulary: Vocabulary) -> Rows:
    """The rows of files: those of the files themselves, or windows of their texts."""
    if not isinstance(geometry, RecordWindows):
        return Rows(files.train, files.held_out)

    def counted(paths: str | Sequence[str]) -> WindowCounts:
        return window_counts.window_counts(
            paths, files.fields, vocabulary, geometry, header=labelled.header
        )

    train = counted(labelled.train)
    held_out = None if labelled.dev is None else counted(labelled.dev).windows
    if geometry.question is None:
        note = (
            f"{train.texts:,} texts are read in {train.windows:,} windows; {train.divided:,} of "
            "them have several."
        )
    else:
        note = (
            f"{train.texts:,} questions are read in {train.windows:,} windows; "
            f"{train.shortened:,} of them are longer than {geometry.windows.asked} tokens and are "
            "cut."
        )
    return Rows(train.windows, held_out, [note])
