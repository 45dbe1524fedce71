"""The sentences of a line, by a language's rules, with every character of it.

They are found by `sentencex`, which knows abbreviations and the ends of sentences of some 300
languages; one that it does not know is cut by the rules of a related one, or of English.
"""

from __future__ import annotations

import importlib.metadata
import itertools
import re
from collections.abc import Mapping

LINES = "lines"
"""In place of a language: a segment is a line, of text that has a sentence a line."""
DEFAULT = "en"

_CODE = re.compile(r"[a-z]{2,3}(-[a-z0-9]+)*")
# It looks before a full stop byte by byte, and fails where it meets a part of such a space.
_WIDE_SPACE = re.compile(r"[^\S ]")


def check(sentences: object, corpus: object) -> None:
    """Raises ValueError where this is no language, nor `LINES`, nor one each for a mixture."""
    if isinstance(sentences, Mapping):
        mixed = sorted(corpus) if isinstance(corpus, Mapping) else []
        if mixed != sorted(sentences):
            raise ValueError(
                f"SENTENCES names {', '.join(sorted(sentences))}, and CORPUS is a mixture of "
                f"{', '.join(mixed) or 'nothing'}: give a language for each, or one for all"
            )
    for one in sentences.values() if isinstance(sentences, Mapping) else [sentences]:
        if not isinstance(one, str) or not (one == LINES or _CODE.fullmatch(one)):
            raise ValueError(
                f"SENTENCES is the code of a language, such as 'en' or 'zh', or '{LINES}' for text "
                f"that has a sentence a line, not {one!r}"
            )


def language(sentences: str | Mapping[str, str], name: str | None) -> str:
    """What is said of the corpus of this name, where it is one of a mixture."""
    return sentences if isinstance(sentences, str) else sentences[name or ""]


def rule(sentences: str) -> str:
    """Names how text is cut; another rule makes another cache."""
    if sentences == LINES:
        return "lines-v2"
    return f"sentences-v1 {sentences}, sentencex {importlib.metadata.version('sentencex')}"


def of_line(line: str, language: str) -> list[str]:
    """The sentences of a line, or of a long line's part; joined, they are the line.

    The white space between two is at the second's beginning, where byte-level BPE has it.
    """
    import sentencex

    found = sentencex.segment(language, _WIDE_SPACE.sub(" ", line.rstrip("\n")))
    if len(found) < 2:
        return [line]
    ends = itertools.accumulate(map(len, found))
    # Nothing but white space is no sentence.
    cuts = [end - len(text) + len(text.rstrip()) for end, text in zip(ends, found, strict=True)]
    solid = [cut for cut, text in zip(cuts[:-1], found[:-1], strict=True) if text.strip()]
    if solid and not line[solid[-1] :].strip():
        solid.pop()
    return [line[a:b] for a, b in itertools.pairwise([0, *solid, len(line)])]
