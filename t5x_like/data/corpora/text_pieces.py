"""Long text in pieces: cut at the same places however much of it is read at once.

A line of more than `MAX_LINE` characters is cut after its last space before that, or anywhere where
it has none. A piece is some lines, or such parts of one, with the blank lines after them; joined,
the pieces of a document are its text. No segment crosses the end of a line or part, so that the
segments of the pieces are those of the document.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping

MAX_LINE = 1 << 16
MAX_PIECE = 1 << 20
"""Characters of a piece, the white space at its end not counted."""

_MAX_BLANK = 8 * MAX_PIECE


class Piece(dict[str, str]):
    """Some of a document that is too long to be held whole: pieces of it follow each other.

    Attributes:
      first: whether it begins the document; then others follow.
    """

    def __init__(self, text: str, *, first: bool) -> None:
        super().__init__(targets=text)
        self.first = first

    def __reduce__(self) -> tuple[object, ...]:
        return _piece, (self["targets"], self.first)


def _piece(text: str, first: bool) -> Piece:
    return Piece(text, first=first)


def continues(document: Mapping[str, str]) -> bool:
    """Whether it is no document of its own but more of the one before."""
    return isinstance(document, Piece) and not document.first


def parts(stream: io.TextIOBase) -> Iterator[str]:
    """Lines with their ends, those of more than `MAX_LINE` characters in parts."""
    rest = ""
    while True:
        # Two more, so that an end of line in any form is seen with the line.
        text = rest if rest.endswith("\n") else rest + stream.readline(MAX_LINE + 2 - len(rest))
        if not text:
            return
        length = len(text.rstrip("\r\n")) if text.endswith("\n") else len(text)
        cut = len(text) if length <= MAX_LINE else text.rfind(" ", 0, MAX_LINE) + 1 or MAX_LINE
        yield text[:cut]
        rest = text[cut:]


def pieces(
    documents: Iterable[tuple[bool, str]], *, strip: bool = False
) -> Iterator[dict[str, str]]:
    """{"targets": text} of each document, or its `Piece`s where it is longer than one.

    Args:
      documents: parts in order, each with whether it begins a document.
      strip: leaves out the white space that ends a document.
    """
    gathered: list[str] = []
    size = 0
    cut = False
    for begins, part in documents:
        # Blank lines stay with what is before them.
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
    """A document's last piece, where it was `cut` before, or all of it."""
    text = text.rstrip() if strip else text
    if not cut:
        yield {"targets": text}
    elif text:
        yield Piece(text, first=False)


def joined(documents: Iterable[dict[str, str]]) -> Iterator[dict[str, str]]:
    """Whole documents, for those who hold one at a time whatever its length."""
    held: list[dict[str, str]] = []
    for document in documents:
        if held and not continues(document):
            yield _whole(held)
            held = []
        held.append(document)
    if held:
        yield _whole(held)


def _whole(held: list[dict[str, str]]) -> dict[str, str]:
    if len(held) == 1:
        return dict(held[0])
    return {"targets": "".join(piece["targets"] for piece in held)}


def cut_if_long(document: dict[str, str]) -> Iterator[dict[str, str]]:
    """A document as it is or, of plain text that is longer than a piece, its pieces."""
    text = document.get("targets", "")
    if len(document) > 1 or len(text) <= MAX_PIECE or isinstance(document, Piece):
        yield document
        return
    lines = parts(io.StringIO(text, newline="\n"))
    yield from pieces((i == 0, part) for i, part in enumerate(lines))
