"""The completion of a run's batches while it trains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from t5x_like.core.protocols.completers import Completing, Kept
    from t5x_like.core.protocols.model import Batch


class AsItIs:
    """A `protocols.Completing` that adds nothing and keeps nothing."""

    def start(self, params: Any) -> Kept:
        """An empty state."""
        del params
        return {}

    def complete(self, batch: Batch, *, step: int, kept: Kept) -> Batch:
        """The batch."""
        del step, kept
        return batch

    def after(self, step: int, params: Any, kept: Kept) -> Kept:
        """The state, unchanged."""
        del step, params
        return kept


class Completion:
    """A completer at work; all phases of a run share it.

    Attributes:
      kept: what a checkpoint saves of it.
    """

    def __init__(self, completing: Completing | None = None) -> None:
        self._completing = completing or AsItIs()
        self._step = 0
        self.kept: Kept = {}

    def begin(self, step: int, params: Any, kept: Kept) -> None:
        """Begins after `step` steps, with what a checkpoint has of it.

        It starts anew where that is nothing, as in a new run, or one that had no completer before.
        """
        self._step = step
        self.kept = kept or self._completing.start(params)

    def __call__(self, batch: Batch) -> Batch:
        """A batch of the next step, or of an evaluation after the last one."""
        return self._completing.complete(batch, step=self._step, kept=self.kept)

    def after(self, step: int, params: Any) -> None:
        """Takes note of the parameters after a step."""
        self._step, self.kept = step, self._completing.after(step, params, self.kept)
