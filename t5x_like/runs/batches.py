"""Global batches of a run on its devices, to train on and to evaluate with."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from t5x_like.core import partitioning
from t5x_like.data import stream
from t5x_like.evaluation.evaluator import evaluate
from t5x_like.runs.run import Run
from t5x_like.training import step
from t5x_like.training.metrics import TOTALS

if TYPE_CHECKING:
    import numpy as np

    from t5x_like.core.protocols import Batch

EVALUATION_SEED = 0
"""The seed of noise in validation batches, so that the curves of all runs compare."""


class ToDevice:
    """From this process's rows to global arrays."""

    def __init__(self, layout: partitioning.Layout, batch_size: int) -> None:
        self._layout, self._batch_size = layout, batch_size
        self.rows = partitioning.process_rows(layout, batch_size)

    def __call__(self, local: Mapping[str, np.ndarray]) -> Batch:
        return partitioning.to_global(
            self._layout, local, rows=self.rows, batch_size=self._batch_size
        )


def _as_it_is(batch: Batch) -> Batch:
    return batch


@dataclasses.dataclass(frozen=True)
class Batches:
    """Global batches of a phase, to train on and to evaluate with.

    `complete` is run on each; `token_bytes`, where known, are as of `text_bytes.token_bytes`.
    """

    train: Sequence[stream.Component]
    validation: Sequence[stream.Component]
    to_device: ToDevice
    run: Run
    seed: int
    token_bytes: np.ndarray | None = None
    complete: Callable[[Batch], Batch] = _as_it_is

    @property
    def _common(self) -> dict[str, Any]:
        return {
            "converter": self.run.feature_converter,
            "batch_size": self.run.options.batch_size,
            "rows": self.to_device.rows,
        }

    def check(self, program: step.Program) -> None:
        """Traces a step on such batches, so that a model's objections come before training.

        Raises:
          ValueError: what the model objects to, such as rows longer than its positions.
        """
        if self.complete is not _as_it_is:
            return
        row = stream.Examples(self.train[0], self.seed, self.run.feature_converter)[0]
        program.trace(row)

    def train_from(self, start_step: int) -> Iterator[Batch]:
        rows = stream.train_stream(
            self.train,
            seed=self.seed,
            start_step=start_step,
            num_workers=self.run.options.data_workers,
            **self._common,
        )
        return self._completed(rows)

    def _completed(self, rows: Iterator[stream.Row]) -> Iterator[Batch]:
        return map(self.complete, map(self.to_device, rows))

    def held_out(self, program: step.Program, params: Any) -> dict[str, float]:
        """{"<task>/<metric>": mean} on the first batches of each validation split."""
        found = {}
        for component in self.validation:
            rows = stream.eval_stream(
                component,
                seed=EVALUATION_SEED,
                max_batches=self.run.options.eval_batches,
                **self._common,
            )
            metrics = evaluate(
                program.evaluation(),
                params,
                self._completed(rows),
                token_bytes=self.token_bytes,
            )
            for name in metrics.keys() - set(TOTALS):
                found[f"{component.name}/{name}"] = metrics[name]
        return dict(sorted(found.items()))
