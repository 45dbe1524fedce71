"""Lower-cased vocabularies: how they are recognised, and ALBERT's clean-up of text."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence

from t5x_like.vocabularies import special_tokens

_ALBERT = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")


def has_no_capitals(tokens: Iterable[str]) -> bool:
    """Whether no token except special ones, such as `[MASK]`, has a capital letter."""
    return not any(
        token != token.lower() for token in tokens if not special_tokens.is_special(token)
    )


def is_alberts(pieces: Sequence[str]) -> bool:
    """Whether a SentencePiece model is ALBERT's, which was trained on cleaned-up text.

    The file does not say so: it begins with ALBERT's special tokens and has no capitals.
    """
    return tuple(pieces[: len(_ALBERT)]) == _ALBERT and has_no_capitals(pieces)


def alberts(text: str) -> str:
    """Text as ALBERT reads it: plain quotes, no accents, lower case.

    The model file normalises the rest (Unicode NFKC, white space).
    """
    text = text.replace("``", '"').replace("''", '"')
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKD", text).translate(_PLAIN)


class _Plain(dict[int, str | None]):
    """A table for `str.translate` that fills itself: removes marks, lower-cases letters."""

    def __missing__(self, code_point: int) -> str | None:
        character = chr(code_point)
        is_mark = unicodedata.category(character).startswith("M")
        self[code_point] = None if is_mark else character.lower()
        return self[code_point]


_PLAIN = _Plain()
