"""Work spread over processes or threads: bounded in flight, and gone when the parent is."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import itertools
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from t5x_like.data.cache.format import CacheError

Job = TypeVar("Job")
Result = TypeVar("Result")

_work: Callable[[Any], Any] | None = None


def default_workers() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def spread(work: Callable[[Job], Result], jobs: Iterator[Job], *, workers: int) -> Iterator[Result]:
    """Results of `work(job)`, as they come, not in order.

    At most `workers + 1` jobs are in memory. One worker, or a single job, needs no process.

    Args:
      work: pickled once for each process.
      jobs: drawn when there is room.
      workers: processes.

    Raises:
      CacheError: a process was killed, most often for want of memory.
    """
    first = list(itertools.islice(jobs, 2))
    jobs = itertools.chain(first, jobs)
    if workers <= 1 or len(first) < 2:
        yield from map(work, jobs)
        return
    with _processes(work, workers) as pool:
        pending = {pool.submit(_run, job) for job in itertools.islice(jobs, workers + 1)}
        while pending:
            done, pending = concurrent.futures.wait(
                pending, return_when=concurrent.futures.FIRST_COMPLETED
            )
            for future in done:
                yield future.result()
            pending |= {pool.submit(_run, job) for job in itertools.islice(jobs, len(done))}


@contextlib.contextmanager
def mapping(
    work: Callable[[Job], Result], *, workers: int, threads: bool
) -> Iterator[Callable[[Iterable[Job]], Iterator[Result]]]:
    """A `map` of `work`, whose jobs are all drawn and begun at once; results come in order.

    One worker is this thread, which does a job when its result is asked for.

    Args:
      work: pickled once for each process.
      workers: threads or processes.
      threads: that `work` mostly runs without Python's lock, so that threads will do.

    Raises:
      CacheError: a process was killed, most often for want of memory.
    """
    if workers <= 1:
        yield functools.partial(map, work)
    elif threads:
        pool = concurrent.futures.ThreadPoolExecutor(workers)
        try:
            yield functools.partial(pool.map, work)
        finally:
            pool.shutdown(cancel_futures=True)
    else:
        with _processes(work, workers) as processes:
            yield functools.partial(processes.map, _run)


@contextlib.contextmanager
def _processes(
    work: Callable[[Any], Any], workers: int
) -> Iterator[concurrent.futures.ProcessPoolExecutor]:
    pool = concurrent.futures.ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_start,
        initargs=(work,),
    )
    try:
        yield pool
    except BrokenProcessPool as error:
        raise CacheError(
            "a worker process ended: if its message is not above, it was killed, most often as "
            "memory ran out; what is finished is kept: run the same command again, with fewer "
            "workers"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def check_main_guard() -> None:
    """Refuses to do the parent's work in a worker process, which would wait for ever for it.

    A new process runs the parent's script again, to find its functions: all of it that is not under
    `if __name__ == "__main__":`.

    Raises:
      RuntimeError: this is such a process.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise RuntimeError(
            "a worker process runs this script again, up to the work that needs the worker: put "
            "what trains under `if __name__ == '__main__':`"
        )


def _start(work: Callable[[Any], Any]) -> None:
    global _work
    _work = work
    # Whatever a user's module imports, workers must leave the accelerators alone.
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    die_with_parent()


def die_with_parent() -> None:
    """Ends this process when its parent has ended, even by SIGKILL: it would wait for ever."""
    threading.Thread(target=_outlive_nobody, daemon=True).start()


def _outlive_nobody() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _run(job: Any) -> Any:
    assert _work is not None
    return _work(job)
