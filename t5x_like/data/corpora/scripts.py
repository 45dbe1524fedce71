"""The script that a text is written in, and the scripts of languages."""

from __future__ import annotations

import unicodedata
from collections import Counter

_LANGUAGES = {
    "ARABIC": "ar fa ur ps ug ckb sd",
    "ARMENIAN": "hy",
    "BENGALI": "bn as",
    "CJK": "zh ja ko",
    "CYRILLIC": "ru uk bg sr mk be kk ky mn tg tt uz",
    "DEVANAGARI": "hi mr ne sa",
    "ETHIOPIC": "am ti",
    "GEORGIAN": "ka",
    "GREEK": "el",
    "GUJARATI": "gu",
    "GURMUKHI": "pa",
    "HANGUL": "ko",
    "HEBREW": "he yi",
    "HIRAGANA": "ja",
    "KANNADA": "kn",
    "KATAKANA": "ja",
    "KHMER": "km",
    "LAO": "lo",
    "MALAYALAM": "ml",
    "MYANMAR": "my",
    "ORIYA": "or",
    "SINHALA": "si",
    "TAMIL": "ta",
    "TELUGU": "te",
    "THAI": "th",
    "TIBETAN": "bo",
}
"""Codes of languages by the script that they are written in, the most common first."""
_ALSO_LATIN = frozenset("sr kk ky tg tt uz mn ug".split())


def letters(text: str) -> Counter[str]:
    """The number of letters of each script, as Unicode names it: LATIN, CJK."""
    counts = Counter(
        unicodedata.name(letter, "").split(" ")[0] for letter in text if letter.isalpha()
    )
    counts["LATIN"] += counts.pop("FULLWIDTH", 0)
    return counts


def of_language(code: str) -> set[str]:
    """The scripts that a language is written in, by its code, such as `en` or `zh-hant`."""
    language = code.partition("-")[0]
    scripts = {script for script, languages in _LANGUAGES.items() if language in languages.split()}
    return scripts | {"LATIN"} if not scripts or language in _ALSO_LATIN else scripts


def language_of(counts: Counter[str]) -> str | None:
    """The most common language of the script with most letters; None for Latin and others."""
    script = max(counts, key=lambda name: (counts[name], name), default="")
    if counts["HIRAGANA"] + counts["KATAKANA"] > 0.1 * counts.total():
        return "ja"
    return _LANGUAGES.get(script, "").partition(" ")[0] or None
