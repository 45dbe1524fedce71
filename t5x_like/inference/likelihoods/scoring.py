"""Predictors of likelihoods: of given texts, and of the best of given choices."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from t5x_like.inference import text_rows
from t5x_like.inference.likelihoods.blank_scorer import BlankScorer
from t5x_like.inference.likelihoods.likelihood import Likelihood, SpanScorer
from t5x_like.inference.likelihoods.masked_scorer import MaskedScorer
from t5x_like.inference.likelihoods.target_scorer import Pair, TargetScorer
from t5x_like.inference.text_rows import Framing


@dataclasses.dataclass(frozen=True)
class Scoring:
    """The predictor of log-likelihoods of given texts (`predictions.Predictor`).

    Attributes:
      score: turns pairs, or rows for a model that only reads, into numbers.
      framing: of inputs.
      targets: of targets, and of the text where a decoder alone is given no target; None for a
        model that only reads one text.
      blanks: gives the likelihood of a text alone, where an encoder-decoder is given no target;
        None where it cannot.
      batch_size: the rows of a batch.
    """

    score: TargetScorer | MaskedScorer
    framing: Framing
    targets: Framing | None
    blanks: BlankScorer | None = None
    batch_size: int = text_rows.ROWS

    @property
    def of_spans(self) -> SpanScorer | None:
        """What says how likely a part of a text is; None where the model gives targets alone."""
        if isinstance(self.score, TargetScorer) and not self.score.alone:
            return self.blanks
        return self.score

    def check(self, record: Mapping[str, Any]) -> None:
        """Raises ValueError where a target is missing or no text; a decoder alone needs none."""
        needed = self.targets is not None and ("targets" in record or self.of_spans is None)
        if needed and not isinstance(record.get("targets"), str):
            raise ValueError(
                "a log-likelihood needs inputs and targets: give JSON lines "
                '{"inputs": ..., "targets": ...} or a .tsv with these columns'
            )
        if isinstance(self.score, TargetScorer) and not self._is_filled(record):
            self.score.check(self._row(record)[0])

    def __call__(self, records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """`log_likelihood` in nats, and the number of `target_tokens` that it sums over."""
        rows = [None if self._is_filled(record) else self._row(record) for record in records]
        given = iter(self.score([row for row, _ in filter(None, rows)]))
        texts = [record["inputs"] for record in records if self._is_filled(record)]
        filled = iter(self.blanks(texts) if self.blanks is not None else ())
        return [
            _answer(next(filled), False) if row is None else _answer(next(given), row[1])
            for row in rows
        ]

    def _is_filled(self, record: Mapping[str, Any]) -> bool:
        """Whether a text alone is given to an encoder-decoder."""
        return self.blanks is not None and "targets" not in record

    def _row(self, record: Mapping[str, Any]) -> tuple[Any, bool]:
        """What is scored, and whether a text was cut."""
        if self.targets is not None and "targets" not in record:  # a text alone
            record = {"inputs": "", "targets": record["inputs"]}
        inputs = self.framing.text(record["inputs"])
        if self.targets is None:
            return inputs, inputs.truncated
        targets = self.targets.text(record["targets"]).tokens
        assert isinstance(self.score, TargetScorer)  # there are targets
        pair, cut = self.score.fitted(Pair(inputs.tokens, targets))
        return pair, cut or inputs.truncated


def _answer(likelihood: Likelihood, truncated: bool) -> dict[str, Any]:
    answer = {"log_likelihood": likelihood.log_p, "target_tokens": likelihood.tokens}
    return answer | ({"truncated": True} if truncated else {})


@dataclasses.dataclass(frozen=True)
class Ranking:
    """The predictor of the best of given choices (`predictions.Predictor`).

    Attributes:
      scoring: gives a choice's log-likelihood.
      per_token: whether to divide it by the number of its tokens.
    """

    scoring: Scoring
    per_token: bool = False

    @property
    def batch_size(self) -> int:
        return self.scoring.batch_size

    def check(self, record: Mapping[str, Any]) -> None:
        """Raises ValueError where a record has no list of choices."""
        choices = record.get("choices")
        if not (isinstance(choices, list) and choices and all(isinstance(c, str) for c in choices)):
            raise ValueError(
                'a rank needs choices: give JSON lines {"inputs": ..., "choices": ["...", "..."]}'
            )

    def __call__(self, records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The `choice`, its number from 0, and the `scores` of all choices."""
        asked = [
            {"inputs": self._text(record["inputs"], choice), "targets": choice}
            for record in records
            for choice in record["choices"]
        ]
        scored = iter(self.scoring(asked))
        answers = []
        for record in records:
            choices = [next(scored) for _ in record["choices"]]
            scores = [
                choice["log_likelihood"]
                / (max(choice["target_tokens"], 1) if self.per_token else 1)
                for choice in choices
            ]
            best = int(np.argmax(scores))
            truncated = (
                {"truncated": True} if any("truncated" in choice for choice in choices) else {}
            )
            answers.append(
                {"choice": record["choices"][best], "number": best, "scores": scores} | truncated
            )
        return answers

    def _text(self, inputs: str, choice: str) -> str:
        """The text to read; for a model that only reads, it includes the choice."""
        return inputs if self.scoring.targets is not None else f"{inputs} {choice}".strip()
