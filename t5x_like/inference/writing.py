"""Writes texts: answers of an encoder-decoder, continuations of a language model."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from t5x_like.core.protocols.data import TokenIds
from t5x_like.inference import text_rows
from t5x_like.inference.decoding.decode import decode
from t5x_like.inference.decoding.settings import Decoding, Specials
from t5x_like.inference.model_on_mesh import ModelOnMesh
from t5x_like.inference.text_rows import Framing, Row

_NONE = -1


class Written(NamedTuple):
    """An answer's tokens, without its end and what follows, and its score (`Answers.scores`)."""

    tokens: list[int]
    score: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Writer:
    """Writes answers to rows of tokens, a batch of like length at a time.

    Attributes:
      model: an encoder-decoder, or a decoder alone, which continues a row.
      ids: the special ids of its vocabulary.
      start: the id that a decoder reads first; None where a decoder alone begins with the row.
      prefix: whether a decoder alone sees the row from both sides, as a prefix language model does.
      decoding: the settings.
      batch_size: the rows of a batch; the mesh may need some more.
      max_positions: the most tokens of a row, with its answer if a decoder alone reads it; None
        for any number.
    """

    model: ModelOnMesh
    ids: TokenIds
    start: int | None
    decoding: Decoding
    prefix: bool = False
    batch_size: int = text_rows.ROWS
    max_positions: int | None = None

    @property
    def alone(self) -> bool:
        """Whether the model has no encoder."""
        return not self.model.model.reads_apart

    def __call__(self, rows: Sequence[Sequence[int]]) -> list[list[Written]]:
        """The answers to each row, the best first."""
        if self.alone and self.start is not None:
            rows = [[self.start, *row] for row in rows]
        room = self.max_positions
        if self.alone and room is not None:
            room -= self.decoding.max_new_tokens
        # Padding is not told by its id, which is a token of text in some vocabularies.
        specials = Specials(
            -1 if self.ids.eos is None else self.ids.eos, _NONE, self.ids.vocab_size
        )
        row_answers: list[list[Written]] = [[]] * len(rows)
        size = self.model.rows(self.batch_size)
        for batch in text_rows.batches(
            rows, pad=self.ids.pad, size=size, max_length=room, left=self.alone
        ):
            answers = self.model(
                decode, self._read(batch), decoding=self.decoding, specials=specials
            )
            tokens, scores = np.asarray(answers.tokens), np.asarray(answers.scores)
            for place, n in enumerate(batch.numbers):
                row_answers[n] = [
                    Written(self._text(ids), float(score))
                    for ids, score in zip(tokens[place], scores[place], strict=True)
                ]
        return row_answers

    def _read(self, batch: text_rows.Batch) -> dict[str, np.ndarray]:
        if not self.alone:
            start = self.ids.pad if self.start is None else self.start
            first = np.full((len(batch.tokens), 1), start, np.int32)
            return {**batch.of_encoder, "decoder_input_tokens": first}
        seen = {"decoder_causal_attention": batch.counts} if self.prefix else {}
        return {
            "decoder_input_tokens": batch.tokens,
            "decoder_segment_ids": batch.counts,
            **seen,
        }

    def _text(self, tokens: np.ndarray) -> list[int]:
        ends = np.flatnonzero((tokens == self.ids.eos) | (tokens == _NONE))
        return tokens[: ends[0] if len(ends) else None].tolist()


@dataclasses.dataclass(frozen=True)
class Writing:
    """The fields of all predictors whose model writes: the model, and how it reads texts."""

    writer: Writer
    framing: Framing

    @property
    def batch_size(self) -> int:
        return self.writer.batch_size


@dataclasses.dataclass(frozen=True)
class Answering(Writing):
    """The predictor of models that write: `inputs` to `prediction` (`predictions.Predictor`)."""

    def check(self, record: Mapping[str, Any]) -> None:
        """Raises ValueError where there is nothing to continue."""
        if not record["inputs"].strip():
            self._row(record["inputs"])

    def __call__(self, records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """`prediction`, or with several answers `predictions` and their `scores`."""
        rows = [self._row(record["inputs"]) for record in records]
        answers = self.writer([row.tokens for row in rows])
        return [self._answer(row, written) for row, written in zip(rows, answers, strict=True)]

    def _row(self, text: str) -> Row:
        row = self.framing.text(text)
        # A model without an encoder needs something to continue.
        if row.tokens or self.writer.start is not None:
            return row
        begun = text_rows.beginning(self.framing.ids)
        if not begun:
            raise ValueError(
                "there is no text to continue, and this vocabulary has no token that begins one: "
                "give some text"
            )
        return Row(begun, False, [0])

    def _answer(self, row: Row, written: Sequence[Written]) -> dict[str, Any]:
        texts = [self.framing.vocabulary.decode(answer.tokens) for answer in written]
        truncated = {"truncated": True} if row.truncated else {}
        if len(texts) == 1:
            return {"prediction": texts[0]} | truncated
        return {"predictions": texts, "scores": [answer.score for answer in written]} | truncated
