"""Classes that a model has not learned, by a model that says what follows from what.

Yin et al., 2019, section 5: a text is the premise, and a sentence about each class a hypothesis.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from t5x_like.inference.heads.head_answers import HeadAnswers
from t5x_like.inference.heads.joined_windows import softmax

TEMPLATE = "This example is {}."
"""The usual hypothesis, which is that of transformers."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ZeroShot:
    """The predictor of classes by hypotheses (`predictions.Predictor`).

    Attributes:
      judge: answers pairs of texts, with a class whose name begins with "entail".
      candidate_labels: the classes.
      hypothesis_template: a sentence with `{}` in the place of the class.
    """

    judge: HeadAnswers
    candidate_labels: Sequence[str]
    hypothesis_template: str = TEMPLATE

    def __post_init__(self) -> None:
        if self.judge.kind != "classes" or self._entailment is None:
            raise ValueError(
                "candidate_labels are for a model that has learned natural language inference, as "
                "from mnli: one of its classes is entailment. This one answers with "
                f"{', '.join(self.judge.labels) or self.judge.kind}"
            )
        if "{}" not in self.hypothesis_template or len({*self.candidate_labels}) < 2:
            raise ValueError(
                "hypothesis_template has {} in the place of a class, and there are two of "
                "candidate_labels at least"
            )

    @property
    def batch_size(self) -> int:
        """The texts that are asked at once."""
        return max(1, self.judge.batch_size // len(self.candidate_labels))

    @property
    def _entailment(self) -> int | None:
        names = [name.lower() for name in self.judge.labels]
        return next((n for n, name in enumerate(names) if name.startswith("entail")), None)

    def check(self, record: Mapping[str, Any]) -> None:
        """Raises ValueError where a record lacks a text."""
        self.judge.check(record)

    def __call__(self, records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """For each record `label` and `probabilities`, which sum to 1, the likeliest first."""
        rows = [
            self.judge.framing.text(record["inputs"], self.hypothesis_template.format(label))
            for record in records
            for label in self.candidate_labels
        ]
        logits = np.stack(self.judge.logits(rows)).astype(np.float64)
        entailed = logits[:, self._entailment].reshape(len(records), -1)
        answers = []
        for n, chances in enumerate(softmax(entailed)):
            order = np.argsort(-chances, kind="stable")
            named = {self.candidate_labels[i]: float(chances[i]) for i in order}
            of_record = rows[n * len(chances) : (n + 1) * len(chances)]
            cut = {"truncated": True} if any(row.truncated for row in of_record) else {}
            answers.append({"label": next(iter(named)), "probabilities": named, **cut})
        return answers
