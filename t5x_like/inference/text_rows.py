"""Texts as rows of tokens, framed as in a family's tokenizer, and batches of like length."""

from __future__ import annotations

import dataclasses
import itertools
import re
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from t5x_like.core.protocols.data import GoesOn, TokenIds, Vocabulary
from t5x_like.objectives.supervised import frames

ROWS = 8
"""How many texts are read at once."""
_SHORTEST = 16
_MASK = re.compile(r"\[MASK\]|<mask>")


class Row(NamedTuple):
    """The tokens of one or two texts, special ones included.

    Attributes:
      tokens: the ids.
      truncated: whether a text was too long and lost its end, or its beginning.
      types: the type of each token, such as 1 in a BERT's second text.
      second: the place of the second text's first token.
    """

    tokens: list[int]
    truncated: bool
    types: list[int]
    second: int = 0


@dataclasses.dataclass(frozen=True)
class Framing:
    """How texts become a row of a model.

    Attributes:
      vocabulary: the model's.
      template: the tokens around a text, as a template of `objectives.supervised.frames`.
      pair: the tokens around two texts.
      max_length: the most tokens of a row; the last text loses its last ones. None for any number.
      keeps_end: whether a text that is too long loses its first tokens instead, as one that is
        continued does.
      token_types: whether the model reads the types of tokens.
      masks: whether a written [MASK] or <mask> is the vocabulary's mask; otherwise it is text.
    """

    vocabulary: Vocabulary
    template: str
    pair: str = "A:0 B:0"
    max_length: int | None = None
    keeps_end: bool = False
    token_types: bool = False
    masks: bool = False

    @property
    def ids(self) -> TokenIds:
        """The vocabulary's special ids."""
        return self.vocabulary.token_ids

    @property
    def before(self) -> list[int]:
        """The tokens that come before a text."""
        parts = frames.parts(self.template, {"A": ()}, self.ids)
        first = itertools.takewhile(lambda part: part[0] != "A", parts)
        return [token for _, tokens, _ in first for token in tokens]

    @property
    def room(self) -> int | None:
        """The most tokens of a text; None for any number."""
        if self.max_length is None:
            return None
        parts = frames.parts(self.template, {"A": ()}, self.ids)
        return self.max_length - sum(len(tokens) for _, tokens, _ in parts)

    def is_text(self, token: int) -> bool:
        """Whether a token stands for text, known or not."""
        return is_text(token, self.ids)

    def text(self, text: str, second: str | None = None) -> Row:
        """The row of a text, or of two."""
        return self.row(self._tokens(text), None if second is None else self._tokens(second))

    def _tokens(self, text: str) -> list[int]:
        if self.masks and self.ids.mask is not None:
            return with_masks(_MASK.split(text), self.vocabulary)
        return self.vocabulary.encode(text)

    def row(self, first: Sequence[int], second: Sequence[int] | None = None) -> Row:
        """The row of the tokens of a text, or of two.

        Raises:
          ValueError: there is no room for a token.
        """
        texts = {"A": list(first), "B": list(second or ())}
        template = self.template if second is None else self.pair
        parts = [(tokens, kind) for _, tokens, kind in frames.parts(template, texts, self.ids)]
        over = sum(len(part) for part, _ in parts) - (self.max_length or sys.maxsize)
        last = texts["A" if second is None else "B"]
        if over > 0:
            if over >= len(last):
                raise ValueError(
                    f"rows of {self.max_length} tokens have no room for "
                    + ("a text" if second is None else "a token of the second text")
                )
            del last[slice(over) if self.keeps_end else slice(-over, None)]
        before = itertools.takewhile(lambda part: part[0] is not texts["B"], parts)
        return Row(
            [token for part, _ in parts for token in part],
            over > 0,
            [kind for part, kind in parts for _ in part],
            0 if second is None else sum(len(part) for part, _ in before),
        )

    def batches(self, rows: Sequence[Row], size: int) -> Iterator[Batch]:
        """`batches` of `size` rows, with the types of tokens where the model reads them."""
        tokens = [row.tokens for row in rows]
        for batch in batches(tokens, pad=self.ids.pad, size=size, max_length=self.max_length):
            if not self.token_types:
                yield batch
                continue
            types = np.zeros_like(batch.tokens)
            for place, n in enumerate(batch.numbers):
                types[place, : len(rows[n].types)] = rows[n].types
            yield batch._replace(types=types)


