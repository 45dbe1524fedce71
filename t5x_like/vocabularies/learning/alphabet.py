"""The characters that a vocabulary needs to cover a share of the text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


def alphabet(texts: Iterable[str], *, coverage: float) -> list[str]:
    """The fewest characters that make up `coverage` of the texts, most frequent first.

    White space is left out. Equally frequent characters are in the order of their code points.
    """
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text)
    frequent = sorted(
        ((-count, character) for character, count in counts.items() if not character.isspace())
    )
    missing = coverage * -sum(count for count, _ in frequent)
    kept = []
    for count, character in frequent:
        if missing <= 0:
            break
        kept.append(character)
        missing += count
    return kept
