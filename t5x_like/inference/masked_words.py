"""Guesses the blanks of a text, `[MASK]` or `___`, with a masked language model."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from t5x_like.core.protocols import GoesOn, Vocabulary
from t5x_like.inference import text_rows

if TYPE_CHECKING:
    from t5x_like.core.protocols import Batch

_BLANK = re.compile(r"_{3,}|\[MASK\]|<mask>")


class Guess(NamedTuple):
    """A token for a blank, as text, and its probability."""

    text: str
    probability: float


class Guesses(NamedTuple):
    """A text, the likeliest tokens of each blank, and the text filled with the first ones."""

    text: str
    blanks: tuple[tuple[Guess, ...], ...]
    filled: str


def fill(
    texts: Sequence[str], model: Any, vocabulary: Vocabulary, *, k: int, template: str
) -> list[Guesses]:
    """The `k` likeliest tokens of each blank; blanks of one text are guessed independently.

    Args:
      texts: each with at least one blank.
      model: predicts masked tokens: a BERT or a relative, an ELECTRA (its generator), an XLNet.
      vocabulary: the model's.
      k: the number of guesses for a blank.
      template: the tokens around a text (`text_rows.with_special_tokens`).

    Raises:
      ValueError: the model predicts no masked tokens, the vocabulary has no mask, or a text has no
        blank or is longer than the model has positions.
    """
    predict = _predictor(model)
    ids = vocabulary.token_ids
    if ids.mask is None:
        raise ValueError("the vocabulary has no token for a mask")
    parts = [_BLANK.split(text) for text in texts]
    for text, pieces in zip(texts, parts, strict=True):
        if len(pieces) == 1:
            raise ValueError(f"no blank in {text[:60]!r}: write ___ or [MASK] where one should be")
    rows = [
        text_rows.with_special_tokens(_encoded(pieces, vocabulary), ids, template)
        for pieces in parts
    ]
    found: list[Guesses | None] = [None] * len(texts)
    for numbers, batch in text_rows.batches(rows, pad=ids.pad):
        blanks = np.asarray(batch["encoder_input_tokens"]) == ids.mask
        logits = predict(model, {**batch, "masked_positions": _positions(blanks), "blanks": blanks})
        shares, best = jax.lax.top_k(jax.nn.softmax(logits[..., : vocabulary.vocab_size]), k)
        for row, n in enumerate(numbers):
            guesses = tuple(
                tuple(
                    Guess(_text(vocabulary, int(token)), float(share))
                    for token, share in zip(best[row, slot], shares[row, slot], strict=True)
                )
                for slot in range(len(parts[n]) - 1)
            )
            words = [*(one[0].text for one in guesses), ""]
            filled = "".join(a + b for a, b in zip(parts[n], words, strict=True))
            found[n] = Guesses(texts[n], guesses, filled)
    return [one for one in found if one is not None]


def _encoded(pieces: Sequence[str], vocabulary: Vocabulary) -> list[int]:
    """Tokens of the text, with a mask token at each blank."""
    first, *others = pieces
    found = [*vocabulary.encode(first.rstrip(" "))]
    for piece in others:
        found.append(vocabulary.token_ids.mask or 0)
        if isinstance(vocabulary, GoesOn):
            found += [int(one) for one in vocabulary.encode_following([piece.rstrip(" ")])[0]]
        else:
            found += vocabulary.encode(piece.rstrip(" "))
    return found


def _text(vocabulary: Vocabulary, token: int) -> str:
    return vocabulary.piece(token).strip("▁ ").removeprefix("##")


def _positions(blanks: np.ndarray) -> np.ndarray:
    """Positions of each row's blanks, int32 [B, K]; rows with fewer have 0 for the others."""
    rows = [np.flatnonzero(row) for row in blanks]
    found = np.zeros((len(blanks), max(map(len, rows))), np.int32)
    for row, where in enumerate(rows):
        found[row, : len(where)] = where
    return found


def _predictor(model: Any) -> Callable[[Any, Any], jax.Array]:
    """A function from the model and a batch with `masked_positions` to logits [B, K, V]."""
    if hasattr(model, "whole_generator"):
        return _of_generator
    if hasattr(model, "mlm"):
        return _of_head
    if hasattr(getattr(model, "encoder", None), "sights"):
        return _of_two_streams
    raise ValueError(
        f"a {type(model).__name__} predicts no masked tokens: encoders pretrained on them do, "
        "and encoder-decoders fill blanks"
    )


@jax.jit
def _of_head(model: Any, batch: Batch) -> jax.Array:
    x_BLD = model.encoder.hidden(batch).last
    x_BKD = jnp.take_along_axis(x_BLD, batch["masked_positions"][..., None], axis=1)
    return model.mlm(x_BKD, model.encoder.tokens)


def _of_generator(model: Any, batch: Batch) -> jax.Array:
    generator = model.whole_generator()
    if generator is None:
        raise ValueError("the generator of this ELECTRA gives all tokens the same chance")
    return _of_head(generator, batch)


@jax.jit
def _of_two_streams(model: Any, batch: Batch) -> jax.Array:
    """Each blank sees all of the text except the blanks."""
    tokens_BL = batch["encoder_input_tokens"]
    return model.logits(
        {
            **batch,
            "permutation_query_order": jnp.ones_like(tokens_BL),
            "permutation_key_order": jnp.where(batch["blanks"], 2, 0),
            "backward": jnp.zeros(len(tokens_BL), jnp.int32),
            "reset_memory": jnp.ones(len(tokens_BL), jnp.int32),
        }
    )
