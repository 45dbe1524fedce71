"""Texts in which parts stand between markers: the text without them, and where its parts are."""

from __future__ import annotations

import re
from typing import NamedTuple

from t5x_like.data.corpora.corpus import CorpusError


class Marked(NamedTuple):
    """A text, and the place of the first character and the text of each of its marked parts."""

    text: str
    parts: list[tuple[int, str]]


def read(written: str, markers: tuple[str, str], *, where: str) -> Marked:
    """The text, and its parts in their order.

    Args:
      written: the text with markers.
      markers: what stands before and after each part.
      where: the place of the text, for messages.

    Raises:
      CorpusError: a marker has no partner, or a part is in another.
    """
    before, after = markers
    text, parts, begin = "", [], None
    # Of two markers that begin alike the longer counts; equal ones take turns.
    either = "|".join(map(re.escape, sorted({*markers}, key=len, reverse=True)))
    done = 0
    for match in re.finditer(either, written):
        text += written[done : match.start()]
        done = match.end()
        opens = match[0] == before and (before != after or begin is None)
        if opens == (begin is not None):
            problem = "again" if opens else f"without {before!r}"
            raise CorpusError(f"{where} has {match[0]!r} at character {match.start()} {problem}")
        if opens:
            begin = len(text)
        elif begin is not None:
            parts += [(begin, text[begin:])] if begin < len(text) else []
            begin = None
    if begin is not None:
        raise CorpusError(f"{where} has {before!r} without {after!r} after it")
    return Marked(text + written[done:], parts)
