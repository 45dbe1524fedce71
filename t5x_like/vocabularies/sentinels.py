"""Written sentinels, `<extra_id_n>`: finds them in text and writes them back."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

USUAL_EXTRA_IDS = 100
"""T5's number of sentinels."""

_WRITTEN = re.compile(r"<extra_id_(\d+)>")

MOST_EXTRA_IDS = 1 << 20


def check_number(extra_ids: Any, *, where: object) -> None:
    """Raises ValueError where this is not a number of sentinels to add; `where` is its origin.

    Files that anybody wrote name such numbers, and each sentinel costs memory.
    """
    whole = isinstance(extra_ids, int) and not isinstance(extra_ids, bool)
    if not whole or not 0 <= extra_ids <= MOST_EXTRA_IDS:
        raise ValueError(
            f"extra_ids of {where} is the number of sentinels to add, 0 to {MOST_EXTRA_IDS}, not "
            f"{reprlib.repr(extra_ids)}"
        )


def sentinel_text(n: int) -> str:
    """The written form of sentinel n."""
    return f"<extra_id_{n}>"


def split(text: str, *, count: int) -> list[str | int]:
    """Cuts text at written sentinels: texts (maybe empty) and sentinel numbers alternate.

    Raises:
      ValueError: a vocabulary with `count` sentinels lacks one of the numbers.
    """
    parts: list[str | int] = list(_WRITTEN.split(text))
    for place in range(1, len(parts), 2):
        number = int(parts[place])
        if number >= count:
            known = f"{sentinel_text(0)} to {sentinel_text(count - 1)}" if count else "none"
            raise ValueError(
                f"the text has {sentinel_text(number)}; the sentinels of this vocabulary: {known}"
            )
        parts[place] = number
    return parts


def encode(
    text: str,
    pieces: Callable[[str], list[int]],
    *,
    top: int,
    count: int,
    following: Callable[[str], list[int]] | None = None,
    drop_space: bool = False,
) -> list[int]:
    """Ids of a text with written sentinels.

    Args:
      text: the text.
      pieces: encodes the text before the first sentinel.
      top: the id of sentinel 0, from which the others count down.
      count: the number of sentinels.
      following: encodes text after a sentinel; None: as `pieces` does.
      drop_space: whether one space before a sentinel is dropped.

    Raises:
      ValueError: the vocabulary has no such sentinel.
    """
    *parts, last = split(text, count=count)
    ids: list[int] = []
    pieces_of = pieces
    for part in parts:
        if isinstance(part, int):
            ids.append(top - part)
            pieces_of = following or pieces
        else:
            ids.extend(pieces_of(part.removesuffix(" ") if drop_space else part))
    return ids + pieces_of(str(last))


def runs(ids: Iterable[int], *, top: int, count: int, eos: int | None) -> Iterator[list[int] | int]:
    """Cuts ids at their sentinels, the reverse of `split`: runs of ids, and sentinel numbers.

    `top` is the id of sentinel 0, from which the others count down.

    Ends before the first `eos`. Runs are not empty; ids out of range stay in them.
    """
    run: list[int] = []
    for raw in ids:
        i = int(raw)
        if i == eos:
            break
        if not top - count < i <= top:
            run.append(i)
            continue
        if run:
            yield run
        yield top - i
        run = []
    if run:
        yield run
