"""Batches are cut into as few parts as the memory of the devices asks for."""

from __future__ import annotations

import dataclasses

import pytest

from t5x_like.config import gin_config
from t5x_like.runs.memory import microbatches
from t5x_like.runs.memory.microbatches import with_microbatches
from t5x_like.runs.phases import run_phases
from t5x_like.runs.settings import gin_run


def parts(monkeypatch: pytest.MonkeyPatch, memory: float | None, *bindings: str) -> list[int]:
    with gin_config.temporary_configuration():
        run, _ = gin_run.load(["recipes/bert-mini.gin"], bindings)
    monkeypatch.setattr(microbatches, "usable_bytes", lambda mesh: memory)
    return [phase.run.options.microbatches for phase in run_phases(run)]


def test_cpus_and_much_memory_need_one_and_the_user_decides(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert parts(monkeypatch, None) == [1, 1]
    assert parts(monkeypatch, 1e12) == [1, 1]
    assert parts(monkeypatch, 1e3, "MICROBATCHES=2") == [2, 2]


def test_less_memory_needs_more_parts_and_longer_rows_do_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """128 and 64 rows on eight devices, in rows of 32 and of 64 tokens."""
    found = [parts(monkeypatch, memory) for memory in (1e8, 1e7, 3e6, 1e3)]
    first, second = zip(*found, strict=True)
    assert first == tuple(sorted(first))
    assert second == tuple(sorted(second))
    assert found[-1] == [16, 16]
    assert len(set(first)) > 2


def test_phases_that_differ_in_their_rows_alone_are_traced_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with gin_config.temporary_configuration():
        run, _ = gin_run.load(["recipes/bert-mini.gin"], [])
    (_, first), (_, second) = run.in_phases()
    grown = first.with_parts(options=dataclasses.replace(first.options, batch_size=256))
    traced, estimate = [], microbatches.estimate
    monkeypatch.setattr(microbatches, "usable_bytes", lambda mesh: 3e6)
    monkeypatch.setattr(
        microbatches, "estimate", lambda *given: traced.append(given) or estimate(*given)
    )
    together = [part.options.microbatches for part in with_microbatches([first, grown, second])]
    assert len(traced) == 2
    alone = [with_microbatches([part])[0] for part in (first, grown, second)]
    assert together == [part.options.microbatches for part in alone]
    assert together[1] == 2 * together[0] > 2


def test_a_batch_that_does_not_split_is_refused_and_not_counted() -> None:
    with gin_config.temporary_configuration():
        run, _ = gin_run.load(["recipes/bert-mini.gin"], ["BATCH_SIZE=12"])
    with pytest.raises(ValueError, match="Batch size 12 does not split"):
        run_phases(run)
    (counted,) = with_microbatches([run])
    assert counted.options.microbatches == 1
