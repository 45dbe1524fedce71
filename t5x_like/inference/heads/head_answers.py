"""Answers of models with a task's head: classes, numbers, tags, spans, choices.

Suffixes: B batch, L length, C classes.
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
from t5x_like.inference.heads import n_best, span_answers
from t5x_like.inference.heads.span_answers import Reading
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
      alone: whether the body is a decoder alone.
      batch_size: the rows of a batch.
      reading: how questions and texts are read, for spans.
    """

    model: ModelOnMesh
    framing: Framing
    kind: Kind
    labels: Sequence[str] = ()
    k: int | None = None
    alone: bool = False
    batch_size: int = text_rows.ROWS
    reading: Reading | None = None

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
        (those of at least 1/2) and `probabilities` for several classes, `value`, `tokens` and their
        `tags`, `answer` with its `score` and that of `no_answer`, or `choice`, its `number` and all
        `probabilities`. Where
        `inputs` are a list of words, `tags` has one for each, None where the row was too long for
        the word.
        """
        if self.kind == "choices":
            return self._choices(records)
        if self.kind == "searched spans":
            return self._searched(records)
        if self.reading is not None:
            vocabulary = self.framing.vocabulary
            return span_answers.answers(records, self.reading, vocabulary, self._logits)
        rows = [self._row(record["inputs"], record.get("inputs2")) for record in records]
        say = {
            "classes": self._class,
            "several": self._several,
            "ordered": self._ordered,
            "numbers": lambda row, logits: {"value": float(logits[0])},
            "tags": self._tags,
        }[self.kind]
        answers = []
        for record, row, logits in zip(records, rows, self._logits(rows), strict=True):
            if isinstance(record["inputs"], list):
                answer = self._of_words(record["inputs"], row, logits)
            else:
                answer = say(row, logits)
            answers.append(answer | ({"truncated": True} if row.truncated else {}))
        return answers

    def _row(self, inputs: str | list[str], second: str | None) -> Row:
        if isinstance(inputs, str):
            return self.framing.text(inputs, second)
        tokens = np.concatenate(words.encode(self.framing.vocabulary, inputs))
        return self.framing.row(tokens.tolist())

    def _logits(self, rows: Sequence[Row]) -> list[np.ndarray]:
        """The head's logits of each row: [C], or [L, C] for tags and spans."""
        row_logits: list[np.ndarray] = [np.zeros(0)] * len(rows)
        for batch in self.framing.batches(rows, self.model.rows(self.batch_size)):
            logits = np.asarray(self.model(_answers, self._read(batch)))
            for place, n in enumerate(batch.numbers):
                row_logits[n] = logits[place]
        return row_logits

    def _read(self, batch: text_rows.Batch) -> dict[str, np.ndarray]:
        if self.alone:
            return {"decoder_input_tokens": batch.tokens, **batch.of_types}
        return batch.of_encoder

    def _class(self, row: Row, logits_C: np.ndarray) -> dict[str, Any]:
        shown = range(len(logits_C)) if self.k is None else np.argsort(-logits_C, kind="stable")
        p_C = _softmax(logits_C)
        chances = {self._label(int(i)): float(p_C[i]) for i in shown[: self.k]}
        return {"label": self._label(int(logits_C.argmax())), "probabilities": chances}

    def _several(self, row: Row, logits_C: np.ndarray) -> dict[str, Any]:
        p_C = 1 / (1 + np.exp(-logits_C.astype(np.float64)))
        chances = {self._label(number): float(p) for number, p in enumerate(p_C)}
        return {
            "labels": [name for name, p in chances.items() if p >= 0.5],
            "probabilities": chances,
        }

    def _ordered(self, row: Row, log_p_C: np.ndarray) -> dict[str, Any]:
        """The class at which the probabilities, from the lowest class on, come to 1/2."""
        answer = self._class(row, log_p_C)
        median = int((np.cumsum(_softmax(log_p_C))[:-1] < 0.5).sum())
        return answer | {"label": self._label(median)}

    def _tags(self, row: Row, logits_LC: np.ndarray) -> dict[str, Any]:
        piece = self.framing.vocabulary.piece
        tagged = [
            (piece(token), self._label(int(tag)))
            for token, tag in zip(row.tokens, logits_LC.argmax(axis=-1), strict=False)
            if self.framing.is_text(token)
        ]
        return {"tokens": [token for token, _ in tagged], "tags": [tag for _, tag in tagged]}

    def _of_words(self, inputs: Sequence[str], row: Row, logits_LC: np.ndarray) -> dict[str, Any]:
        """The tag of each word's first token."""
        is_first = words.starts(words.encode(self.framing.vocabulary, inputs))
        of_text = [at for at, token in enumerate(row.tokens) if self.framing.is_text(token)]
        tags: list[str | None] = [None] * len(inputs)
        first = [at for at, begins in zip(of_text, is_first, strict=False) if begins]
        tags[: len(first)] = [self._label(int(logits_LC[at].argmax())) for at in first]
        return {"tags": tags}

    def _places(self, row: Row) -> list[int]:
        """The places of the second text's tokens."""
        is_text = self.framing.is_text
        return [at for at in range(row.second, len(row.tokens)) if is_text(row.tokens[at])]

    def _searched(self, records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The likeliest of the spans that the head proposes, and the chance of no answer."""
        rows = [self.framing.text(record["inputs"], record["context"]) for record in records]
        answers: list[dict[str, Any]] = [{}] * len(rows)
        for batch in self.framing.batches(rows, self.model.rows(self.batch_size)):
            read = self._read(batch)
            read["answer_mask"] = allowed = np.zeros_like(batch.tokens)
            for place, n in enumerate(batch.numbers):
                allowed[place, self._places(rows[n])] = 1
            starts, start_p, ends, end_p, logit = map(np.asarray, self.model(_answers, read))
            for place, n in enumerate(batch.numbers):
                first, last = starts[place][:, None], ends[place]
                good = (first <= last) & (last < first + n_best.LONGEST)
                chances = np.where(good, start_p[place][:, None] * end_p[place], 0)
                s, e = np.unravel_index(int(chances.argmax()), chances.shape)
                tokens = rows[n].tokens[int(starts[place, s]) : int(last[s, e]) + 1]
                answers[n] = {
                    "answer": self.framing.vocabulary.decode(tokens),
                    "score": float(chances[s, e]),
                    "unanswerable": float(1 / (1 + np.exp(-logit[place]))),
                } | ({"truncated": True} if rows[n].truncated else {})
        return answers

    def _choices(self, records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        rows = [
            self.framing.text(record["inputs"], choice)
            for record in records
            for choice in record["choices"]
        ]
        logits = iter(self._logits(rows))
        answers = []
        for record in records:
            chances = _softmax(np.array([next(logits)[0] for _ in record["choices"]]))
            best = int(chances.argmax())
            choice = {"choice": record["choices"][best], "number": best}
            answers.append(choice | {"probabilities": chances.tolist()})
        return answers

    def _label(self, number: int) -> str:
        return self.labels[number] if number < len(self.labels) else str(number)


def _are_words(inputs: Sequence[Any]) -> bool:
    return bool(inputs) and all(isinstance(word, str) for word in inputs)


@jax.jit
def _answers(model: AnswersTask, batch: Batch) -> Any:
    return model.answers(batch)


def _softmax(logits: np.ndarray) -> np.ndarray:
    """Float64, over the last axis."""
    shares = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
    return shares / shares.sum(axis=-1, keepdims=True)
