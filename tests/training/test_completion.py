"""What a completer keeps: made anew, or what a checkpoint has."""

from __future__ import annotations

from typing import Any

import pytest

from t5x_like.training.completion import Completion


class Counting:
    """Keeps how many steps it has seen, and tells each batch."""

    def start(self, params: Any) -> dict[str, Any]:
        return {"seen": params}

    def complete(self, batch: Any, *, step: int, kept: Any) -> dict[str, Any]:
        return {**batch, "step": step, **kept}

    def after(self, step: int, params: Any, kept: Any) -> dict[str, Any]:
        return {"seen": kept["seen"] + params}


@pytest.mark.parametrize(("kept", "seen"), [({}, 5), ({"seen": 40}, 40)])
def test_it_begins_with_what_a_checkpoint_has_or_anew(kept: dict[str, Any], seen: int) -> None:
    """A checkpoint of a run that had no completer has nothing of it."""
    completion = Completion(Counting())
    completion.begin(7, 5, kept)
    assert completion({"a": 1}) == {"a": 1, "step": 7, "seen": seen}
    completion.after(8, 3)
    assert completion({}) == {"step": 8, "seen": seen + 3}


def test_without_a_completer_a_batch_is_as_it_is() -> None:
    completion, batch = Completion(), {"a": 1}
    completion.begin(0, None, {})
    completion.after(1, None)
    assert completion(batch) is batch
    assert completion.kept == {}
