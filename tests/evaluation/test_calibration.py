"""Expected errors by hand, and the temperature that texts were drawn with."""

from __future__ import annotations

import numpy as np
import pytest

from t5x_like.evaluation import calibration
from t5x_like.inference.heads.joined_windows import softmax


def test_the_expected_error_is_that_of_bins() -> None:
    probabilities = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.45, 0.55]])
    targets = [0, 1, 1, 1]
    # Two bins of [0.5, 1]: all texts are in the upper one.
    assert calibration.expected_error(probabilities, targets, bins=2) == pytest.approx(
        abs((0.9 + 0.8 + 0.7 + 0.55) / 4 - 0.75)
    )
    # Four: 0.55 and 0.7 are above 0.5, 0.8 and 0.9 above 0.75.
    apart = (abs(0.625 - 1.0) + abs(0.85 - 0.5)) / 2
    assert calibration.expected_error(probabilities, targets, bins=4) == pytest.approx(apart)
    assert calibration.expected_error(np.array([[1.0, 0.0]]), [0]) == 0


def test_the_temperature_is_that_of_the_draws() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 2, (20_000, 3))
    targets = [rng.choice(3, p=p) for p in softmax(logits)]
    assert calibration.temperature(3 * logits, targets) == pytest.approx(3, rel=0.03)
    assert calibration.temperature(logits / 2, targets) == pytest.approx(0.5, rel=0.03)
    scores = calibration.scores(3 * logits, targets)
    assert scores["calibration_error"] > 0.1
    assert scores["calibrated_error"] < 0.02
    assert scores["best_temperature"] == pytest.approx(3, rel=0.03)


def test_a_temperature_does_not_flatter_the_texts_that_chose_it() -> None:
    """Logits that say nothing: a half cannot be mended by what fits another half by chance."""
    rng = np.random.default_rng(1)
    logits, targets = rng.normal(0, 3, (60, 2)), rng.integers(0, 2, 60)
    flattered = softmax(logits / calibration.temperature(logits, targets))
    of_halves = calibration.scores(logits, targets)["calibrated_error"]
    assert of_halves != calibration.expected_error(flattered, targets)


def test_texts_that_are_all_right_have_a_bound() -> None:
    scores = calibration.scores(np.eye(3) * 2, [0, 1, 2])
    assert 0 < scores["best_temperature"] < 0.1
    assert calibration.scores(np.eye(2)[:1], [0]).keys() == {"calibration_error"}
