"""Texts as rows of tokens, framed as in a family's tokenizer, and their states."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from t5x_like.core.protocols import TokenIds

ROWS = 8
"""How many texts are read at once."""
_LENGTH_STEP = 64  # lengths are rounded up to it, so that few shapes are compiled


def with_special_tokens(tokens: Sequence[int], ids: TokenIds, template: str) -> list[int]:
    """A text's tokens with the special ones of a template, such as "cls:0 A:0 sep:0".

    Tokens that the vocabulary lacks are left out. Token types are not given: one text has one type.
    """
    found: list[int] = []
    for word in template.split():
        role = word.partition(":")[0]
        if role == "A":
            found += tokens
        elif (special := _special(role, ids)) is not None:
            found.append(special)
    return found


def _special(role: str, ids: TokenIds) -> int | None:
    if role == "begin":
        return next(
            (one for one in (ids.bos, ids.named.get("<s>"), ids.cls) if one is not None), None
        )
    return getattr(ids, role)


def batches(
    rows: Sequence[Sequence[int]], *, pad: int
) -> Iterator[tuple[list[int], dict[str, np.ndarray]]]:
    """Groups rows of similar length: the rows' numbers, and what an encoder reads.

    Yields:
      `encoder_input_tokens` and `encoder_attention_mask`, int32 [ROWS, length]; missing rows are
      padding.
    """
    order = sorted(range(len(rows)), key=lambda n: len(rows[n]))
    for start in range(0, len(order), ROWS):
        numbers = order[start : start + ROWS]
        longest = max(len(rows[n]) for n in numbers)
        shape = (ROWS, -(-longest // _LENGTH_STEP) * _LENGTH_STEP)
        tokens, mask = np.full(shape, pad, np.int32), np.zeros(shape, np.int32)
        for row, n in enumerate(numbers):
            tokens[row, : len(rows[n])] = rows[n]
            mask[row, : len(rows[n])] = 1
        yield numbers, {"encoder_input_tokens": tokens, "encoder_attention_mask": mask}


def states(model: Any, rows: Sequence[Sequence[int]], *, pad: int) -> list[np.ndarray]:
    """The last states of each row's tokens, float32 [length, d_model] each.

    They are the encoder's, where the model has one, else the decoder's.

    Raises:
      ValueError: the model gives no states, or a row is longer than it has positions.
    """
    read = _reader(model)
    found: list[np.ndarray] = [np.zeros(0)] * len(rows)
    for numbers, batch in batches(rows, pad=pad):
        last = np.asarray(read(model, batch), np.float32)
        for row, n in enumerate(numbers):
            found[n] = last[row, : len(rows[n])]
    return found


def _reader(model: Any) -> Any:
    """A function from the model and a batch of `batches` to states [B, L, D]."""
    if hasattr(model, "encode"):
        return jax.jit(
            lambda model, batch: (
                model.encode(
                    batch["encoder_input_tokens"], mask_BM=batch["encoder_attention_mask"]
                ).last
            )
        )
    if hasattr(model, "prefill"):
        return jax.jit(
            lambda model, batch: (
                model.hidden({"decoder_input_tokens": batch["encoder_input_tokens"]}).last
            )
        )
    if hasattr(_body(model), "hidden"):
        return jax.jit(lambda model, batch: _body(model).hidden(batch).last)
    raise ValueError(f"a {type(model).__name__} gives no states")


def _body(model: Any) -> Any:
    return getattr(model, "encoder", model)
