"""The content of a SentencePiece `.model` file: its pieces, and how it treats text.

The `sentencepiece` library uses all of it but shows only half of it.
"""

from __future__ import annotations

import dataclasses
import enum
import struct
from collections.abc import Iterator
from typing import Any

# Fields of the serialised ModelProto and of its parts, by number.
_PIECE, _TRAINER, _NORMALIZER = 1, 2, 3
_TEXT, _SCORE, _TYPE = 1, 2, 3
_MOST_BITS = 63
_ALGORITHM, _SPACE_AFTER, _BYTE_FALLBACK = 3, 24, 35
_CHARACTERS, _SPACE_FIRST, _FEWER_SPACES = 2, 3, 4


class Type(enum.IntEnum):
    """The types of pieces."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


class Algorithm(enum.IntEnum):
    """The algorithms that cut text into pieces."""

    UNIGRAM = 1
    BPE = 2
    WORD = 3
    CHAR = 4


@dataclasses.dataclass(frozen=True)
class Piece:
    """A piece; a higher score is better."""

    text: str
    score: float
    type: Type


@dataclasses.dataclass(frozen=True)
class Model:
    """A `.model` file.

    Attributes:
      pieces: by id.
      algorithm: how text is cut into them.
      byte_fallback: whether unknown characters become their bytes.
      space_after: whether the space between words belongs to the first of them.
      characters: the table that maps characters first; empty where nothing is mapped.
      space_first: whether a space is put before a text.
      fewer_spaces: whether spaces around a text are dropped, and others become one.
    """

    pieces: tuple[Piece, ...]
    algorithm: Algorithm
    byte_fallback: bool
    space_after: bool
    characters: bytes
    space_first: bool
    fewer_spaces: bool


def parse(content: bytes) -> Model:
    """Parses the content of a file that the `sentencepiece` library has opened.

    Raises:
      ValueError: the library has overlooked damage.
    """
    try:
        return _parsed(content)
    except (IndexError, TypeError, AttributeError, struct.error) as error:
        raise ValueError(f"the SentencePiece model is damaged: {error!r}") from error


def _parsed(content: bytes) -> Model:
    pieces = []
    trainer: dict[int, Any] = {}
    normalizer: dict[int, Any] = {}
    for field, value in _fields(content):
        if field == _PIECE:
            pieces.append(_piece(dict(_fields(value))))
        elif field == _TRAINER:  # a repeated field adds to the earlier one
            trainer.update(_fields(value))
        elif field == _NORMALIZER:
            normalizer.update(_fields(value))
    return Model(
        pieces=tuple(pieces),
        algorithm=Algorithm(trainer.get(_ALGORITHM, Algorithm.UNIGRAM)),
        byte_fallback=bool(trainer.get(_BYTE_FALLBACK, False)),
        space_after=bool(trainer.get(_SPACE_AFTER, False)),
        characters=normalizer.get(_CHARACTERS, b""),
        space_first=bool(normalizer.get(_SPACE_FIRST, True)),
        fewer_spaces=bool(normalizer.get(_FEWER_SPACES, True)),
    )


def _piece(fields: dict[int, Any]) -> Piece:
    (score,) = struct.unpack("<f", fields.get(_SCORE, bytes(4)))
    return Piece(fields.get(_TEXT, b"").decode(), score, Type(fields.get(_TYPE, Type.NORMAL)))


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Numbers and values of a serialised message: whole numbers, or bytes."""
    place = 0

    def number() -> int:
        nonlocal place
        value = shift = 0
        while True:
            byte = message[place]
            place += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > _MOST_BITS:
                raise ValueError("the SentencePiece model is damaged: a number has no end")

    while place < len(message):
        key = number()
        if key & 7 == 0:
            yield key >> 3, number()
            continue
        size = {1: 8, 5: 4}.get(key & 7) or number()
        yield key >> 3, message[place : place + size]
        place += size
