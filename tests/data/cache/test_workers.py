from __future__ import annotations

import importlib
import os

import pytest

from t5x_like.data.cache.format import CacheError
from t5x_like.data.cache.workers import mapping, spread

MODULE = """
import os, signal

def square(job):
    if job < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return job * job, os.getpid(), os.environ.get("JAX_PLATFORMS")
"""


@pytest.fixture
def square(tmp_path, monkeypatch):
    """A function in a module that worker processes find, because they get our search path."""
    (tmp_path / "squares_for_workers.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    return importlib.import_module("squares_for_workers").square


def test_every_job_is_done_in_other_processes_and_few_are_drawn(square, monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "tpu")
    drawn = []
    jobs = (drawn.append(i) or i for i in range(20))
    results, ahead = [], 0
    for result in spread(square, jobs, workers=2):
        results.append(result)
        ahead = max(ahead, len(drawn) - len(results))
    assert sorted(value for value, _, _ in results) == [i * i for i in range(20)]
    assert os.getpid() not in {process for _, process, _ in results}
    assert {platform for _, _, platform in results} == {"cpu"}
    assert ahead <= 3


@pytest.mark.parametrize(("jobs", "workers"), [([3, 4], 1), ([3], 2), ([], 2)])
def test_little_work_needs_no_process(square, jobs, workers):
    results = list(spread(square, iter(jobs), workers=workers))
    assert [value for value, _, _ in results] == [i * i for i in jobs]
    assert {process for _, process, _ in results} <= {os.getpid()}


def test_killed_worker_is_an_error_that_says_what_to_do(square):
    with pytest.raises(CacheError, match="fewer workers"):
        list(spread(square, iter([1, -1, 2]), workers=2))


@pytest.mark.parametrize(("workers", "threads"), [(1, True), (1, False), (2, True), (2, False)])
def test_mapped_results_come_in_order(square, workers, threads):
    with mapping(square, workers=workers, threads=threads) as start:
        some, more = start(range(5)), start(iter([7]))
        assert [value for value, _, _ in more] == [49]
        results = list(some)
    assert [value for value, _, _ in results] == [0, 1, 4, 9, 16]
    ours = workers == 1 or threads
    assert ours == (os.getpid() in {process for _, process, _ in results})


def test_killed_process_of_a_mapping_is_an_error_that_says_what_to_do(square):
    with (
        pytest.raises(CacheError, match="fewer workers"),
        mapping(square, workers=2, threads=False) as start,
    ):
        list(start([1, -1, 2]))
