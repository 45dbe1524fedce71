"""Long text in pieces, cut at the same places for every size of read.

A line of more than `MAX_LINE` characters is cut after the last space before that length, or at that
length if it has no space. A piece is some lines, or such parts of a line, with the blank lines
after them. The pieces of a document, joined, equal its text. No segment crosses the end of a line
or part, so the segments of the pieces are those of the document.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

MAX_LINE = 1 << 16
MAX_PIECE = 1 << 20
"""The maximum number of characters in a piece, without the white space at its end."""

_MAX_BLANK = 8 * MAX_PIECE


class Piece(dict[str, str]):
    """A part of a document that is too long to be held whole. Its pieces follow each other.

    Attributes:
      first: whether the piece begins the document; others follow it.
    """

    def __init__(self, text: str, *, first: bool) -> None:
        super().__init__(targets=text)
        self.first = first

    def __reduce__(self) -> tuple[object, ...]:
        return _piece, (self["targets"], self.first)


def _piece(text: str, first: bool) -> Piece:
    return Piece(text, first=first)


def continues(document: Mapping[str, Any]) -> bool:
    """Whether `document` is a piece that continues the previous document."""
    return isinstance(document, Piece) and not document.first


def parts(stream: io.TextIOBase) -> Iterator[str]:
    """Lines with their ends. A line of more than `MAX_LINE` characters comes in parts."""
    rest = ""
    while True:
        # Two more characters are read, so that every form of line end is read with its line.
        text = rest if rest.endswith("\n") else rest + stream.readline(MAX_LINE + 2 - len(rest))
        if not text:
            return
        long = body_length(text) > MAX_LINE
        cut = text.rfind(" ", 0, MAX_LINE) + 1 or MAX_LINE if long else len(text)
        yield text[:cut]
        rest = text[cut:]


def body_length(line: str) -> int:
    """The number of characters before the line end, which is a line feed, or one after a return."""
    return len(line.rstrip("\n").removesuffix("\r")) if line.endswith("\n") else len(line)


def pieces(
    documents: Iterable[tuple[bool, str]], *, strip: bool = False
) -> Iterator[dict[str, str]]:
    """{"targets": text} of each document, or its `Piece`s if it is longer than one piece.

    Args:
      documents: parts in order, each with whether it begins a document.
      strip: whether to leave out the white space at the end of a document.
    """
    gathered: list[str] = []
    size = 0
    cut = False
    for begins, part in documents:
        # Blank lines stay with the preceding lines.
        full = size + len(part) > MAX_PIECE and (part.strip() or size > _MAX_BLANK)
        if gathered and (begins or full):
            text = "".join(gathered)
            yield from _ending(text, cut, strip) if begins else [Piece(text, first=not cut)]
            gathered, size = [], 0
            cut = not begins
        gathered.append(part)
        size += len(part)
    if gathered:
        yield from _ending("".join(gathered), cut, strip)


def _ending(text: str, cut: bool, strip: bool) -> Iterator[dict[str, str]]:
    """A document's last piece if earlier pieces were `cut` off, else the whole document."""
    text = text.rstrip() if strip else text
    if not cut:
        yield {"targets": text}
    elif text:
        yield Piece(text, first=False)


def join(documents: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Whole documents, for callers that can hold a document of any length."""
    held: list[Mapping[str, Any]] = []
    for document in documents:
        if held and not continues(document):
            yield _whole(held)
            held = []
        held.append(document)
    if held:
        yield _whole(held)


def _whole(held: list[Mapping[str, Any]]) -> dict[str, Any]:
    if len(held) == 1:
        return dict(held[0])
    return {"targets": "".join(piece["targets"] for piece in held)}


def cut_if_long(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """A document unchanged, or its pieces if it is plain text and longer than a piece."""
    text = document.get("targets", "")
    if len(document) > 1 or len(text) <= MAX_PIECE or isinstance(document, Piece):
        yield document
        return
    yield from pieces((i == 0, part) for i, part in enumerate(lines(text)))


def lines(text: str) -> Iterator[str]:
    """The lines of a text with their ends, long ones in `parts`."""
    return parts(io.StringIO(text, newline="\n"))
