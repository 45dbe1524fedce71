"""The options of predictors."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from t5x_like.inference import text_rows
from t5x_like.inference.decoding.settings import Decoding
from t5x_like.inference.embeddings import Pooling
from t5x_like.inference.heads import zero_shot


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Options of predictors.

    Attributes:
      decoding: how a model writes.
      k: the guesses of a masked language model for a blank (1 by default), or the classes that get
        a probability (all by default).
      layer: the layer of embeddings, or weights that mix all layers.
      pooling: one of `embeddings.POOLINGS`.
      per_token: whether a rank divides log-likelihoods by the number of tokens.
      within_word: whether pseudo-log-likelihoods mask the later pieces of a word with each of them.
      batch_size: the rows that are computed at once.
      max_input_length: the most tokens of an input; None for what the run reads, or what the model
        has positions for.
      no_answer_threshold: of answers in texts, the score of no answer, less that of the best, above
        which a question has none; None for `best_f1_thresh` of the run's evaluation.
      class_threshold: of several classes at once, the least probability of those that are said;
        None for `best_threshold` of the run's evaluation, or 1/2 where there is none.
      calibrated: whether probabilities of classes are those of `best_temperature` of the run's
        evaluation, which are nearer to frequencies (Guo et al., 2017).
      candidate_labels: classes that the model has not learned, where it says what follows from what
        (`zero_shot`).
      hypothesis_template: a sentence about a text with `{}` in the place of a class.
    """

    decoding: Decoding = dataclasses.field(default_factory=Decoding)
    k: int | None = None
    layer: int | Sequence[float] = -1
    pooling: Pooling = "mean"
    per_token: bool = False
    within_word: bool = False
    batch_size: int = text_rows.ROWS
    max_input_length: int | None = None
    no_answer_threshold: float | None = None
    class_threshold: float | None = None
    calibrated: bool = False
    candidate_labels: Sequence[str] = ()
    hypothesis_template: str = zero_shot.TEMPLATE

    def __post_init__(self) -> None:
        for name in ("k", "batch_size", "max_input_length"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}")

    def check(self, ask: str, *, form: str | None, guesses: bool, has_temperature: bool) -> None:
        """Checks that what is asked reads the options that are given.

        Args:
          ask: what is asked, one of `predictors.ASKS`.
          form: the form of a head's answers; None where it is not asked.
          guesses: whether the model guesses masked tokens.
          has_temperature: whether its run has measured `best_temperature`.

        Raises:
          ValueError: an option is given that is not read.
        """
        if self.no_answer_threshold is not None and "spans" not in (form or ""):
            raise ValueError("no_answer_threshold is for models that find answers in a text")
        if self.class_threshold is not None and form != "several":
            raise ValueError(
                "class_threshold is for models that answer with several classes at once"
            )
        if self.calibrated and (form != "classes" or not has_temperature):
            raise ValueError(
                "calibrated is for models that answer with classes, whose run has best_temperature "
                "among the metrics of its last evaluation"
            )
        if self.candidate_labels and ask != "answer":
            raise ValueError(
                f"candidate_labels are for models with a head for classes: not to {ask}"
            )
        if self.k is not None and ask not in ("fill", "answer"):
            raise ValueError(
                f"k is the number of guesses for a blank, or of classes: {ask} has none"
            )
        if self.within_word and not (guesses and ask in ("score", "rank")):
            raise ValueError("within_word is for likelihoods of models that guess masked tokens")
