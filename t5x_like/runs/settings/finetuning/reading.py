"""How a run that fine-tunes reads its texts: in rows of which length, whole or in windows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from flax import nnx

from t5x_like.core.abilities import ReadsPackedRows, can
from t5x_like.data.labelled import packed_counts, window_counts
from t5x_like.data.labelled.labelled_files import Labelled, LabelledFiles
from t5x_like.data.labelled.window_counts import WindowCounts
from t5x_like.objectives.parts.geometry import RecordWindows
from t5x_like.objectives.supervised.labelled_rows import LabelledRows
from t5x_like.objectives.supervised.tags import Tags
from t5x_like.runs.settings.finetuning import text_to_text

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import Vocabulary
    from t5x_like.runs.settings.finetuning.finetuned_model import FineTunedModel

_DIVIDED = ("classes", "numbers", "several", "spans", "tags")
"""The kinds whose answers to windows are joined (`evaluation.label_metrics`)."""
_BEFORE_TEXTS = "prompt"
"""The method with virtual tokens before a row."""


class Reading(NamedTuple):
    """How texts become rows; None for the usual.

    Attributes:
      length: the tokens of a row.
      stride: the tokens from a window of a long text to the next.
      pieces: the pieces of a word that carry its tag, of `tags.PIECES`.
      pack: whether rows of training hold several texts.
    """

    length: int | None = None
    stride: int | None = None
    pieces: str | None = None
    pack: bool = False

    def check(self, kind: str) -> None:
        """Raises ValueError where a kind of label has no such settings."""
        if self.stride is not None and kind not in _DIVIDED:
            raise ValueError(
                f"a stride is that of windows of a text, and {kind} are not read in windows: leave "
                "out the stride"
            )
        if self.pieces is not None and kind != "tags":
            raise ValueError(f"pieces are those of words with tags (--kind tags), not of {kind}")
        if self.pack and kind == text_to_text.KIND:
            raise ValueError(
                "rows that hold several texts are for labels, and not for texts to write: leave "
                "out pack"
            )

    def check_model(self, model: FineTunedModel, method: str | None) -> None:
        """Raises ValueError where a model cannot read packed rows, and these are wanted."""
        if not self.pack:
            return
        if method == _BEFORE_TEXTS:
            raise ValueError(
                "a prompt is before the first text of a row, and others would not see it: leave "
                "out pack, or the method prompt"
            )
        abstract = nnx.eval_shape(lambda: model.make(rngs=nnx.Rngs(0)))
        if not can(abstract, ReadsPackedRows):
            raise ValueError(
                f"a {model.model_type} reads one text in a row: leave out pack, so that texts of "
                "like length share batches"
            )

    def check_length(self, objective: LabelledRows, tokens: int, model: FineTunedModel) -> None:
        """Raises ValueError where packed rows, for texts of so many tokens, are too long."""
        row = objective.packed_tokens({"inputs": tokens})
        if self.pack and model.max_tokens is not None and row > model.max_tokens:
            most = model.max_tokens * tokens // row
            raise ValueError(
                f"all choices of a text are in one packed row, which has {row} tokens for choices "
                f"of {tokens}, and a {model.model_type} reads rows of {model.max_tokens}: cut "
                f"choices with a length (--length) of at most {most}, or leave out pack"
            )

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
    """The rows of training and held-out files, as models read them, and lines about them.

    Attributes:
      train: those of training.
      held_out: those of held-out files; None where rows of training are held out.
      notes: the lines.
      unpacked: the rows of training files as evaluation reads them.
    """

    train: int
    held_out: int | None
    notes: Sequence[str]
    unpacked: int


def packed(
    unpacked: Rows,
    labelled: Labelled,
    files: LabelledFiles,
    geometry: Any,
    vocabulary: Vocabulary,
    *,
    length: int,
) -> Rows:
    """The rows of files whose texts share rows of `length` tokens in training."""
    count, share = packed_counts.packed_rows(
        labelled.train, files.fields, vocabulary, geometry, length=length, header=labelled.header
    )
    note = (
        f"{unpacked.train:,} rows of one text are packed into {count:,} of {length} tokens, of "
        f"which {share:.1%} are used."
    )
    return unpacked._replace(train=count, notes=[*unpacked.notes, note])


def rows(labelled: Labelled, files: LabelledFiles, geometry: Any, vocabulary: Vocabulary) -> Rows:
    """The rows of files: those of the files themselves, or windows of their texts."""
    if not isinstance(geometry, RecordWindows):
        return Rows(files.train, files.held_out, (), files.train)

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
    return Rows(train.windows, held_out, [note], train.windows)
