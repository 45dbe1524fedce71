"""The metrics of a run's loss on batches, which say how it predicts given targets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from t5x_like.evaluation.evaluator import evaluate
from t5x_like.evaluation.text_bytes import token_bytes
from t5x_like.runs.trained.trained_run import TrainedRun
from t5x_like.training.completion import Completion
from t5x_like.training.metrics import TOTALS

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch


class TeacherForced:
    """A function from parameters and batches on the mesh to metrics.

    Attributes:
      token_bytes: the result of `text_bytes.token_bytes`.
    """

    def __init__(self, model: TrainedRun) -> None:
        self.token_bytes = token_bytes(model.vocabulary)
        self._program = model.program
        completer = model.run.completer
        self._complete = Completion(None if completer is None else completer.open(model.run.layout))
        self._complete.begin(model.step, model.params, model.kept)

    def __call__(self, params: Any, batches: Iterable[Batch]) -> dict[str, float]:
        metrics = evaluate(
            self._program.evaluation(),
            params,
            map(self._complete, batches),
            token_bytes=self.token_bytes,
        )
        return {name: value for name, value in metrics.items() if name not in TOTALS}
