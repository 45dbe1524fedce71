"""Noise keys depend on seed, task, objective and example number alone."""

from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np
import pytest

from t5x_like.data.samples.randomness import (
    example_rng,
    noise_source,
    phase_seed,
    reused_rng,
)
from t5x_like.objectives.span_corruption import SpanCorruption


def draws(seed: int, task: str, n: int) -> list[float]:
    return example_rng(seed, task, n).random(4).tolist()


def test_every_argument_counts():
    variants = [(0, "a", 0), (1, "a", 0), (0, "b", 0), (0, "a", 1), (-1, "a", 0), (0, "a", 2**40)]
    assert len({tuple(draws(*variant)) for variant in variants}) == len(variants)
    assert draws(0, "a", 5) == draws(0, "a", 5)


def test_phases_draw_other_data_and_the_first_is_the_run_s():
    assert phase_seed(3, 0) == 3
    assert len({phase_seed(seed, phase) for seed in (3, 4) for phase in range(4)}) == 8


def test_other_processes_draw_the_same():
    code = (
        "from t5x_like.data.samples.randomness import example_rng;"
        "print(example_rng(3, 'a', 5).random(4).tolist())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(draws(3, "a", 5))


def test_keys_above_the_sign_bit_stay_apart():
    # A key that went through float64 would lose the low bits of n and of the hash.
    seen = {tuple(draws(seed, "a", n)) for seed in range(50) for n in (2**62, 2**62 + 1)}
    assert len(seen) == 100


def everything(rng: np.random.Generator) -> list[object]:
    """Draws of every kind, so that all parts of a generator's state are used up unevenly."""
    return [
        rng.integers(0, 9, 3, dtype=np.uint32).tolist(),
        rng.random(3).tolist(),
        rng.permutation(11).tolist(),
        rng.integers(0, 2**40, 2).tolist(),
        rng.standard_normal(3).tolist(),
        rng.random(dtype=np.float32),
    ]


def test_a_reused_generator_draws_as_a_new_one():
    for n in (0, 1, 7, 2**62, 7):
        assert everything(reused_rng(3, "a", n)) == everything(example_rng(3, "a", n))
        reused_rng(3, "b", n).integers(0, 9, 3, dtype=np.uint32)  # leaves half a word unused


def test_threads_do_not_share_a_reused_generator():
    wrong: list[int] = []

    def draw(seed: int) -> None:
        for n in range(300):
            rng = reused_rng(seed, "a", n)
            if [rng.random() for _ in range(4)] != draws(seed, "a", n):
                wrong.append(n)

    threads = [threading.Thread(target=draw, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_draws_are_uniform_over_examples():
    first = np.array([example_rng(0, "a", n).random() for n in range(4000)])
    assert abs(first.mean() - 0.5) < 5 * np.sqrt(1 / 12 / len(first))
    lagged = np.corrcoef(first[:-1], first[1:])[0, 1]
    assert abs(lagged) < 5 / np.sqrt(len(first))


def test_source_names_task_and_fields():
    assert noise_source("a", SpanCorruption()) != noise_source("b", SpanCorruption())
    assert noise_source("a", SpanCorruption()) != noise_source("a", SpanCorruption(0.2))
    assert noise_source("a", SpanCorruption(0.15, 3)) == noise_source(
        "a", SpanCorruption(0.15, 3.0)
    )


def test_an_address_in_the_repr_is_refused():
    with pytest.raises(ValueError, match="frozen dataclass"):
        noise_source("a", object())
