"""Facts about a piece from its text: if it begins a word or ends a sentence, and how to show it.

All vocabularies have one rule: a piece begins a word where its text begins with white space or a
character of a script without spaces between words (Chinese, Japanese, Thai, ...): there every
piece is a word. SentencePiece and WordPiece vocabularies mark it in the piece (`▁`, no `##`). In
them, as in ALBERT and XLNet, punctuation is a separate word; an apostrophe belongs to the word
before it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np

from t5x_like.vocabularies.text import unicode_rules

SPACE = "▁"
_APOSTROPHES = "'\u2019"


def marks(
    texts: Sequence[str | None], *, vocab_size: int, punctuation: bool = False
) -> dict[str, Any]:
    """`word_starts` and `full_stops` of `TokenIds`, bool [vocab_size] each.

    Args:
      texts: the text of each id from 0 on, white space included; bytes of incomplete characters are
        lone surrogates; None for ids without text.
      vocab_size: ids beyond `texts` have no text.
      punctuation: whether pieces of punctuation only begin a word.
    """
    starts, stops = np.zeros([2, vocab_size], dtype=bool)
    for i, text in enumerate(texts):
        if text:
            starts[i] = (
                text[0].isspace()
                or unicode_rules.begins_unspaced(text)
                or (punctuation and is_punctuation(text))
            )
            stops[i] = unicode_rules.ends_sentence(text.strip())
    return {"word_starts": starts, "full_stops": stops}


def is_punctuation(text: str) -> bool:
    """Whether the whole text is punctuation or symbols (Unicode P and S), without apostrophes."""
    return all(unicodedata.category(c)[0] in "PS" and c not in _APOSTROPHES for c in text)


def check_id(i: int, vocab_size: int) -> None:
    """Raises IndexError where a vocabulary has no id `i`."""
    if not 0 <= i < vocab_size:
        raise IndexError(f"no id {i}: this vocabulary has {vocab_size} ids, 0 to {vocab_size - 1}")


def readable(data: bytes) -> str:
    """UTF-8 text in readable form: `▁` for a space, `<0x0A>` for a byte that shows nothing."""
    return "".join(map(_shown, data.decode(errors="surrogateescape")))


def _shown(character: str) -> str:
    if character == " ":
        return SPACE
    if character.isprintable():
        return character
    return "".join(f"<0x{byte:02X}>" for byte in character.encode(errors="surrogateescape"))
