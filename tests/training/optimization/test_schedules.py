"""Learning-rate schedules at their corners."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t5x_like.training.optimization import optimizers, schedules


def values(schedule: schedules.Schedule, *steps: int) -> list[float]:
    return [float(schedule(step)) for step in steps]


def test_rsqrt_is_flat_and_then_decays() -> None:
    got = values(schedules.rsqrt(), 0, 9_999, 10_000, 40_000, 1_000_000)
    np.testing.assert_allclose(got, [0.01, 0.01, 0.01, 0.005, 0.001], rtol=1e-6)


def test_a_peak_of_rsqrt_is_its_plateau_whatever_the_scale() -> None:
    schedule = schedules.rsqrt(5.0, warmup_steps=100, peak=0.02)
    np.testing.assert_allclose(values(schedule, 0, 100, 400), [0.02, 0.02, 0.01], rtol=1e-6)


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


FALLING = [
    schedules.linear,
    schedules.cosine,
    schedules.polynomial,
    schedules.bert_linear,
    schedules.warmup_times_linear,
]


@settings(max_examples=60, deadline=None)
@given(
    make=st.sampled_from(FALLING),
    warmup=st.integers(0, 50),
    extra=st.integers(1, 100),
    step=st.integers(0, 200),
)
def test_never_above_the_peak_nor_below_zero(
    make: Callable[..., schedules.Schedule], warmup: int, extra: int, step: int
) -> None:
    schedule = make(0.5, total_steps=warmup + extra, warmup_steps=warmup)
    assert 0 <= float(schedule(step)) <= 0.5
    assert float(schedule(0)) == (0 if warmup else 0.5)
    assert float(schedule(warmup + extra)) == float(schedule(warmup + extra + 7)) == 0


@settings(max_examples=40, deadline=None)
@given(
    make=st.sampled_from(FALLING),
    warmup=st.integers(1, 500),
    extra=st.integers(1, 1000),
    power=st.sampled_from([0.5, 1.0, 2.0]),
)
def test_only_berts_rate_jumps_and_by_the_share_of_the_warmup(
    make: Callable[..., schedules.Schedule], warmup: int, extra: int, power: float
) -> None:
    """This holds between steps too: the jump is at the one point where the ramp ends."""
    total = warmup + extra
    options = {"power": power} if make is schedules.polynomial else {}
    schedule = make(2.0, total_steps=total, warmup_steps=warmup, **options)
    before, after = (float(schedule(warmup * f)) for f in (1 - 1e-5, 1 + 1e-5))
    kink = 2.0 * warmup / total if make is schedules.bert_linear else 0.0
    # A continuous schedule moves by its slope, a square root by the root of a step.
    assert before - after == pytest.approx(
        kink, abs=2e-4 * (1 + warmup / extra) + 1e-2 * (power < 1)
    )


def test_the_corners_of_a_slanted_triangle() -> None:
    rate = schedules.slanted_triangle(0.01, total_steps=1000)
    for step, share in ((0, 1 / 32), (50, (1 + 1 / 32) / 2), (100, 1), (550, (1 + 1 / 32) / 2)):
        assert float(rate(step)) == pytest.approx(0.01 * share, rel=1e-5), step
    assert float(rate(1000)) == pytest.approx(0.01 / 32, rel=1e-5)
    short = schedules.slanted_triangle(0.01, total_steps=5)
    np.testing.assert_allclose(values(short, 1, 3, 5), [0.01, 0.01 * (1 + 1 / 32) / 2, 0.01 / 32])
    with pytest.raises(ValueError, match="between 0 and 1"):
        schedules.slanted_triangle(0.01, total_steps=5, cut=1.0)


def test_the_corners_of_the_papers() -> None:
    bert = schedules.bert_linear(1e-4, total_steps=1_000_000, warmup_steps=10_000)
    got = values(bert, 0, 1, 9_999, 10_000, 500_000, 1_000_000)
    np.testing.assert_allclose(got, [0, 1e-8, 0.9999e-4, 0.99e-4, 0.5e-4, 0], rtol=1e-5)
    electra = schedules.warmup_times_linear(5e-4, total_steps=1_000_000, warmup_steps=10_000)
    got = values(electra, 0, 5_000, 10_000, 500_000)
    np.testing.assert_allclose(got, [0, 0.5 * 0.995 * 5e-4, 0.99 * 5e-4, 2.5e-4], rtol=1e-5)
    fairseq = schedules.polynomial(1.0, total_steps=110, warmup_steps=10, power=2.0, final=0.2)
    got = values(fairseq, 0, 5, 10, 60, 110, 200)
    np.testing.assert_allclose(got, [0, 0.5, 1, 0.2 + 0.8 * 0.25, 0.2, 0.2], rtol=1e-6)


@pytest.mark.parametrize(
    ("end", "quarter", "half"),
    [("linear", 0.75, 0.5), ("1-sqrt", 0.5, 1 - 0.5**0.5), ("cosine", 0.8535534, 0.5)],
)
def test_the_ends_of_a_plateau(end: str, quarter: float, half: float) -> None:
    made = schedules.warmup_stable_decay(
        2.0, total_steps=1000, warmup_steps=10, decay_share=0.2, end=end, final=0.5
    )
    want = [0, 1, 2, 2, 2, 0.5 + 1.5 * quarter, 0.5 + 1.5 * half, 0.5, 0.5]
    got = values(made, 0, 5, 10, 400, 800, 850, 900, 1000, 3000)
    np.testing.assert_allclose(got, want, atol=2e-5)


def test_an_end_that_cannot_be_is_refused() -> None:
    make = schedules.warmup_stable_decay
    with pytest.raises(ValueError, match="one of linear, 1-sqrt, cosine"):
        make(1.0, total_steps=10, end="sqrt")
    with pytest.raises(ValueError, match="overlap"):
        make(1.0, total_steps=10, warmup_steps=6, decay_share=0.5)
    with pytest.raises(ValueError, match="share of total_steps"):
        make(1.0, total_steps=10, decay_share=2.0)
    held = make(1.0, total_steps=10, decay_share=0.0)
    assert values(held, 0, 10, 99) == [1, 1, 1]


@settings(max_examples=30, deadline=None)
@given(steps=st.lists(st.integers(2, 60), min_size=1, max_size=4), step=st.integers(0, 250))
def test_joined_schedules_count_from_their_own_starts(steps: list[int], step: int) -> None:
    parts = [
        schedules.bert_linear(10.0**-n, total_steps=total, warmup_steps=total // 2)
        for n, total in enumerate(steps)
    ]
    ends = np.cumsum(steps)
    whole = schedules.join(parts, [int(end) for end in ends[:-1]])
    n = min(int(np.searchsorted(ends, step, side="right")), len(steps) - 1)
    assert float(whole(step)) == float(parts[n](step - ([0, *ends][n])))


@pytest.mark.parametrize("boundaries", [[], [3, 3], [0], [5, 4], [1, 2, 3]], ids=str)
def test_boundaries_that_do_not_fit_are_refused(boundaries: list[int]) -> None:
    count = 3 if len(boundaries) == 2 else 2
    with pytest.raises(ValueError, match="one boundary fewer"):
        schedules.join([schedules.constant(1.0)] * count, boundaries)


def test_the_same_under_jit() -> None:
    schedule = schedules.cosine(1.0, total_steps=20, warmup_steps=5)
    np.testing.assert_allclose(float(jax.jit(schedule)(7)), float(schedule(7)), rtol=1e-6)


def test_a_warmup_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"steps of a phase\): 10 and 10"):
        schedules.linear(1.0, total_steps=10, warmup_steps=10)
    with pytest.raises(ValueError, match="warmup_steps >= 1"):
        schedules.rsqrt(warmup_steps=0)


@pytest.mark.parametrize("rate", [-1.0, "x", float("nan"), float("inf"), True])
def test_a_rate_is_a_number_that_does_not_go_uphill(rate: object) -> None:
    value: Any = rate
    with pytest.raises(ValueError, match="learning_rate must be a number of at least 0"):
        schedules.cosine(value, total_steps=10)
    with pytest.raises(ValueError, match="scale must be a number of at least 0"):
        schedules.rsqrt(value)
    with pytest.raises(ValueError, match="peak must be a number of at least 0"):
        schedules.rsqrt(peak=value)
    with pytest.raises(ValueError, match="learning_rate must be a number of at least 0"):
        optimizers.adamw(value)


def test_t5s_code_goes_down_over_the_last_tenth() -> None:
    plain = schedules.rsqrt(warmup_steps=10)
    ramped = schedules.rsqrt(warmup_steps=10, total_steps=1000, ramp_down=0.1)
    for step, share in ((0, 1), (500, 1), (900, 1), (950, 0.5), (990, 0.1), (1000, 0), (1010, 0)):
        assert float(ramped(step)) == pytest.approx(share * float(plain(step)), abs=1e-7)
    with pytest.raises(ValueError, match="ramp_down is a share of total_steps"):
        schedules.rsqrt(ramp_down=0.1)
