"""Fills the blanks of texts, `<extra_id_n>` or `___`, with a span-corruption model."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from t5x_like.core.protocols import Vocabulary

_UNNUMBERED = re.compile(r"_{3,}")
_BLANK = re.compile(r"<extra_id_(\d+)>")
_LENGTH_STEP = 64  # input lengths are rounded up to it, so that few shapes are compiled


@dataclasses.dataclass(frozen=True)
class Filled:
    """A text, what the model put into each of its blanks, in order, and both together."""

    text: str
    blanks: tuple[str, ...]
    filled: str

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def fill(
    texts: Iterable[str],
    vocabulary: Vocabulary,
    *,
    generate: Callable[[np.ndarray], np.ndarray],
    batch_size: int = 8,
) -> Iterator[Filled]:
    """Fills `batch_size` texts at a time.

    Args:
      texts: each with at least one blank; blanks without a number get the lowest free ones.
      vocabulary: the model's.
      generate: turns int32 [batch_size, length] encoder tokens, padded with 0, into int32
        [batch_size, ...] decoder tokens, as `decoding.greedy` does.
      batch_size: the rows of every call of `generate`; missing rows are padding.

    Raises:
      ValueError: a text has no blank, or more than the vocabulary has sentinels.
    """
    numbered = ((text, number_blanks(text)) for text in texts)
    while rows := list(itertools.islice(numbered, batch_size)):
        inputs = [_encode(with_numbers, vocabulary) for _, with_numbers in rows]
        length = -(-max(map(len, inputs)) // _LENGTH_STEP) * _LENGTH_STEP
        tokens = np.zeros((batch_size, length), np.int32)
        for row, ids in zip(tokens, inputs, strict=False):
            row[: len(ids)] = ids
        outputs = np.asarray(generate(tokens))
        for (text, with_numbers), output in zip(rows, outputs, strict=False):
            yield _filled(text, with_numbers, output=output, vocabulary=vocabulary)


def number_blanks(text: str) -> str:
    """The text with each `___` replaced by `<extra_id_n>`; n counts over the unused numbers.

    Raises:
      ValueError: the text has no blank of either kind.
    """
    taken = set(map(int, _BLANK.findall(text)))
    free = (n for n in itertools.count() if n not in taken)
    text, found = _UNNUMBERED.subn(lambda _: f"<extra_id_{next(free)}>", text)
    if not found and not taken:
        raise ValueError(
            f"no blank in {text[:60]!r}: write ___ or <extra_id_0> where one should be"
        )
    return text


def _encode(text: str, vocabulary: Vocabulary) -> list[int]:
    eos = vocabulary.token_ids.eos
    return vocabulary.encode_with_sentinels(text) + ([] if eos is None else [eos])


def _filled(text: str, with_numbers: str, *, output: np.ndarray, vocabulary: Vocabulary) -> Filled:
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
    output: Sequence[int] | np.ndarray, vocabulary: Vocabulary, *, numbers: Sequence[int]
) -> dict[int, str]:
    """The text after each sentinel of `numbers` in decoder tokens; empty where it does not occur.

    Text keeps the space before it if the tokens say that a word begins. The sentinel after the last
    one ends its span.
    """
    ids = vocabulary.token_ids
    # Only sentinels that may occur: a byte vocabulary's others are bytes of text.
    sentinels = {ids.sentinel(n): n for n in [*numbers, max(numbers) + 1]}
    spans: dict[int, list[int]] = {n: [] for n in sentinels.values()}
    current: list[int] = []
    for token in map(int, output):
        if token in (ids.eos, ids.pad):
            break
        if token in sentinels:
            current = spans[sentinels[token]]
        else:
            current.append(token)
    return {n: _text(n, spans[n], vocabulary) for n in numbers}


def _text(number: int, span: list[int], vocabulary: Vocabulary) -> str:
    # Decoded after its sentinel: otherwise a space at its start is taken for the text's start.
    decoded = vocabulary.decode([vocabulary.token_ids.sentinel(number), *span])
    return decoded.removeprefix(f"<extra_id_{number}>")


def _blank_takes_space(vocabulary: Vocabulary) -> bool:
    """Whether the space before a blank is part of what it hides (SentencePiece, not bytes)."""
    with_space, without = map(vocabulary.encode_with_sentinels, ("a <extra_id_0>", "a<extra_id_0>"))
    return with_space == without
