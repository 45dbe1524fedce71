"""Which characters belong to scripts without spaces between words, and which end sentences."""

from __future__ import annotations

import functools
import unicodedata

# The scripts, as the names of their characters begin.
_WITHOUT_SPACES = (
    "CJK",
    "IDEOGRAPHIC",
    "HIRAGANA",
    "KATAKANA",
    "HALFWIDTH",
    "FULLWIDTH",
    "BOPOMOFO",
    "YI SYLLABLE",
    "THAI",
    "LAO",
    "KHMER",
    "MYANMAR",
    "TIBETAN",
    "TAI ",
    "NEW TAI",
    "JAVANESE",
    "BALINESE",
)
# Lead bytes in UTF-8 that only these scripts have: U+3000 to U+9FFF.
_LEADS = range(0xE3, 0xEA)
# U+0E00 to U+0FFF (Thai, Lao and Tibetan) and U+1000 to U+109F (Myanmar): the first two bytes.
_PAIRS = {(0xE0, second) for second in range(0xB8, 0xC0)} | {(0xE1, 0x80), (0xE1, 0x81)}

# Unicode's property Sentence_Terminal, and the Khmer full stop.
_TERMINAL = frozenset(
    "!.?\u0589\u061d\u061e\u061f\u06d4\u0700\u0701\u0702\u07f9\u0837\u0839\u083d\u083e\u0964"
    "\u0965\u104a\u104b\u1362\u1367\u1368\u166e\u1735\u1736\u17d4\u17d5\u1803\u1809\u1944"
    "\u1945\u1aa8\u1aa9\u1aaa\u1aab\u1b5a\u1b5b\u1b5e\u1b5f\u1c3b\u1c3c\u1c7e\u1c7f\u203c"
    "\u203d\u2047\u2048\u2049\u2e2e\u2e3c\u3002\ua4ff\ua60e\ua60f\ua6f3\ua6f7\ua876\ua877"
    "\ua8ce\ua8cf\ua92f\ua9c8\ua9c9\uaa5d\uaa5e\uaa5f\uaaf0\uaaf1\uabeb\ufe52\ufe56\ufe57"
    "\uff01\uff0e\uff1f\uff61"
)


@functools.lru_cache(1 << 16)
def is_unspaced(character: str) -> bool:
    """Whether its script has no spaces between words; false for combining marks."""
    name = unicodedata.name(character, "")
    return name.startswith(_WITHOUT_SPACES) and not unicodedata.category(character).startswith("M")


def begins_unspaced(text: str) -> bool:
    """Whether the text begins with a character of such a script, or with some bytes of one.

    Bytes of incomplete characters are lone surrogates in `text` (`errors="surrogateescape"`). It
    takes two bytes to recognise Thai, Lao, Tibetan and Myanmar, one for Chinese and Japanese, and
    three for the others.
    """
    first, second = (_byte(text[i : i + 1]) for i in (0, 1))
    if first is None:
        return is_unspaced(text[0])
    return first in _LEADS or (first, second) in _PAIRS


def _byte(character: str) -> int | None:
    """The byte that a lone surrogate stands for."""
    return ord(character) - 0xDC00 if "\udc80" <= character <= "\udcff" else None


def ends_sentence(text: str) -> bool:
    """Whether the text is nothing but marks that end a sentence: `.`, `?!`, Hindi's danda, ..."""
    return bool(text) and all(character in _TERMINAL for character in text)
