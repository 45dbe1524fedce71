"""The protocol between completers of batches and a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import jax

    from t5x_like.core.protocols.data import Vocabulary
    from t5x_like.core.protocols.model import Batch

Kept = Mapping[str, Any]
"""{name: array}, nested or not: what a completer keeps from step to step. Shapes do not change."""


class Completing(Protocol):
    """A completer at work. What it keeps is in every checkpoint, so that a run resumes exactly."""

    def start(self, params: Any) -> Kept:
        """The state before the first step, from the parameters of a new run."""

    def complete(self, batch: Batch, *, step: int, kept: Kept) -> Batch:
        """The batch of the step that follows `step` steps, or of an evaluation after them."""

    def after(self, step: int, params: Any, kept: Kept) -> Kept:
        """The state after a step, whose parameters it may read until it returns.

        It is called in all processes, and depends on its arguments alone.
        """


class BatchCompleter(Protocol):
    """Adds to each global batch what a model learns from besides text, such as a teacher.

    Attributes:
      paths: {name: path} of what it reads outside of the run's directory, such as {"TEACHER":
        "imported/bert"}; messages have the name. Before another user's run is opened, the user is
        asked.
    """

    @property
    def paths(self) -> Mapping[str, str]: ...

    def check(self, vocabulary: Vocabulary) -> None:
        """Raises ValueError where it cannot be used with this vocabulary; reads nothing large."""

    def check_model(self, model: Any) -> None:
        """Raises ValueError where a model, with abstract parameters, does not use what it adds."""

    def added(self, row: Mapping[str, Any], model: Any) -> dict[str, jax.ShapeDtypeStruct]:
        """The arrays that it adds to a row for a model, by shape and dtype; reads nothing."""

    def identity(self) -> Any:
        """JSON that tells a resumed run whether it is still the same one."""

    def open(self, layout: Any) -> Completing:
        """Completes batches that are split over the mesh as `layout` (a `Layout`) says."""
