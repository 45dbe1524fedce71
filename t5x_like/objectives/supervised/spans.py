"""Answers as spans of a text: a model reads a question and a text (BERT, sections 4.2 and 4.3)."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from t5x_like.core.protocols.data import Column, FeatureSpec
from t5x_like.objectives.noise import masking
from t5x_like.objectives.parts.geometry import RecordWindows
from t5x_like.objectives.supervised import frames, windows
from t5x_like.objectives.supervised.frames import Frame
from t5x_like.objectives.supervised.labelled_rows import LabelledRows

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import TokenIds

_NO_ANSWER = ("cls", "begin")
_NUMBERS = ("start_positions", "end_positions", "null_position", "text_position")


@dataclasses.dataclass(frozen=True)
class Spans(LabelledRows):
    """Rows "[CLS] question [SEP] window [SEP]", and where the first answer starts and ends.

    A text that is too long is read in windows, each a row. A window without the whole answer, and
    a question without an answer, have the place of [CLS], or of the token that stands for it.

    Attributes:
      template: the special tokens around a question and a text.
      context_first: whether the text is A and the question is B (XLNet).
      no_answer: the role of the special token whose place is that of no answer; None for [CLS] or
        <s>, or else the first token.
      question_tokens: the most tokens of a question.
      stride: the tokens from the beginning of a window to that of the next.
    """

    template: str = frames.PAIR
    context_first: bool = False
    no_answer: str | None = None
    question_tokens: int = windows.QUESTION_TOKENS
    stride: int = windows.STRIDE

    reads: ClassVar = (
        Column("inputs"),
        Column("context", "passage"),
        Column("characters", "characters"),
        Column("answers", "spans"),
    )
    answers: ClassVar = "spans"
    best_metric: ClassVar = "f1"
    measures: ClassVar = ("span_scores",)
    most_tokens: ClassVar = 384

    @classmethod
    def of_family(
        cls, frame: Frame, columns: Collection[str], labels: Collection[str], **settings: Any
    ) -> Self:
        """The objective with the special tokens of a family."""
        del columns, labels
        return cls(
            template=frame.pair,
            token_types=frame.token_types,
            context_first=frame.context_first,
            no_answer=frame.no_answer,
            **settings,
        )

    def geometry(self, lengths: Mapping[str, int]) -> RecordWindows:
        """A sample for each window of each row.

        Raises:
          ValueError: `lengths` has no inputs, or they are too short.
        """
        room = masking.text_room(lengths, self.specials, texts=2)
        division = windows.Windows(room, self.question_tokens, self.stride)
        return RecordWindows(
            division, texts=("context",), question="inputs", specials=self.specials
        )

    def features(self, lengths: Mapping[str, int]) -> dict[str, FeatureSpec]:
        """Those of a row, and numbers: of the answer, of [CLS], of the text's first token."""
        return {**self.row_features(lengths), **dict.fromkeys(_NUMBERS, FeatureSpec(None))}

    def __call__(
        self, sample: Mapping[str, np.ndarray], rng: np.random.Generator, ids: TokenIds
    ) -> dict[str, np.ndarray]:
        """Frames `sample["inputs"]` and the window `sample["context"]` (int [n]).

        `sample["window"]` has the window's first token in the text and the one after its last,
        `sample["answers"]` [answers, 4] is as a cache keeps spans. `start_positions` and
        `end_positions` are -1, which is not learned, where the vocabulary leaves nothing of the
        answer.
        """
        del rng
        names = ("B", "A") if self.context_first else ("A", "B")
        texts = dict(zip(names, (sample["inputs"], sample["context"]), strict=True))
        roles = _NO_ANSWER if self.no_answer is None else (self.no_answer,)
        null, begins, at = 0, 0, 0
        for role, tokens, _ in frames.parts(self.template, texts, ids):
            if role in roles:
                null = at
            elif role == names[1]:
                begins = at
            at += len(tokens)
        numbers = (*self._positions(sample, null, begins), null, begins)
        of_answer = zip(_NUMBERS, np.array(numbers, np.int32), strict=True)
        return {**self.row(texts, ids), **dict(of_answer)}

    def _positions(
        self, sample: Mapping[str, np.ndarray], null: int, begins: int
    ) -> tuple[int, int]:
        """Where the first answer starts and ends in the row."""
        if not len(sample["answers"]):
            return null, null
        first, last = sample["answers"][0, :2].tolist()
        begin, end = sample["window"].tolist()
        if first < 0:
            return -1, -1
        if begin <= first and last < end:
            return first - begin + begins, last - begin + begins
        return null, null


PRESETS = {"spans": Spans()}
SUMMARIES = {
    "spans": "find the answer to a question in a text; for rows with inputs and context (BERT)"
}
