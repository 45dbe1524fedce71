"""Work spread over processes or threads, with few jobs in memory; workers end with the parent."""

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
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def spread(work: Callable[[Job], Result], jobs: Iterator[Job], *, workers: int) -> Iterator[Result]:
    """The results of `work(job)` for all jobs, in the order in which they finish.

    At most `workers + 1` jobs are in memory. One worker, or a single job, needs no process.

    Args:
      work: the function to call; it is pickled once for each process.
      jobs: the jobs, read when there is room for another one.
      workers: the number of processes.

    Raises:
      CacheError: a process was killed, most often because memory ran out.
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
    """A `map` of `work` that reads and starts all jobs at once and gives the results in order.

    A single worker is this thread. It does each job when the caller takes the result.

    Args:
      work: the function to call; it is pickled once for each process.
      workers: the number of threads or processes.
      threads: whether to use threads, because `work` mostly runs without Python's lock.

    Raises:
      CacheError: a process was killed, most often because memory ran out.
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
    check_main_guard()
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
            "a worker process ended: if its message is not above, it was killed, most often "
            "because memory ran out; finished shards are kept: run the same command again, with "
            "fewer workers"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def check_main_guard() -> None:
    """Refuses to do the parent's work in a worker process, which would wait for itself for ever.

    A new process runs the parent's script again, to find its functions. It runs all code that is
    not under `if __name__ == "__main__":`.

    Raises:
      RuntimeError: this is such a process.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise RuntimeError(
            "a worker process runs this script again, up to the work that needs the worker: put "
            "the code that trains under `if __name__ == '__main__':`"
        )


def _start(work: Callable[[Any], Any]) -> None:
    global _work
    _work = work
    # Workers must not use the accelerators, even if a user's module imports JAX or TensorFlow.
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    die_with_parent()


def die_with_parent() -> None:
    """Ends this process when its parent ends, even by SIGKILL. It would wait for ever otherwise."""
    threading.Thread(target=_end_after_parent, daemon=True).start()


def _end_after_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _run(job: Any) -> Any:
    assert _work is not None
    return _work(job)
