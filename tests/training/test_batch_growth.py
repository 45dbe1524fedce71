"""Steps of numbers of tokens, and batches that grow: the tokens over the steps add up."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t5x_like.runs.run import Phase
from t5x_like.training import batch_growth

ROW = 1024


def test_modernberts_batches_switch_at_its_thresholds() -> None:
    sizes = batch_growth.growth(50 * 10**9, unit=768, batch_size=4608, row_tokens=ROW)
    assert [part.rows for part in sizes] == [768, 1536, 2304, 3072, 3840]
    read, switches = 0, []
    for part in sizes:
        read += part.rows * part.steps * ROW
        switches.append(read / 1e9)
    assert switches == pytest.approx([3.333, 10, 20, 33.333, 50], abs=0.005)
    assert max(part.steps for part in sizes) - min(part.steps for part in sizes) <= 1


@settings(max_examples=60, deadline=None)
@given(tokens=st.integers(1, 10**7), unit=st.integers(1, 64), count=st.integers(2, 9))
def test_the_tokens_of_all_steps_add_up(tokens: int, unit: int, count: int) -> None:
    whole = unit * count
    sizes = batch_growth.growth(tokens, unit=unit, batch_size=whole, row_tokens=16)
    read = sum(part.rows * part.steps * 16 for part in sizes)
    assert tokens <= read < tokens + whole * 16
    assert [part.rows for part in sizes] == sorted({part.rows for part in sizes})
    assert all(part.rows % unit == 0 and part.rows < whole for part in sizes)
    parts = [*((part.steps, part.rows * 16) for part in sizes), (None, whole * 16)]
    steps = sum(part.steps for part in sizes)
    assert batch_growth.tokens_of(steps, parts) == read
    assert batch_growth.steps_of(read, parts) == steps
    assert batch_growth.steps_of(read + 1, parts) == steps + 1


def planned(*phases: Phase, **changes: Any) -> tuple[Phase, ...]:
    options: dict[str, Any] = {
        "batch_size": 8,
        "lengths": {"inputs": 16},
        "microbatches": None,
        "tokens": None,
        "rows": None,
        **changes,
    }
    return batch_growth.planned(phases, **options)


def test_the_first_phase_becomes_phases_that_read_on() -> None:
    long = Phase(lengths={"inputs": 64}, tokens=None)
    phases = planned(
        Phase(tokens=16 * 8 * 20), long, tokens=3 * 16 * 2 * 10, rows=2, microbatches=4
    )
    assert [(phase.batch_size, phase.steps) for phase in phases[:-2]] == [(2, 5), (4, 5), (6, 5)]
    assert [phase.microbatches for phase in phases] == [1, 2, 3, None, None]
    assert [phase.continues for phase in phases] == [False, True, True, True, False]
    assert phases[3].steps == 20 - 15
    assert batch_growth.rows_before(phases, 3, 8) == (0, 5 * (2 + 4 + 6))
    assert batch_growth.rows_before(phases, 4, 8) == (4, 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens": 100}, "set BATCH_WARMUP_ROWS"),
        ({"tokens": 100, "rows": 3}, "divides it"),
        ({"rows": 2}, "no effect without BATCH_WARMUP_TOKENS"),
        ({"tokens": 100, "rows": 2, "lengths": None}, "set TASK_FEATURE_LENGTHS"),
    ],
)
def test_batches_that_cannot_grow_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        planned(Phase(), **changes)


def test_a_phase_that_is_shorter_than_the_growth_is_refused() -> None:
    with pytest.raises(ValueError, match="lower BATCH_WARMUP_TOKENS"):
        planned(Phase(steps=3), Phase(), tokens=10_000, rows=2)
    with pytest.raises(ValueError, match="not both"):
        planned(Phase(steps=3, tokens=5))
