"""Numbers of schedules are arguments of programs: other numbers compile nothing."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiny_model as tiny

from t5x_like.training.optimization import optimizers, schedules
from t5x_like.training.optimization.schedule_numbers import (
    schedule_numbers,
    with_numbers,
    without_numbers,
)

STEPS = (0, 1, 4, 5, 19, 40)


@pytest.mark.parametrize(
    ("make", "numbers"),
    [
        (lambda rate: schedules.constant(rate, warmup_steps=4), 2),
        (lambda rate: schedules.rsqrt(peak=rate, warmup_steps=4), 3),
        (lambda rate: schedules.linear(rate, total_steps=20, warmup_steps=4, final=1e-6), 4),
        (lambda rate: schedules.polynomial(rate, total_steps=20, power=2.0), 2),
        (lambda rate: schedules.bert_linear(rate, total_steps=20, warmup_steps=4), 3),
        (lambda rate: schedules.warmup_times_linear(rate, total_steps=20, warmup_steps=4), 3),
        (lambda rate: schedules.cosine(rate, total_steps=20), 2),
        (
            lambda rate: schedules.join(
                [schedules.constant(rate), schedules.linear(rate, total_steps=9)], [5]
            ),
            3,
        ),
    ],
)
def test_a_schedule_with_the_numbers_of_another_is_that_one(make: Any, numbers: int) -> None:
    one, other = optimizers.adamw(make(1e-3)), optimizers.adamw(make(3e-2))
    values = schedule_numbers(other)
    assert len(values) == numbers or (make(1.0).made_by.func.__name__ == "rsqrt")
    again = with_numbers(one, [jnp.asarray(value) for value in values])
    for step in STEPS:
        np.testing.assert_allclose(
            again.learning_rate(step), other.learning_rate(step), rtol=1e-6, err_msg=str(step)
        )
        assert other.learning_rate(step) == 0 or again.learning_rate(step) != 0
    assert without_numbers(one) == without_numbers(other)


def test_what_is_not_a_number_of_a_schedule_tells_optimizers_apart() -> None:
    one = optimizers.adamw(1e-3)
    assert without_numbers(one) != without_numbers(optimizers.adamw(1e-3, weight_decay=0.1))
    assert without_numbers(one) != without_numbers(optimizers.lamb(1e-3))
    assert without_numbers(one) != without_numbers(optimizers.adamw(schedules.constant(1e-3)))
    assert schedule_numbers(optax.sgd(0.1)) == ()
    assert schedule_numbers(optimizers.adamw(lambda step: 0.1 * step)) == ()


def test_wrong_numbers_are_refused_before_they_are_arguments() -> None:
    with pytest.raises(ValueError, match="learning_rate must be a number of at least 0"):
        schedules.constant(-1.0)
    with pytest.raises(ValueError, match="warmup_steps"):
        schedules.linear(1.0, total_steps=5, warmup_steps=5)


def test_a_program_with_other_numbers_is_not_traced_again() -> None:
    traced = []

    class Counted(tiny.Tiny):
        def loss(self, *args: Any) -> Any:
            traced.append(args)
            return super().loss(*args)

    where = tiny.layout(data=1)

    def built(rate: float, total: int) -> Any:
        from t5x_like.training import step

        schedule = schedules.linear(rate, total_steps=total, warmup_steps=1)
        return step.build(
            lambda rngs: Counted(0.1, rngs=rngs),
            optimizers.adamw(schedule),
            where,
            step.StepOptions(batch_size=tiny.BATCH),
        )

    first, second = built(1e-2, 10), built(3e-2, 20)
    alone = tiny.run(second, where, 3)
    tiny.run(first, where, 3)
    before = len(traced)
    shared = tiny.run(first.with_numbers(second.numbers), where, 3)
    assert len(traced) == before
    tiny.assert_same(shared[0], alone[0])
    assert shared[1] == alone[1]
    assert shared[1] != tiny.run(first, where, 3)[1]
