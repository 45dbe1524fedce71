"""Sentence-order prediction: whether two consecutive texts were swapped."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np


def in_random_order(
    sample: Mapping[str, np.ndarray], rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`first` and `second` of a sentence pair, swapped with probability 1/2, and the label.

    The label, int32 without axes, is 0 in the right order and 1 if swapped (ALBERT, section 3.1). A
    pair with a random second text (`is_random`) is not swapped and has label 1, as in the published
    code. A pair with an empty text is not swapped.
    """
    first, second = sample["first"], sample["second"]
    # Drawn for every pair, so that the noise that follows does not depend on the kind of pair.
    swapped = rng.random() < 0.5 and not sample["is_random"] and bool(len(first) and len(second))
    if swapped:
        first, second = second, first
    return first, second, np.asarray(swapped or sample["is_random"], np.int32)
