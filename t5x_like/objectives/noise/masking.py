"""Masking for encoders: special tokens around text, masked positions, and their features."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import TokenIds

RandomIds = Callable[[np.random.Generator, "TokenIds", int], np.ndarray]


def budget(tokens: int, rate: float) -> int:
    """How many of `tokens` tokens, special ones counted, are masked: at least 1 (BERT's code).

    Halves are rounded to even. At a rate of 0.15: 19 of 128, 77 of 512, 2 of 10, 4 of 30.
    """
    return max(1, round(tokens * rate))


def budgets(tokens: np.ndarray, rate: float) -> np.ndarray:
    """`budget` of many texts at once: int [texts]."""
    return np.maximum(1, np.round(tokens * rate)).astype(np.int64)


def text_room(lengths: Mapping[str, int], specials: int, *, texts: int = 1) -> int:
    """The tokens of text that `inputs` hold beside `specials` special tokens.

    Args:
      lengths: the length of each feature.
      specials: the number of special tokens.
      texts: how many texts share the room; each has at least one token.

    Raises:
      ValueError: `lengths` has no inputs, or leaves no room for the texts in them.
    """
    if "inputs" not in lengths:
        raise ValueError(f"masking needs the length of inputs, got only {dict(lengths)}")
    if lengths["inputs"] < specials + texts:
        wanted = "text" if texts == 1 else f"text in {texts} segments"
        raise ValueError(
            f"inputs of {lengths['inputs']} tokens have no room for {wanted}: {specials} of them "
            f"are special tokens; set the inputs length to {specials + texts} or more"
        )
    return lengths["inputs"] - specials


def with_specials(
    ids: TokenIds, first: np.ndarray, second: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """BERT's inputs "[CLS] first [SEP]" or "[CLS] first [SEP] second [SEP]" (BERT, figure 2).

    Args:
      ids: the vocabulary, which must have cls and sep.
      first: int [a].
      second: int [b]; None or empty for one segment.

    Returns:
      inputs int32 [a + 2] or [a + b + 3], and their token_type_ids int32: 1 from `second` on.
    """
    split = len(first) + 2
    if second is None or not len(second):
        inputs = np.empty(split, np.int32)
    else:
        inputs = np.empty(split + len(second) + 1, np.int32)
        inputs[split:-1] = second
    inputs[0] = ids.given("cls")
    inputs[1 : split - 1] = first
    inputs[split - 1] = inputs[-1] = ids.given("sep")
    token_type_ids = np.zeros(len(inputs), np.int32)
    token_type_ids[split:] = 1
    return inputs, token_type_ids


def text_positions(inputs: np.ndarray, ids: TokenIds) -> np.ndarray:
    """int64: where `inputs` hold neither [CLS] nor [SEP]."""
    return ((inputs != ids.cls) & (inputs != ids.sep)).nonzero()[0]


def words_that_fit(words: np.ndarray, sizes: np.ndarray, room: int) -> np.ndarray:
    """The `words` that together fit into `room` tokens, taken in order (BERT's code).

    A word that is too long for the rest of the room is skipped.
    """
    chosen = []
    for word, size in zip(words.tolist(), sizes[words].tolist(), strict=True):
        if size <= room:
            chosen.append(word)
            room -= size
            if not room:
                break
    return np.array(chosen, np.int64)


def span_positions(starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """int64: all positions of the spans with these `starts` and `sizes`, span after span."""
    before = np.cumsum(sizes) - sizes
    return np.repeat(starts - before, sizes) + np.arange(sizes.sum())


def any_id(rng: np.random.Generator, ids: TokenIds, size: int) -> np.ndarray:
    """Ids drawn from the whole vocabulary, special ones included, as in BERT's code."""
    return rng.integers(ids.vocab_size, size=size)


def masked_copy(
    tokens: np.ndarray,
    positions: np.ndarray,
    rng: np.random.Generator,
    ids: TokenIds,
    *,
    mask: float = 0.8,
    random: float = 0.1,
    random_from: RandomIds = any_id,
    draws: np.ndarray | None = None,
) -> np.ndarray:
    """A copy in which each position becomes [MASK], or a random id, or stays (BERT, section 3.1).

    Args:
      tokens: int [n].
      positions: int [k], in any order; a position that occurs twice has two draws.
      rng: the example's generator.
      ids: the vocabulary, which must have mask.
      mask: the share of positions that become [MASK].
      random: the share of positions that become a random id.
      random_from: draws a number of random ids.
      draws: float [k] in [0, 1), which decide about the positions; None draws them. Positions with
        the same number (those of a span) are all masked, all random or all kept.
    """
    if draws is None:
        draws = rng.random(len(positions))
    masked = draws < mask
    noisy = tokens.copy()
    noisy[positions[masked]] = ids.mask
    others = positions[masked ^ (draws < mask + random)]
    if len(others):
        noisy[others] = random_from(rng, ids, len(others))
    return noisy


def example(
    inputs: np.ndarray, token_type_ids: np.ndarray, originals: np.ndarray, positions: np.ndarray
) -> dict[str, np.ndarray]:
    """The features of a `formats.MaskedTokens`.

    Args:
      inputs: int32 [n], noise and special tokens included.
      token_type_ids: int32 [n].
      originals: int32 [n], the inputs before the noise.
      positions: int [k], the positions to predict, in any order.
    """
    positions = positions.astype(np.int32)
    positions.sort()
    return {
        "inputs": inputs,
        "token_type_ids": token_type_ids,
        "masked_positions": positions,
        "masked_targets": originals[positions],
        "masked_loss_weights": np.ones(len(positions), np.float32),
    }
