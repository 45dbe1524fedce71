"""How far probabilities of classes are from frequencies, and the temperature that mends them.

Guo et al., 2017, sections 2 and 4.2. Suffixes: N texts, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from t5x_like.inference.heads.joined_windows import softmax

BINS = 15
"""The bins of equal width of the expected error (section 5)."""
_BOUNDS = (-3.0, 3.0)
"""Of the natural logarithm of temperatures."""


def expected_error(
    probabilities_NC: np.ndarray, targets_N: Sequence[int] | np.ndarray, *, bins: int = BINS
) -> float:
    """The mean distance of confidence and accuracy, in bins of confidence (equation 3), 0 to 1."""
    confidence_N = probabilities_NC.max(axis=1)
    right_N = probabilities_NC.argmax(axis=1) == np.asarray(targets_N)
    bin_N = np.minimum(np.ceil(confidence_N * bins).astype(int) - 1, bins - 1)
    sums = [np.bincount(bin_N, x, minlength=bins) for x in (confidence_N, right_N)]
    return float(np.abs(sums[0] - sums[1]).sum() / len(confidence_N))


def temperature(logits_NC: np.ndarray, targets_N: Sequence[int] | np.ndarray) -> float:
    """The number that logits are divided by for the least negative log-likelihood.

    From exp(-3) to exp(3): where all texts are answered rightly, or all wrongly, there is no least.
    """
    from scipy import optimize

    rows, targets_N = np.arange(len(logits_NC)), np.asarray(targets_N)

    def loss(log_t: float) -> float:
        scaled_NC = logits_NC / np.exp(log_t)
        highest_N1 = scaled_NC.max(axis=1, keepdims=True)
        log_sum_N = np.log(np.exp(scaled_NC - highest_N1).sum(axis=1)) + highest_N1[:, 0]
        return float((log_sum_N - scaled_NC[rows, targets_N]).mean())

    least = optimize.minimize_scalar(loss, bounds=_BOUNDS, method="bounded")
    return float(np.exp(least.x))


def scores(logits_NC: np.ndarray, targets_N: Sequence[int] | np.ndarray) -> dict[str, float]:
    """The expected error before and after, and the temperature of all texts.

    The error after is that of each half of the texts with the temperature of the other half: a
    temperature would flatter the texts that chose it.
    """
    logits_NC, targets_N = np.asarray(logits_NC, np.float64), np.asarray(targets_N)
    measured = {"calibration_error": expected_error(softmax(logits_NC), targets_N)}
    if len(targets_N) < 2:
        return measured
    halves = np.arange(len(targets_N)) % 2
    scaled_NC = np.empty_like(logits_NC)
    for half in (0, 1):
        of_other = temperature(logits_NC[halves != half], targets_N[halves != half])
        scaled_NC[halves == half] = logits_NC[halves == half] / of_other
    return {
        **measured,
        "calibrated_error": expected_error(softmax(scaled_NC), targets_N),
        "best_temperature": temperature(logits_NC, targets_N),
    }
