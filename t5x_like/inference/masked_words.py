"""Guesses the blanks of a text, `[MASK]` or `___`, with a masked language model."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from t5x_like.core.abilities import GuessesMasked, can
from t5x_like.core.protocols.data import Vocabulary
from t5x_like.inference import text_rows
from t5x_like.inference.model_on_mesh import ModelOnMesh
from t5x_like.inference.text_rows import Framing

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch

_BLANK = re.compile(r"_{3,}|\[MASK\]|<mask>")


class Guess(NamedTuple):
    """A token for a blank, as text, its probability, and whether it begins a word."""

    token: str
    probability: float
    begins_word: bool


class Guesses(NamedTuple):
    """A text, the likeliest tokens of each blank, and the text filled with the first ones."""

    text: str
    blanks: tuple[tuple[Guess, ...], ...]
    filled: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class MaskedWords:
    """The predictor of models that guess masked tokens (`predictions.Predictor`).

    Attributes:
      model: a BERT or a relative, an ELECTRA (its generator), or an XLNet.
      framing: of texts.
      k: the number of guesses for a blank, of all tokens at most.
      batch_size: the texts of a batch.
    """

    model: ModelOnMesh
    framing: Framing
    k: int = 1
    batch_size: int = text_rows.ROWS

    def check(self, record: Mapping[str, Any]) -> None:
        """Raises ValueError where a text has no blank, or a blank that the model does not read."""
        masked_row(record["inputs"], self.framing)

    def __call__(self, records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """`filled`, and the `blanks`: lists of `token`, `probability` and `begins_word`."""
        texts = [record["inputs"] for record in records]
        cut = [masked_row(text, self.framing).truncated for text in texts]
        return [
            {
                "filled": text.filled,
                "blanks": [[guess._asdict() for guess in blank] for blank in text.blanks],
            }
            | ({"truncated": True} if truncated else {})
            for text, truncated in zip(self.guesses(texts), cut, strict=True)
        ]

    def guesses(self, texts: Sequence[str]) -> list[Guesses]:
        """The `k` likeliest tokens of each blank; blanks of one text are guessed independently.

        Raises:
          ValueError: the model predicts no masked tokens, the vocabulary has no mask, or a text has
            no blank, or one that the model does not read because the text is too long.
        """
        if not can(self.model.model, GuessesMasked):
            raise ValueError(f"a {type(self.model.model).__name__} predicts no masked tokens")
        vocabulary, ids = self.framing.vocabulary, self.framing.ids
        parts = [_BLANK.split(text) for text in texts]
        rows = [masked_row(text, self.framing) for text in texts]
        guessed: list[Guesses | None] = [None] * len(texts)
        for batch in self.framing.batches(rows, self.model.rows(self.batch_size)):
            logits = self.model(predictions, asked(batch, _positions(batch.tokens == ids.mask)))
            shares, best = map(
                np.asarray,
                jax.lax.top_k(
                    jax.nn.softmax(logits[..., : vocabulary.vocab_size]),
                    min(self.k, vocabulary.vocab_size),
                ),
            )
            for place, n in enumerate(batch.numbers):
                slots = range(len(parts[n]) - 1)
                blanks = tuple(
                    tuple(
                        map(self._guess, best[place, slot].tolist(), shares[place, slot].tolist())
                    )
                    for slot in slots
                )
                text = filled(parts[n], best[place, : len(slots), 0].tolist(), vocabulary)
                guessed[n] = Guesses(texts[n], blanks, text)
        return [guesses for guesses in guessed if guesses is not None]

    def _guess(self, token: int, share: float) -> Guess:
        vocabulary = self.framing.vocabulary
        text = vocabulary.piece(token).strip("▁ ").removeprefix("##")
        return Guess(text, share, _inserted(token, vocabulary).startswith(" "))


def masked_row(text: str, framing: Framing) -> text_rows.Row:
    """The row of a text with a mask at each of its blanks.

    Raises:
      ValueError: the vocabulary has no mask, or the text no blank, or one that is cut off.
    """
    if framing.ids.mask is None:
        raise ValueError("the vocabulary has no token for a mask")
    pieces = _BLANK.split(text)
    if len(pieces) == 1:
        raise ValueError(f"no blank in {text[:60]!r}: write ___ or [MASK] where one should be")
    row = framing.row(text_rows.with_masks(pieces, framing.vocabulary))
    if row.tokens.count(framing.ids.mask) < len(pieces) - 1:
        raise ValueError(
            f"{text[:60]!r} has a blank after the {framing.max_length} tokens that the "
            "model reads: shorten it"
        )
    return row


def asked(batch: text_rows.Batch, masked_positions: np.ndarray) -> dict[str, np.ndarray]:
    """The batch for `predictions`: that of an encoder, and int32 `masked_positions` [B, K].

    An XLNet also reads `blanks`, int32 [B, L], 1 at these positions: none sees another.
    """
    blanks = np.zeros_like(batch.tokens)
    np.put_along_axis(blanks, masked_positions, 1, axis=1)
    return {**batch.of_encoder, "masked_positions": masked_positions, "blanks": blanks}


def filled(parts: Sequence[str], tokens: Sequence[int], vocabulary: Vocabulary) -> str:
    """A text with a token between each two of its parts.

    A token that begins a word brings its space, and one that goes on takes the space before it
    away. Where the space changes nothing, as after a bracket in a WordPiece vocabulary, the text
    stays as it is written.
    """
    text, *others = parts
    for token, part in zip(tokens, others, strict=True):
        word = _inserted(token, vocabulary)
        bare = word.lstrip(" ")
        if word == bare:
            text = text.rstrip(" ")
        elif text and not text[-1].isspace():
            before = text.split()[-1]
            glued, apart = map(vocabulary.encode, (before + bare, f"{before} {bare}"))
            text += " " * (glued != apart)
        text += bare + part
    return text


def _inserted(token: int, vocabulary: Vocabulary) -> str:
    """The text that a token adds to a line; special tokens and sentinels add nothing."""
    ids = vocabulary.token_ids
    is_sentinel = token in map(ids.sentinel, range(ids.sentinels or 0))
    return "" if is_sentinel else text_rows.in_line([token], vocabulary)


def _positions(blanks: np.ndarray) -> np.ndarray:
    """Positions of each row's blanks, int32 [B, K]; rows with fewer repeat their last one."""
    rows = [np.flatnonzero(row) for row in blanks]
    most = max(map(len, rows))
    # A power of two, so that few shapes are compiled.
    positions = np.zeros((len(blanks), 1 << (most - 1).bit_length()), np.int32)
    for row, where in zip(positions, rows, strict=True):
        if len(where):
            row[:] = where[-1]
            row[: len(where)] = where
    return positions


@jax.jit
def predictions(model: GuessesMasked, batch: Batch) -> jax.Array:
    """Logits [B, K, V] of a batch with `masked_positions`, such as `asked` makes."""
    return model.guesses(batch)
