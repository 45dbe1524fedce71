"""The parts of objectives of labelled texts, which an encoder reads between special tokens."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

from t5x_like.core.protocols.data import WEIGHT, Column, FeatureSpec
from t5x_like.objectives.noise import masking
from t5x_like.objectives.parts.geometry import PerRecord, RecordWindows
from t5x_like.objectives.supervised import frames
from t5x_like.objectives.supervised.frames import Frame
from t5x_like.objectives.supervised.windows import Windows

if TYPE_CHECKING:
    import numpy as np

    from t5x_like.core.protocols.data import TokenIds


@dataclasses.dataclass(frozen=True)
class LabelledRows:
    """Rows of a file with labels, which is read as it is in every epoch.

    Attributes:
      template: the special tokens around a text (`objectives.supervised.frames`).
      token_types: whether the model reads the types of tokens.
      weighed: whether the column `weight` says how much a row counts in the loss.
    """

    template: str = frames.TEXT
    token_types: bool = True
    weighed: bool = dataclasses.field(default=False, kw_only=True)

    kind: ClassVar = "encoder"
    steps: ClassVar[tuple[str, ...]] = ()
    static: ClassVar = True
    packs: ClassVar[bool] = True
    """Whether a row may hold several texts (`feature_converters.Encoder`)."""

    answers: ClassVar[str]
    most_tokens: ClassVar[int] = 512
    """The most tokens of a row where nobody says how many."""
    best_metric: ClassVar[str]
    """The first metric of the objective: the best checkpoint is that of its highest value."""

    @classmethod
    def of_family(cls, frame: Frame, columns: Collection[str], labels: Collection[str]) -> Self:
        """The objective with the special tokens of a family.

        Args:
          frame: the special tokens.
          columns: the columns that the rows have.
          labels: the names of labels, in their order; none for numbers.
        """
        del labels
        return cls(
            template=frame.text, token_types=frame.token_types, weighed=WEIGHT.name in columns
        )

    @property
    def needs(self) -> tuple[str, ...]:
        """The special tokens of the template that is used."""
        return frames.needs(self.used_template)

    @property
    def used_template(self) -> str:
        """The template of the rows."""
        return self.template

    @property
    def specials(self) -> int:
        """The most special tokens of a row."""
        return frames.specials(self.used_template)

    def geometry(self, lengths: Mapping[str, int]) -> Any:
        """The samples of rows (`Objective.geometry`)."""
        raise NotImplementedError

    def lengths(self, tokens: int) -> dict[str, int]:
        """`inputs` of `tokens` tokens."""
        return {"inputs": tokens}

    def packed_tokens(self, lengths: Mapping[str, int]) -> int:
        """The tokens of a row that holds several texts."""
        return lengths["inputs"]

    def row(self, texts: Mapping[str, np.ndarray], ids: TokenIds) -> dict[str, np.ndarray]:
        """`inputs`, and `token_type_ids` where the model reads them: int32 [n]."""
        inputs, types = frames.framed(self.used_template, texts, ids)
        return {"inputs": inputs, **({"token_type_ids": types} if self.token_types else {})}

    def row_features(self, lengths: Mapping[str, int]) -> dict[str, FeatureSpec]:
        """The specifications of what `row` gives."""
        names = ("inputs", "token_type_ids") if self.token_types else ("inputs",)
        return dict.fromkeys(names, FeatureSpec(lengths["inputs"]))

    @property
    def weight_columns(self) -> tuple[Column, ...]:
        """The column of weights, if there is one."""
        return (WEIGHT,) if self.weighed else ()

    @property
    def weight_features(self) -> dict[str, FeatureSpec]:
        """The specification of what `weight` gives."""
        return {"example_weights": FeatureSpec(None, "float32")} if self.weighed else {}

    def weight(self, sample: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """`example_weights`, float32 [], where rows have weights."""
        return {"example_weights": sample[WEIGHT.name]} if self.weighed else {}


@dataclasses.dataclass(frozen=True)
class LabelledTexts(LabelledRows):
    """A text in the column `inputs`, or two with `inputs2`, and what the column `label` says.

    A text that is too long keeps its beginning, or is read in windows. Of two, the longer loses
    tokens first.

    Attributes:
      pair: whether there are two texts.
      pair_template: the special tokens around two texts.
      stride: the tokens from a window of the text to the next; None where it is cut.
    """

    pair: bool = False
    pair_template: str = frames.PAIR
    stride: int | None = None

    label: ClassVar[Column]
    label_feature: ClassVar = FeatureSpec(None)
    scores: ClassVar[tuple[str, ...]]
    """The names of the metrics of texts."""
    scores_of_rows: ClassVar[tuple[str, ...]] = ()
    """Those of texts whose values a loss gives for rows."""

    @property
    def measures(self) -> tuple[str, ...]:
        """The names of the metrics; rows are not texts where these are read in windows."""
        return self.scores if self.stride is None else (*self.scores, *self.scores_of_rows)

    @property
    def reads(self) -> tuple[Column, ...]:
        """One text or two, and the label."""
        second = (Column("inputs2"),) if self.pair else ()
        return (Column("inputs"), *second, self.label, *self.weight_columns)

    @classmethod
    def of_family(cls, frame: Frame, columns: Collection[str], labels: Collection[str]) -> Self:
        """The objective with the special tokens of a family, for one text or two."""
        del labels
        pair = "inputs2" in columns
        around: dict[str, Any] = {"template": frame.text, "pair_template": frame.pair}
        weighed = WEIGHT.name in columns
        return cls(**around, token_types=frame.token_types, pair=pair, weighed=weighed)

    @property
    def used_template(self) -> str:
        """The template of a text, or of two."""
        return self.pair_template if self.pair else self.template

    def geometry(self, lengths: Mapping[str, int]) -> PerRecord | RecordWindows:
        """A sample for each row, cut where special tokens need the room; or for each window.

        Raises:
          ValueError: `lengths` has no inputs, or they are too short; or two texts are to be read
            in windows, or the stride is below 1.
        """
        room = masking.text_room(lengths, self.specials, texts=1 + self.pair)
        if self.stride is not None:
            if self.pair:
                raise ValueError(
                    "a stride is that of windows of one text: of two that are too long together, "
                    "the longer is cut"
                )
            windows = Windows(room, stride=self.stride)
            return RecordWindows(windows, texts=("inputs",), specials=self.specials)
        if self.pair:
            pair = ("inputs", "inputs2")
            return PerRecord(pair=pair, pair_room=room, specials=self.specials)
        return PerRecord(room={"inputs": room}, specials=self.specials)

    def features(self, lengths: Mapping[str, int]) -> dict[str, FeatureSpec]:
        """Those of a row, and the number `labels`."""
        of_row = self.row_features(lengths)
        return {**of_row, "labels": self.label_feature, **self.weight_features}

    def __call__(
        self, sample: Mapping[str, np.ndarray], rng: np.random.Generator, ids: TokenIds
    ) -> dict[str, np.ndarray]:
        """Frames `sample["inputs"]` and `sample["inputs2"]` (int [n]); `labels` is the label's."""
        del rng
        texts = {"A": sample["inputs"]} | ({"B": sample["inputs2"]} if self.pair else {})
        return {**self.row(texts, ids), "labels": sample["label"], **self.weight(sample)}
