"""The rows that a phase of a run reads, known before any text is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from t5x_like.core.abilities import CountsFlops, can
from t5x_like.runs.checks import preflight

if TYPE_CHECKING:
    from t5x_like.runs.run import Run

_TOKEN = 1


def full_row(run: Run) -> dict[str, np.ndarray]:
    """A row without padding, which is one example: {name: array}. Its tokens have no meaning.

    Args:
      run: a run with the settings of one phase.

    Raises:
      ValueError: the parts of the run do not fit each other.
    """
    data = run.data.with_lengths()
    objective = data.task_objectives()[0]
    features = preflight.row_features(objective, data.lengths or {})
    example = {
        # Different numbers, for features that are orders; none is 0, which is padding.
        name: np.ones(feature.shape, feature.dtype)
        if feature.length is None or feature.item
        else np.arange(_TOKEN, _TOKEN + feature.length).astype(feature.dtype)
        for name, feature in features.items()
    }
    return run.feature_converter.convert([example], features=features, ids=preflight.SOME_IDS)


def whole_row(run: Run, row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with what the run's completer adds to it, as shapes and dtypes."""
    return {**row, **(run.completer.added(row, run.abstract_model) if run.completer else {})}


def tokens(row: Mapping[str, np.ndarray]) -> int:
    """The tokens of a full row: those of the encoder and of the decoder."""
    names = ("encoder_input_tokens", "decoder_target_tokens")
    return sum(row[name].size for name in names if name in row)


def step_flops(run: Run, row: Mapping[str, np.ndarray]) -> float | None:
    """Operations of matrix products in a step on full rows, forward and backward.

    Nothing that is computed again counts. None if the model does not count them.
    """
    model: Any = run.abstract_model
    if not can(model, CountsFlops):
        return None

    def flops(rows: int) -> float:
        batch: Any = {name: np.stack([array] * rows) for name, array in row.items()}
        return float(model.flops(batch))

    # Some work belongs to the batch and not to a row.
    first = flops(1)
    return first + (run.options.batch_size - 1) * (flops(2) - first)
