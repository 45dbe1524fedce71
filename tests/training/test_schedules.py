"""Learning-rate schedules at their corners."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t5x_like.training import schedules


def values(schedule: schedules.Schedule, *steps: int) -> list[float]:
    return [float(schedule(step)) for step in steps]


def test_rsqrt_is_flat_and_then_decays() -> None:
    got = values(schedules.rsqrt(), 0, 9_999, 10_000, 40_000, 1_000_000)
    np.testing.assert_allclose(got, [0.01, 0.01, 0.01, 0.005, 0.001], rtol=1e-6)


def test_constant() -> None:
    np.testing.assert_allclose(values(schedules.constant(1e-3), 0, 7), [1e-3, 1e-3], rtol=1e-6)
    got = values(schedules.constant(2.0, warmup_steps=4), 0, 1, 4, 9)
    np.testing.assert_allclose(got, [0, 0.5, 2, 2], rtol=1e-6)


def test_linear_and_cosine() -> None:
    linear = schedules.linear(1.0, total_steps=110, warmup_steps=10, final=0.2)
    np.testing.assert_allclose(values(linear, 0, 5, 10, 60, 110, 200), [0, 0.5, 1, 0.6, 0.2, 0.2])
    cosine = schedules.cosine(1.0, total_steps=110, warmup_steps=10)
    got = values(cosine, 0, 5, 10, 35, 60, 110, 200)
    np.testing.assert_allclose(got, [0, 0.5, 1, 0.8535534, 0.5, 0, 0], atol=1e-6)


@settings(max_examples=40, deadline=None)
@given(
    make=st.sampled_from([schedules.linear, schedules.cosine]),
    warmup=st.integers(0, 50),
    extra=st.integers(1, 100),
    step=st.integers(0, 200),
)
def test_never_above_the_peak_nor_below_zero(
    make: type, warmup: int, extra: int, step: int
) -> None:
    rate = float(make(0.5, total_steps=warmup + extra, warmup_steps=warmup)(step))
    assert 0 <= rate <= 0.5


def test_the_same_under_jit() -> None:
    schedule = schedules.cosine(1.0, total_steps=20, warmup_steps=5)
    np.testing.assert_allclose(float(jax.jit(schedule)(7)), float(schedule(7)), rtol=1e-6)


def test_a_warmup_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="below total_steps: 10, 10"):
        schedules.linear(1.0, total_steps=10, warmup_steps=10)
    with pytest.raises(ValueError, match="warmup_steps >= 1"):
        schedules.rsqrt(warmup_steps=0)
