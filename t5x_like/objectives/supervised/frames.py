"""Special tokens around one or two texts, as the tokenizer of a family puts them.

A template is words, each a text (A, B) or the role of a special token, then its token type, such as
"cls:0 A:0 sep:0 B:1 sep:1". "begin" is <s> where the vocabulary has it, else its [CLS]. Special
tokens that a vocabulary lacks are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import TokenIds

Tokens = Sequence[int] | np.ndarray
TEXT = "cls:0 A:0 sep:0"
PAIR = "cls:0 A:0 sep:0 B:1 sep:1"
"""BERT's (section 3)."""
_TEXTS = ("A", "B")


class Frame(Protocol):
    """The special tokens of a family around a text and around two; and whether types are read.

    Attributes:
      context_first: whether a text comes before the question about it.
      no_answer: the role of the special token whose place is that of no answer; None for [CLS] or
        <s>, or else the first token.
    """

    @property
    def text(self) -> str: ...
    @property
    def pair(self) -> str: ...
    @property
    def token_types(self) -> bool: ...
    @property
    def context_first(self) -> bool: ...
    @property
    def no_answer(self) -> str | None: ...


def parts(
    template: str, texts: Mapping[str, Tokens], ids: TokenIds
) -> Iterator[tuple[str, Tokens, int]]:
    """The role, the tokens and the token type of each part of a row.

    Args:
      template: the template.
      texts: the tokens of A, and of B where the template has it.
      ids: the ids of the vocabulary.
    """
    for word in template.split():
        role, _, kind = word.partition(":")
        yield role, texts[role] if role in _TEXTS else _special(role, ids), int(kind or 0)


def framed(
    template: str, texts: Mapping[str, Tokens], ids: TokenIds
) -> tuple[np.ndarray, np.ndarray]:
    """The ids of a row and their token types, both int32 [n]; arguments are those of `parts`."""
    row = [(tokens, kind) for _, tokens, kind in parts(template, texts, ids)]
    types = [np.full(len(tokens), kind, np.int32) for tokens, kind in row]
    return (
        np.concatenate([np.asarray(tokens, np.int32) for tokens, _ in row]),
        np.concatenate(types),
    )


def text_place(template: str, ids: TokenIds) -> int:
    """The number of special tokens before the first text of a row."""
    place = 0
    for role, tokens, _ in parts(template, dict.fromkeys(_TEXTS, ()), ids):
        if role in _TEXTS:
            break
        place += len(tokens)
    return place


def specials(template: str) -> int:
    """The most special tokens that a template puts."""
    return len(template.split()) - sum(word[0] in _TEXTS for word in template.split())


def needs(template: str) -> tuple[str, ...]:
    """The fields of `TokenIds` that a template reads; "begin" is none, which has several."""
    roles = dict.fromkeys(word.partition(":")[0] for word in template.split())
    return tuple(role for role in roles if role not in (*_TEXTS, "begin"))


def _special(role: str, ids: TokenIds) -> list[int]:
    if role == "begin":
        known = (ids.bos, ids.named.get("<s>"), ids.cls)
        return [token for token in known if token is not None][:1]
    token = getattr(ids, role)
    return [] if token is None else [token]
