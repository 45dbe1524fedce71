"""XLNet's choice of targets: spans, each among tokens that are not predicted."""

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
    """Marks `goal` tokens of a text, mostly in spans that start with a word (XLNet, section 3.1).

    Spans are placed from left to right. A span of n tokens gets `context` * n tokens around it, a
    random share of them on its left. It is moved right to the next start of a word, and the next
    span follows its context. Once no span fits in the rest of the text, random single tokens are
    marked until the goal is reached. This is the published code; the paper counts the span as part
    of its context.

    Args:
      starts: [n] 1 where a word begins, 0 elsewhere.
      goal: the number of tokens to mark, at most n.
      lengths: `drawing.thresholds` of spans of 1, 2, ... tokens.
      context: tokens around a span for each of its tokens.
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
