"""Choices: a model reads a text with each alternative and names one (SWAG: BERT, section 4.4)."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from t5x_like.core.protocols.data import WEIGHT, Column, FeatureSpec
from t5x_like.objectives.noise import masking
from t5x_like.objectives.parts.geometry import PerRecord, pair_sizes
from t5x_like.objectives.supervised import frames
from t5x_like.objectives.supervised.frames import Frame
from t5x_like.objectives.supervised.labelled_rows import LabelledRows

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import TokenIds


@dataclasses.dataclass(frozen=True)
class Choices(LabelledRows):
    """Rows "[CLS] text [SEP] alternative [SEP]", as many as `names`, and which is right.

    Columns are `inputs`, `choice_0`, `choice_1`, and so on, and `label`. An alternative that is
    empty is not one, and its row has no tokens. Of a text and an alternative that are too long
    together, the longer loses tokens first.

    Attributes:
      names: what the column `label` calls the alternatives, in their order.
      second: whether there is a column `inputs2`, such as a question, before each alternative.
    """

    template: str = frames.PAIR
    names: tuple[str, ...] = ("0", "1", "2", "3")
    second: bool = False

    answers: ClassVar = "choices"
    best_metric: ClassVar = "accuracy"
    measures: ClassVar = ()

    @classmethod
    def of_family(cls, frame: Frame, columns: Collection[str], labels: Collection[str]) -> Self:
        """The objective with the special tokens of a family around two texts."""
        around: dict[str, Any] = {"template": frame.pair, "token_types": frame.token_types}
        second, weighed = (name in columns for name in ("inputs2", WEIGHT.name))
        return cls(**around, names=tuple(labels), second=second, weighed=weighed)

    @property
    def reads(self) -> tuple[Column, ...]:
        """The texts, the alternatives and the label."""
        second = (Column("inputs2"),) if self.second else ()
        label = Column("label", "label", names=self.names)
        alternatives = map(Column, self._alternatives)
        return (Column("inputs"), *second, *alternatives, label, *self.weight_columns)

    def geometry(self, lengths: Mapping[str, int]) -> PerRecord:
        """A sample for each row.

        Raises:
          ValueError: `lengths` has no inputs, or they are too short.
        """
        second = ("inputs2",) if self.second else ()
        return PerRecord(
            groups=tuple(("inputs", *second, name) for name in self._alternatives),
            pair_room=masking.text_room(lengths, self.specials, texts=2),
            constants=(("max_tokens", lengths["inputs"]),),
            specials=self.specials,
        )

    def packed_tokens(self, lengths: Mapping[str, int]) -> int:
        """Those of all alternatives of a text, which share a row."""
        return len(self.names) * lengths["inputs"]

    def features(self, lengths: Mapping[str, int]) -> dict[str, FeatureSpec]:
        """A row for each alternative, and the number `labels`."""
        row = FeatureSpec(len(self.names), item=(lengths["inputs"],))
        rows = dict.fromkeys(self.row_features(lengths), row)
        return {**rows, "labels": FeatureSpec(None), **self.weight_features}

    def __call__(
        self, sample: Mapping[str, np.ndarray], rng: np.random.Generator, ids: TokenIds
    ) -> dict[str, np.ndarray]:
        """Frames each alternative; `inputs` are int32 [A, L], with -1 for padding."""
        del rng
        length = int(sample["max_tokens"])
        shape = (len(self.names), length)
        rows = {
            name: np.full(shape, -1, np.int32) for name in self.row_features({"inputs": length})
        }
        for number, name in enumerate(self._alternatives):
            if not len(sample[name]):
                continue
            before = [sample["inputs2"]] if self.second else []
            second = np.concatenate([*before, sample[name]])
            first = sample["inputs"]
            sizes = pair_sizes(len(first), len(second), length - self.specials)
            texts = {"A": first[: sizes[0]], "B": second[: sizes[1]]}
            for feature, values in self.row(texts, ids).items():
                rows[feature][number, : len(values)] = values
        return {**rows, "labels": sample["label"], **self.weight(sample)}

    @property
    def _alternatives(self) -> list[str]:
        return [f"choice_{number}" for number in range(len(self.names))]


PRESETS = {"choices": Choices()}
SUMMARIES = {
    "choices": "choose one of four texts; for rows with inputs, choice_0 to choice_3 and label "
    "(BERT)"
}
