"""Spans to predict, each among tokens that are not predicted: XLNet's choice of targets."""

from __future__ import annotations

import bisect
from collections.abc import Iterator


def context_spans(
    starts: bytes,
    goal: int,
    *,
    lengths: tuple[float, ...],
    context: int,
    draws: Iterator[float],
) -> bytearray:
    """Marks `goal` tokens of a text, most of them in spans that begin words (XLNet, section 3.1).

    From left to right, a span of n tokens gets `context` * n tokens around it, a random share of
    them on its left; it is moved on to where a word begins, and the next one follows its context.
    Once no span fits in the rest of the text, single tokens anywhere make up the number. (All as in
    the published code; the paper counts the span itself as part of its context.)

    Args:
      starts: [n] 1 where a word begins, 0 elsewhere.
      goal: tokens to mark, no more than n.
      lengths: `drawing.thresholds` of spans of 1, 2, ... tokens.
      context: tokens around each token of a span.
      draws: uniform numbers in [0, 1).

    Returns:
      [n] 1 where a token is marked, 0 elsewhere.
    """
    marked, left, place = bytearray(len(starts)), goal, 0
    while left and place < len(starts):
        length = min(bisect.bisect(lengths, next(draws)) + 1, left)
        room = context * length
        before = int(next(draws) * room)
        start = starts.find(1, place + before)
        end = start + length
        if start < 0 or end >= len(starts):
            break
        marked[start:end] = b"\1" * length
        left -= length
        place = end + room - before
    while left:
        position = int(next(draws) * len(starts))
        left -= 1 - marked[position]
        marked[position] = 1
    return marked
