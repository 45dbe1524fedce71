"""Sentence-order prediction: whether two consecutive texts were swapped."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np


def in_random_order(
    sample: Mapping[str, np.ndarray], rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`first` and `second` of a sentence pair, swapped with probability 1/2, and the label.

    The label, int32 without axes, is 0 in the right order and 1 once swapped (ALBERT, section
    3.1). A pair whose second text is from another document (`is_random`) stays as it is, labelled
    1 as in the published code; one without a second text stays too, as there is nothing to swap.
    """
    first, second = sample["first"], sample["second"]
    # Drawn in any case: the noise that follows does not depend on the kind of pair.
    swapped = rng.random() < 0.5 and not sample["is_random"] and bool(len(first) and len(second))
    if swapped:
        first, second = second, first
    return first, second, np.asarray(swapped or sample["is_random"], np.int32)
