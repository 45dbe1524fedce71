"""Answers of models with a task's head: classes, numbers, tags, spans, choices.

Suffixes: B batch, W windows, L length, C classes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import jax
import numpy as np

from t5x_like.core.abilities import AnswersTask
from t5x_like.data.cache import words
from t5x_like.inference import text_rows
from t5x_like.inference.heads import joined_windows, n_best, span_answers
from t5x_like.inference.heads.n_best import Ends, SearchedEnds
from t5x_like.inference.heads.span_answers import Asked, Reading
from t5x_like.inference.heads.text_windows import ReadText, TextReading
from t5x_like.inference.model_on_mesh import ModelOnMesh
from t5x_like.inference.text_rows import Framing, Row

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch

Kind = Literal[
    "classes", "several", "numbers", "ordered", "tags", "spans", "searched spans", "choices"
]
"""The kinds of answers of heads. Spans are searched where the end depends on the start (XLNet)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadAnswers:
    """The predictor of models with a head (`predictions.Predictor`).

    Attributes:
      model: a body and a head, with `logits`.
      framing: of texts. With `inputs2`, or `context` for spans, two texts are read.
      kind: what the head says.
      labels: the names of the classes; where there are none, their numbers.
      k: how many classes get a probability, the likeliest first; None for all, in their order.
      class_threshold: of several classes, the least probability of those that are said; None: 1/2.
      temperature: the number that the log-probabilities of classes are divided by.
      batch_size: the rows of a batch.
      reading: how texts are read.
      questions: how questions and texts are read, for spans.
    """

    model: ModelOnMesh
    framing: Framing
    kind: Kind
    labels: Sequence[str] = ()
    k: int | None = None
    class_threshold: float | None = None
    temperature: float = 1.0
    batch_size: int = text_rows.ROWS
    reading: TextReading
    questions: Reading | None = None

    def check(self, record: Mapping[str, Any]) -> None:
        """Raises ValueError where a record lacks what the head needs."""
        inputs = record["inputs"]
        if isinstance(inputs, list) and not (self.kind == "tags" and _are_words(inputs)):
            raise ValueError(
                f"this model answers with {self.kind} of a text; `inputs` may be a list, of texts "
                "that are words, where it answers with tags"
            )
        if "spans" in self.kind and not isinstance(record.get("context"), str):
            raise ValueError(
                "this model finds an answer in a text: give JSON lines "
                '{"inputs": "the question", "context": "the text"}'
            )
        choices = record.get("choices")
        if self.kind == "choices" and not (isinstance(choices, list) and choices):
            raise ValueError(
                'this model chooses: give JSON lines {"inputs": ..., "choices": ["...", "..."]}'
            )

    def __call__(self, records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The answer of the head for each record.

        It has `label` (of ordered classes the median) and `probabilities` for classes, `labels`
        (those of at least the threshold) and `probabilities` for several classes, `value`, `words`
        and their `tags` (None where the row was too long for a word), `answer` with its `score` and
        that of `no_answer`, or `choice`, its `number` and all `probabilities`. Of a text that is
        read in windows, probabilities and values are means.
        """
        if self.kind == "choices":
            return self._choices(records)
        if self.questions is not None:
            vocabulary = self.framing.vocabulary
            return span_answers.answers(records, self.questions, vocabulary, self._ends)
        texts = [self._read_text(record) for record in records]
        rows = [row for text in texts for row in text.rows]
        beside = [
            of_row
            for record, text in zip(records, texts, strict=True)
            for of_row in self._beside(record, text)
        ]
        row_logits = iter(self.logits(rows, beside))
        say = {
            "classes": self._class,
            "several": self._several,
            "ordered": self._ordered,
            "numbers": self._number,
        }.get(self.kind)
        answers = []
        for record, text in zip(records, texts, strict=True):
            logits = [next(row_logits) for _ in text.rows]
            answer = say(logits) if say else self._tags(record, text, logits)
            cut = any(row.truncated for row in text.rows)
            answers.append(answer | ({"truncated": True} if cut else {}))
        return answers

    def _read_text(self, record: Mapping[str, Any]) -> ReadText:
        """The rows of a text, or of two; a model of tags reads words."""
        inputs, second = record["inputs"], record.get("inputs2")
        if self.kind == "tags":
            return self.reading.read(_joined(self._encoded(record)).tolist(), self.framing)
        if second is not None:
            return ReadText([self.framing.text(inputs, second)], [(0, 0)])
        return self.reading.read(self.framing.vocabulary.encode(inputs), self.framing)

    def _beside(self, record: Mapping[str, Any], text: ReadText) -> list[Mapping[str, np.ndarray]]:
        """What a model of tags reads besides the tokens of each row."""
        if self.kind != "tags":
            return [{} for _ in text.rows]
        starts = words.starts(self._encoded(record))
        return [
            self.reading.tags.words(starts[begin:end], len(row.tokens), self.framing.ids)
            for row, (begin, end) in zip(text.rows, text.bounds, strict=True)
        ]

    def logits(
        self, rows: Sequence[Row], beside: Sequence[Mapping[str, np.ndarray]] | None = None
    ) -> list[Any]:
        """The head's answers to each row: logits [C], or [L, C] for tags and spans.

        Args:
          rows: the rows.
          beside: int32 arrays [tokens] by name that the model reads besides, of each row.
        """
        answers: list[Any] = [None] * len(rows)
        if not all(row.tokens for row in rows):
            raise ValueError(
                "a text is empty, and this model puts no token beside it: leave it out"
            )
        for batch in self.framing.batches(rows, self.model.rows(self.batch_size)):
            read = dict(batch.of_encoder)
            for place, n in enumerate(batch.numbers):
                for name, values in (beside[n] if beside else {}).items():
                    read.setdefault(name, np.zeros_like(batch.tokens))[place, : len(values)] = (
                        values
                    )
            arrays = jax.tree.map(np.asarray, self.model(_answers, read))
            for place, n in enumerate(batch.numbers):
                answers[n] = jax.tree.map(lambda x, place=place: x[place], arrays)
        return answers

    def _encoded(self, record: Mapping[str, Any]) -> list[np.ndarray]:
        """The tokens of each word."""
        return words.encode(self.framing.vocabulary, _words(record))

    def _class(self, logits_WC: Sequence[np.ndarray]) -> dict[str, Any]:
        p_C = joined_windows.mean_of_classes(logits_WC)
        if self.temperature != 1:
            p_C = joined_windows.softmax(np.log(np.maximum(p_C, 1e-300)) / self.temperature)
        shown = range(len(p_C)) if self.k is None else np.argsort(-p_C, kind="stable")
        chances = {self._label(int(i)): float(p_C[i]) for i in shown[: self.k]}
        return {"label": self._label(int(p_C.argmax())), "probabilities": chances}

    def _several(self, logits_WC: Sequence[np.ndarray]) -> dict[str, Any]:
        p_WC = 1 / (1 + np.exp(-np.stack(logits_WC).astype(np.float64)))
        chances = {self._label(number): float(p) for number, p in enumerate(p_WC.mean(axis=0))}
        least = 0.5 if self.class_threshold is None else self.class_threshold
        return {
            "labels": [name for name, p in chances.items() if p >= least],
            "probabilities": chances,
        }

    def _ordered(self, logits_WC: Sequence[np.ndarray]) -> dict[str, Any]:
        """The class at which the probabilities, from the lowest class on, come to 1/2."""
        p_C = joined_windows.mean_of_classes(logits_WC)
        median = int((np.cumsum(p_C)[:-1] < 0.5).sum())
        return self._class(logits_WC) | {"label": self._label(median)}

    def _number(self, logits_W1: Sequence[np.ndarray]) -> dict[str, Any]:
        return {"value": float(np.mean([logits[0] for logits in logits_W1]))}

    def _tags(
        self, record: Mapping[str, Any], text: ReadText, logits_WLC: Sequence[np.ndarray]
    ) -> dict[str, Any]:
        """The words and the tag of each, from the window in which it has most context."""
        starts = words.starts(self._encoded(record))
        asked = joined_windows.words_asked(self.reading.tags, text.bounds, starts, self.framing.ids)
        tags: list[str | None] = [None] * int(starts.sum())
        for (numbers, places), logits_LC in zip(asked, logits_WLC, strict=True):
            for number, tag in zip(numbers, logits_LC[places].argmax(axis=-1), strict=True):
                tags[number] = self._label(int(tag))
        return {"words": _words(record), "tags": tags}

    def _ends(self, asked: Sequence[Asked]) -> list[Ends | SearchedEnds]:
        """The likeliest spans of windows."""
        rows = [row for row, _ in asked]
        if self.kind == "spans":
            return [
                n_best.ends(logits_L2[: len(row.tokens)], int(features["null_position"]))
                for logits_L2, (row, features) in zip(self.logits(rows), asked, strict=True)
            ]
        masks = [{"answer_mask": features["answer_mask"]} for _, features in asked]
        return [n_best.searched_ends(of_row) for of_row in self.logits(rows, masks)]

    def _choices(self, records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        rows = [
            self.framing.text(record["inputs"], choice)
            for record in records
            for choice in record["choices"]
        ]
        logits = iter(self.logits(rows))
        answers = []
        for record in records:
            chances = joined_windows.softmax(np.array([next(logits)[0] for _ in record["choices"]]))
            best = int(chances.argmax())
            choice = {"choice": record["choices"][best], "number": best}
            answers.append(choice | {"probabilities": chances.tolist()})
        return answers

    def _label(self, number: int) -> str:
        return self.labels[number] if number < len(self.labels) else str(number)


def _are_words(inputs: Sequence[Any]) -> bool:
    return bool(inputs) and all(isinstance(word, str) for word in inputs)


def _words(record: Mapping[str, Any]) -> list[str]:
    """The words of a record: a list, or a text that is split at white space."""
    inputs: str | list[str] = record["inputs"]
    return inputs.split() if isinstance(inputs, str) else inputs


def _joined(tokens: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.zeros(0, np.int32), *tokens])


@jax.jit
def _answers(model: AnswersTask, batch: Batch) -> Any:
    return model.answers(batch)