def is_text(token: int, ids: TokenIds) -> bool:
    """Whether a token stands for text, known or not."""
    return token == ids.unk or token not in ids.special


def with_masks(parts: Sequence[str], vocabulary: Vocabulary) -> list[int]:
    """Tokens of the parts of a text, with a mask between each two; spaces before it are dropped."""
    *before, last = parts
    texts = [*(part.rstrip(" ") for part in before), last]
    tokens = [*vocabulary.encode(texts[0])]
    for text in texts[1:]:
        tokens.append(vocabulary.token_ids.given("mask"))
        if isinstance(vocabulary, GoesOn):
            tokens += [int(token) for token in vocabulary.encode_following([text])[0]]
        else:
            tokens += vocabulary.encode(text)
    return tokens


def in_line(tokens: Sequence[int], vocabulary: Vocabulary) -> str:
    """The text that tokens add to a line, with the space before it if they begin a word."""
    line = vocabulary.encode("a")
    return vocabulary.decode([*line, *tokens]).removeprefix(vocabulary.decode(line))


def beginning(ids: TokenIds) -> list[int]:
    """The token before a text that follows nothing: the end of a text, or a text's first token.

    It is empty where the vocabulary has neither.
    """
    return [token for token in (ids.eos, ids.bos, ids.cls) if token is not None][:1]


class Batch(NamedTuple):
    """Rows of like length: their numbers, their tokens, and what of these counts.

    `tokens`, `counts` (1 for tokens, 0 for padding) and `types` (None where the model reads none)
    are int32 [rows, length]; missing rows are padding.
    """

    numbers: list[int]
    tokens: np.ndarray
    counts: np.ndarray
    types: np.ndarray | None = None

    @property
    def of_types(self) -> dict[str, np.ndarray]:
        """The types of tokens, where the model reads them."""
        return {} if self.types is None else {"encoder_token_type_ids": self.types}

    @property
    def of_encoder(self) -> dict[str, np.ndarray]:
        """The input of an encoder."""
        tokens, counts = self.tokens, self.counts
        return {
            "encoder_input_tokens": tokens,
            "encoder_attention_mask": counts,
            **self.of_types,
        }


def batches(
    rows: Sequence[Sequence[int]],
    *,
    pad: int,
    size: int = ROWS,
    max_length: int | None = None,
    left: bool = False,
) -> Iterator[Batch]:
    """Batches of `size` rows, the longest rows first.

    Lengths are rounded up, to at most a third more, so that few shapes are compiled.

    Args:
      rows: tokens.
      pad: the id of padding.
      size: the rows of a batch.
      max_length: the most tokens that a batch may be rounded up to; None for any number.
      left: whether padding comes before a row, not after it.
    """
    order = sorted(range(len(rows)), key=lambda n: (-len(rows[n]), n))
    for start in range(0, len(order), size):
        numbers = order[start : start + size]
        longest = len(rows[numbers[0]])
        length = bucket(longest)
        if max_length is not None:
            length = max(longest, min(length, max_length))
        tokens = np.full((size, length), pad, np.int32)
        counts = np.zeros((size, length), np.int32)
        for place, n in enumerate(numbers):
            where = slice(length - len(rows[n]), None) if left else slice(len(rows[n]))
            tokens[place, where], counts[place, where] = rows[n], 1
        yield Batch(numbers, tokens, counts)


def bucket(length: int) -> int:
    """The least of 16, 24, 32, 48, 64, 96, ... that is at least `length`."""
    size = _SHORTEST
    while size < length:
        size = size * 3 // 2 if size & (size - 1) == 0 else size * 4 // 3
    return size


def whole_rows(framing: Framing, texts: Sequence[str]) -> list[Row]:
    """The rows of texts.

    Raises:
      ValueError: one of them would be cut.
    """
    rows = [framing.text(text) for text in texts]
    for text, row in zip(texts, rows, strict=True):
        if row.truncated:
            raise ValueError(
                f"{text[:60]!r} has more tokens than the model has positions: at most "
                f"{framing.max_length}"
            )
    return rows
