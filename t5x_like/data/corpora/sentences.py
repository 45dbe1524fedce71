"""The sentences of a line by a language's rules. Together they hold every character of the line.

`sentencex` finds them. It knows the abbreviations and sentence ends of some 300 languages, and cuts
other languages by the rules of a related language or of English.
"""

from __future__ import annotations

import importlib.metadata
import itertools
import re
from collections.abc import Mapping

LINES = "lines"
"""A value in place of a language, for text with one sentence on each line: a segment is a line."""
DEFAULT = "en"

_CODE = re.compile(r"[a-z]{2,3}(-[a-z0-9]+)*")
# sentencex reads backwards from a full stop byte by byte, and fails inside such a space.
_WIDE_SPACE = re.compile(r"[^\S ]")


def check(sentences: object, corpus: object) -> None:
    """Raises ValueError unless `sentences` is a language, `LINES`, or one each for a mixture."""
    if isinstance(sentences, Mapping):
        mixed = sorted(corpus) if isinstance(corpus, Mapping) else []
        if mixed != sorted(sentences):
            raise ValueError(
                f"SENTENCES names {', '.join(sorted(sentences))}, but CORPUS is a mixture of "
                f"{', '.join(mixed) or 'nothing'}: give a language for each, or one for all"
            )
    for code in sentences.values() if isinstance(sentences, Mapping) else [sentences]:
        if not isinstance(code, str) or not (code == LINES or _CODE.fullmatch(code)):
            raise ValueError(
                f"SENTENCES is the code of a language, such as 'en' or 'zh', or '{LINES}' for text "
                f"with one sentence on each line, not {code!r}"
            )


def language(sentences: str | Mapping[str, str], name: str | None) -> str:
    """The language of the corpus of this name in a mixture."""
    return sentences if isinstance(sentences, str) else sentences[name or ""]


def rule(sentences: str) -> str:
    """The name of the rule by which text is cut. Another rule makes another cache."""
    if sentences == LINES:
        return "lines-v2"
    return f"sentences-v1 {sentences}, sentencex {importlib.metadata.version('sentencex')}"


def language_of_rule(name: str | None) -> str | None:
    """The language in the name that `rule` gives; None where lines, or nothing, was cut."""
    match = re.match(r"sentences-\S+ (\S+),", name or "")
    return match[1] if match else None


def of_line(line: str, language: str) -> list[str]:
    """The sentences of a line, or of a part of a long line. Joined, they equal the line.

    White space between two sentences belongs to the second, because byte-level BPE puts it there.
    """
    import sentencex

    parts = sentencex.segment(language, _WIDE_SPACE.sub(" ", line.rstrip("\n")))
    if len(parts) < 2:
        return [line]
    ends = itertools.accumulate(map(len, parts))
    # White space alone does not make a sentence.
    cuts = [end - len(text) + len(text.rstrip()) for end, text in zip(ends, parts, strict=True)]
    solid = [cut for cut, text in zip(cuts[:-1], parts[:-1], strict=True) if text.strip()]
    if solid and not line[solid[-1] :].strip():
        solid.pop()
    return [line[a:b] for a, b in itertools.pairwise([0, *solid, len(line)])]
