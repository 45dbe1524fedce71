"""A span of a text's tokens, and how likely a model finds it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple, Protocol


class Span(NamedTuple):
    """The tokens of a text from number `begin` on, up to `end`; special tokens come around it."""

    tokens: list[int]
    begin: int
    end: int


class Likelihood(NamedTuple):
    """How likely a model finds some tokens.

    Attributes:
      log_p: the sum of their log-probabilities, in nats.
      likeliest: whether each of them is the likeliest token of its place.
      tokens: their number.
    """

    log_p: float
    likeliest: bool
    tokens: int


class SpanScorer(Protocol):
    """Says how likely spans are, given as much of their texts as the model reads at once.

    Attributes:
      both_sides: whether it reads what follows a span, too.
    """

    both_sides: ClassVar[bool]

    def spans(self, spans: Sequence[Span]) -> list[Likelihood]:
        """How likely each span is. The pieces of a span are predicted from left to right."""


def joined(parts: Sequence[Likelihood]) -> Likelihood:
    """The likelihood of all tokens of several."""
    return Likelihood(
        sum(part.log_p for part in parts),
        all(part.likeliest for part in parts),
        sum(part.tokens for part in parts),
    )


def fitted(span: Span, most: int | None) -> Span:
    """The span in at most `most` tokens of its text, which keep as much before it as they can."""
    tokens, begin, end = span
    if most is None or len(tokens) <= most:
        return span
    last = max(end, most)
    first = last - most
    if first > begin:
        raise ValueError(
            f"a word of {end - begin} tokens has no room among the {most} that are read"
        )
    return Span(tokens[first:last], begin - first, end - first)
