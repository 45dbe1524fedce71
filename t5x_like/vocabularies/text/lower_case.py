"""Lower-cased vocabularies: how they are recognised, and ALBERT's clean-up of text."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from t5x_like.vocabularies import special_tokens

_ALBERT = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")

_QUOTES_OR_CHARACTERS = re.compile("``|''|.", re.DOTALL)
_LOOKED_AT = 10_000
"""So many texts are looked at for marks."""
_NOTABLE = 0.005
"""Where so many words lose marks, it is said."""
_SHOWN = 3


def marks_lost(texts: Sequence[str]) -> Iterator[str]:
    """A line about words from which BERT's lower-casing takes marks, if more than one in 200 is.

    Marks are accents, umlauts, vowel signs, tones; they often tell words apart.
    """
    words = [word for text in texts[:_LOOKED_AT] for word in text.split()]
    marked = [word for word in words if not word.isascii() and without_marks(word) != word.lower()]
    if len(marked) > _NOTABLE * len(words):
        often = [word for word, _ in Counter(marked).most_common(_SHOWN)]
        shown = ", ".join(f"{word} becomes {without_marks(word)}" for word in often)
        yield (
            f"Note: lower-casing as in BERT takes accents, vowel signs or tones from "
            f"{len(marked) / len(words):.1%} of the words ({shown}): "
            "VocabularyChoice.strip_accents=False, or `t5x_like vocab --keep_accents`, keeps them."
        )


def without_marks(word: str) -> str:
    """A word as BERT lower-cases it."""
    decomposed = unicodedata.normalize("NFD", word)
    letters = (character for character in decomposed if unicodedata.category(character) != "Mn")
    return unicodedata.normalize("NFC", "".join(letters)).lower()


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


def alberts_with_places(text: str) -> tuple[str, list[int], list[int]]:
    """`alberts(text)`, and for each of its characters where that of the text begins and ends."""
    cleaned: list[str] = []
    begins: list[int] = []
    ends: list[int] = []
    for match in _QUOTES_OR_CHARACTERS.finditer(text):
        plain = alberts(match[0])
        cleaned.append(plain)
        begins += [match.start()] * len(plain)
        ends += [match.end()] * len(plain)
    return "".join(cleaned), begins, ends


class _Plain(dict[int, str | None]):
    """A table for `str.translate` that fills itself: removes marks, lower-cases letters."""

    def __missing__(self, code_point: int) -> str | None:
        character = chr(code_point)
        is_mark = unicodedata.category(character).startswith("M")
        self[code_point] = None if is_mark else character.lower()
        return self[code_point]


_PLAIN = _Plain()
