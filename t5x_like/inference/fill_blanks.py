"""Fills the blanks of texts, `<extra_id_n>` or `___`, with a span-corruption model."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from t5x_like.core.protocols.data import TokenIds, Vocabulary
from t5x_like.inference.writing import Writing

_UNNUMBERED = re.compile(r"_{3,}|\[MASK\]|<mask>")
_BLANK = re.compile(r"<extra_id_(\d+)>")


@dataclasses.dataclass(frozen=True)
class Filled:
    """A text, what the model put into each of its blanks, in order, and both together.

    There are no `blanks` of a model that writes the whole text again (`rewriting`).
    """

    text: str
    blanks: tuple[str, ...]
    filled: str


@dataclasses.dataclass(frozen=True)
class Blanks(Writing):
    """The predictor of span-corruption models (`predictions.Predictor`)."""

    def check(self, record: Mapping[str, Any]) -> None:
        """Raises ValueError where a text has no blank, too many, or too many tokens."""
        self._row(record["inputs"], self._numbered(record["inputs"]))

    def __call__(self, records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """`filled`, and `blanks`: what the model put into each."""
        texts = self.fill([record["inputs"] for record in records])
        return [{"filled": text.filled, "blanks": [*text.blanks]} for text in texts]

    def fill(self, texts: Sequence[str]) -> list[Filled]:
        """Texts with what the model writes into their blanks.

        Raises:
          ValueError: a text has no blank, more than there are sentinels, or too many tokens.
        """
        vocabulary = self.framing.vocabulary
        numbered = [self._numbered(text) for text in texts]
        rows = [self._row(*pair) for pair in zip(texts, numbered, strict=True)]
        written = self.writer(rows)
        return [
            _filled(text, with_numbers, output=best.tokens, vocabulary=vocabulary)
            for text, with_numbers, (best, *_) in zip(texts, numbered, written, strict=True)
        ]

    def _row(self, text: str, numbered: str) -> list[int]:
        row = self.framing.row(self.framing.vocabulary.encode_with_sentinels(numbered))
        if row.truncated:  # a blank might be lost
            raise ValueError(
                f"{text[:60]!r} has more tokens than the model reads: {self.framing.max_length}"
            )
        return row.tokens

    def _numbered(self, text: str) -> str:
        numbered = number_blanks(text)
        if (most := max(map(int, _BLANK.findall(numbered)))) >= (self.framing.ids.sentinels or 0):
            raise ValueError(
                f"{text[:60]!r} has blank {most}, but the vocabulary has "
                f"{self.framing.ids.sentinels or 0} sentinels"
            )
        return numbered


def has_blank(text: str) -> bool:
    """Whether a text has a blank of any kind."""
    return bool(_UNNUMBERED.search(text) or _BLANK.search(text))


def number_blanks(text: str) -> str:
    """The text with each `___` or `[MASK]` as `<extra_id_n>`; n counts over the unused numbers.

    Raises:
      ValueError: the text has no blank of either kind.
    """
    taken = set(map(int, _BLANK.findall(text)))
    free = (n for n in itertools.count() if n not in taken)
    text, replaced = _UNNUMBERED.subn(lambda _: f"<extra_id_{next(free)}>", text)
    if not replaced and not taken:
        raise ValueError(
            f"no blank in {text[:60]!r}: write ___ or <extra_id_0> where one should be"
        )
    return text


def _filled(
    text: str, with_numbers: str, *, output: Sequence[int], vocabulary: Vocabulary
) -> Filled:
    pieces = _BLANK.split(with_numbers)
    numbers = list(map(int, pieces[1::2]))
    spans = spans_of(output, vocabulary, numbers=numbers)
    takes_space = _blank_takes_space(vocabulary)
    filled = ""
    for before, number in zip(pieces[::2], numbers, strict=False):
        span = spans[number]
        filled += before.rstrip(" ") if takes_space else before
        begins_line = not filled or filled.endswith("\n")
        filled += span.lstrip() if begins_line else span
    return Filled(text, tuple(spans[n].strip() for n in numbers), filled + pieces[-1])


def spans_of(
    output: Sequence[int], vocabulary: Vocabulary, *, numbers: Sequence[int]
) -> dict[int, str]:
    """The text after each sentinel of `numbers` in decoder tokens; empty where it does not occur.

    Text keeps the space before it if the tokens say that a word begins.
    """
    spans = token_spans(output, vocabulary.token_ids, numbers=numbers)
    return {n: _text(n, span, vocabulary) for n, span in spans.items()}


def token_spans(
    output: Sequence[int], ids: TokenIds, *, numbers: Sequence[int]
) -> dict[int, list[int]]:
    """The tokens after each sentinel of `numbers`. The sentinel after the last ends its span."""
    # Only sentinels that may occur: a byte vocabulary's others are bytes of text.
    sentinels = {ids.sentinel(n): n for n in [*numbers, max(numbers) + 1]}
    spans: dict[int, list[int]] = {n: [] for n in sentinels.values()}
    current: list[int] = []
    for token in map(int, output):
        if token == ids.eos:
            break
        if token in sentinels:
            current = spans[sentinels[token]]
        else:
            current.append(token)
    return {n: spans[n] for n in numbers}


def _text(number: int, span: list[int], vocabulary: Vocabulary) -> str:
    # Decoded after its sentinel: otherwise a space at its start is taken for the text's start.
    decoded = vocabulary.decode([vocabulary.token_ids.sentinel(number), *span])
    return decoded.removeprefix(f"<extra_id_{number}>")


def _blank_takes_space(vocabulary: Vocabulary) -> bool:
    """Whether the space before a blank is part of what it hides (SentencePiece, not bytes)."""
    with_space, without = map(vocabulary.encode_with_sentinels, ("a <extra_id_0>", "a<extra_id_0>"))
    return with_space == without
