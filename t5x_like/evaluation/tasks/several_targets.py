"""Held-out rows with the same inputs, which are several right targets of one text."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from t5x_like.core.protocols.data import Objective, SeveralTargets


def texts(inputs: Iterable[Hashable], objective: Objective) -> list[list[int]]:
    """The numbers of the rows of each text, in the order of their first; mostly one each.

    Args:
      inputs: what each row reads, equal for rows of one text.
      objective: says whether rows with the same inputs are one text.
    """
    if not (isinstance(objective, SeveralTargets) and objective.several_targets):
        return [[number] for number, _ in enumerate(inputs)]
    rows: dict[Hashable, list[int]] = {}
    for number, text in enumerate(inputs):
        rows.setdefault(text, []).append(number)
    return [*rows.values()]


def target(of_text: list[str]) -> str | list[str]:
    """The target of a text for metrics: its only one, or all without repetition."""
    different = [*dict.fromkeys(of_text)]
    return different[0] if len(different) == 1 else different
