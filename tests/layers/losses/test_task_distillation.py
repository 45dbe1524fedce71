"""Distances from a teacher: none from oneself, those of torch, and levels of deeper teachers."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from t5x_like.layers.losses.task_distillation import FORMS, TaskDistillation, levels

SHAPES = {"tags": (3, 5, 4), "spans": (3, 5, 2), "numbers": (3, 1)}
WEIGHTS = {"tags": (3, 5), "spans": (3, 2)}


def drawn(form: str, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=SHAPES.get(form, (3, 4))).astype(np.float32)


@pytest.mark.parametrize("form", FORMS)
def test_a_student_that_answers_as_its_teacher_learns_nothing(form: str) -> None:
    distillation = TaskDistillation(temperature=3.0)
    weights = jnp.ones(WEIGHTS.get(form, (3,)))
    x, y = drawn(form, 0), drawn(form, 1)
    assert distillation.answers(x, x, weights, form=form).sum == pytest.approx(0, abs=1e-6)
    apart = distillation.answers(y, x, weights, form=form)
    assert apart.sum > 0.1
    assert (apart.weight, apart.coefficient) == (weights.sum(), 0.5)
    if form not in ("several", "numbers"):
        axis = 1 if form == "spans" else -1
        shifted = y + np.random.default_rng(2).normal(size=y.sum(axis, keepdims=True).shape)
        moved = distillation.answers(shifted, x, weights, form=form).sum
        np.testing.assert_allclose(moved, apart.sum, rtol=1e-5)
    none = distillation.answers(y, x, weights * 0, form=form)
    assert (none.sum, none.weight) == (0, 0)


def test_distances_are_those_of_torch() -> None:
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    student, teacher = torch.tensor(drawn("classes", 0)), torch.tensor(drawn("classes", 1))
    log_p = functional.log_softmax(student / 2, -1)
    want = 4 * functional.kl_div(log_p, functional.softmax(teacher / 2, -1), reduction="batchmean")
    got = TaskDistillation().answers(student.numpy(), teacher.numpy(), jnp.ones(3), form="classes")
    np.testing.assert_allclose(got.sum / got.weight, want, rtol=1e-5)
    states = np.random.default_rng(3).normal(size=(2, 2, 3, 5, 4)).astype(np.float32)
    counts = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    term = TaskDistillation(states=2.0).of_states(*states, counts)
    squares = np.square(states[0] - states[1]).mean(-1).sum(1)
    np.testing.assert_allclose(term.sum, (squares * counts).sum(), rtol=1e-5)
    assert (term.weight, term.coefficient) == (8, 2.0)


def test_levels_of_a_deeper_teacher_are_spread() -> None:
    assert levels(4, 12) == [0, 3, 6, 9, 12]
    assert levels(3, 3) == [0, 1, 2, 3]
    assert levels(1, 24) == [0, 24]
