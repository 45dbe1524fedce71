"""The noise of example n: one generator that the SeqIO and the Grain side both ask for."""

from __future__ import annotations

import functools
import hashlib
import re
import threading

import numpy as np

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def noise_source(task: str, objective: object) -> str:
    """Names what draws the noise: a task under an objective with its fields.

    Two tasks, or two settings of an objective, never share their draws.

    Raises:
      ValueError: the objective's repr holds a memory address, so that the noise would differ
        from one process to the next.
    """
    fields = repr(objective)
    if _ADDRESS.search(fields):
        raise ValueError(
            f"task {task!r}: the noise is derived from the objective's repr, and {fields} names a "
            "memory address; make the objective a frozen dataclass of plain fields"
        )
    return f"{task}|{fields}"


@functools.lru_cache(maxsize=1024)
def _hash64(seed: int, task: str) -> int:
    digest = hashlib.blake2b(f"{seed}|{task}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def phase_seed(seed: int, phase: int) -> int:
    """The seed of a run's data in a phase: that of the run in phase 0, another in each later."""
    return seed if phase == 0 else int(np.random.SeedSequence([seed, phase]).generate_state(1)[0])


def example_rng(seed: int, task: str, n: int) -> np.random.Generator:
    """The generator for example `n` = epoch * size + index of `task` (a `noise_source` name).

    A function of its arguments alone: same draws in every process, worker and order of visits.
    """
    # An explicit uint64 array: NumPy makes a float of a list whose items straddle 2**63.
    key = np.array([_hash64(seed, task), n], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key))


class _Reused(threading.local):
    """A generator of a thread, with the state of one that has drawn nothing."""

    def __init__(self) -> None:
        self.philox = np.random.Philox(key=0)
        self.generator = np.random.Generator(self.philox)
        self.state = self.philox.state
        self.key = self.state["state"]["key"]


_REUSED = _Reused()


def reused_rng(seed: int, task: str, n: int) -> np.random.Generator:
    """Like `example_rng`, several times faster; good until this thread asks for the next one.

    One generator a thread, set to the state that a new one would have.
    """
    reused = _REUSED
    reused.key[0] = _hash64(seed, task)
    reused.key[1] = n
    reused.philox.state = reused.state
    return reused.generator
