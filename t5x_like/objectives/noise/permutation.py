"""Which positions see which in permutation language modelling, as two numbers a position."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def local_order(length: int, block: int, rng: np.random.Generator) -> np.ndarray:
    """The place of each position in a random order: int64 [length], all different.

    Positions are shuffled within blocks of `block`, all blocks in the same way, and the blocks
    keep their order. A shorter last block has places of a whole block.
    """
    shuffled = rng.permutation(block)
    if length == block:
        return shuffled
    return np.resize(shuffled, length) + np.arange(length) // block * block


def visibility(
    masked: np.ndarray,
    functional: Sequence[int] | np.ndarray,
    *,
    split: int,
    block: int | None,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Orders of queries and keys: i may not see j if and only if query[i] <= key[j].

    A random order is drawn for each of the two parts of the sequence. Inside a part, as in the
    published code of XLNet (section 2.3 of the paper):

    - tokens that are neither masked nor functional are seen by all, and see only each other;
    - a target (masked, not functional) also sees the masked and functional tokens before it in
      the order, but not itself;
    - a functional token, masked or not, sees what a target sees, and itself.

    The first part sees nothing of the second. The second sees all of the first, its targets
    included. In the content stream every position also sees itself, which these orders leave out.

    Args:
      masked: bool [n].
      functional: the positions of special tokens, which are never predicted.
      split: where the second part begins.
      block: positions shuffled together (`local_order`); None for a whole part.
      rng: the generator.

    Returns:
      int32 [n] each.
    """
    sizes = (split, len(masked) - split)
    blocks = [size if block is None else max(1, min(block, size)) for size in sizes]
    first, second = (
        local_order(size, block_size, rng) for size, block_size in zip(sizes, blocks, strict=True)
    )
    # Queries of the first part go up to `places`, and the keys of the second start above it.
    places = -(-split // max(1, blocks[0])) * blocks[0]
    plain = np.zeros(len(masked), np.int32)
    plain[split:] = places + 2
    order = plain.copy()
    order[:split] = first
    order[split:] += second.astype(np.int32)
    query = np.where(masked, order, plain)
    query[functional] = order[functional] + 1
    ordered = masked.copy()
    ordered[functional] = True
    return query, np.where(ordered, order, plain - 1)
