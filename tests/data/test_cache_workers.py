from __future__ import annotations

import os
import signal

import pytest

from t5x_like.data.cache_format import CacheError
from t5x_like.data.cache_workers import spread


def square_or_die(job: int) -> tuple[int, int, str | None]:
    if job < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return job * job, os.getpid(), os.environ.get("JAX_PLATFORMS")


class Work:
    """Pickles by value, as this module has no name that a worker could import."""

    def __reduce__(self):
        return eval, (
            "lambda job: (__import__('os').kill(__import__('os').getpid(), 9) if job < 0 else 0,"
            " job * job, __import__('os').getpid(), __import__('os').environ['JAX_PLATFORMS'])[1:]",
        )

    __call__ = staticmethod(square_or_die)


def test_every_job_is_done_in_other_processes_and_few_are_drawn():
    drawn = done = ahead = 0

    def jobs():
        nonlocal drawn
        for drawn in range(1, 21):
            yield drawn

    results = []
    for result in spread(Work(), jobs(), workers=2):
        results.append(result)
        done += 1
        ahead = max(ahead, drawn - done)
    assert sorted(square for square, _, _ in results) == [i * i for i in range(1, 21)]
    assert os.getpid() not in {process for _, process, _ in results}
    assert {platform for _, _, platform in results} == {"cpu"}
    assert ahead <= 3


@pytest.mark.parametrize(("jobs", "workers"), [([3, 4], 1), ([3], 2), ([], 2)])
def test_little_work_needs_no_process(jobs, workers):
    results = list(spread(Work(), iter(jobs), workers=workers))
    assert [square for square, _, _ in results] == [i * i for i in jobs]
    assert {process for _, process, _ in results} <= {os.getpid()}


def test_killed_worker_is_an_error_that_says_what_to_do():
    with pytest.raises(CacheError, match="fewer workers"):
        list(spread(Work(), iter([1, -1, 2]), workers=2))
