"""The random generator for the noise of example n, shared by the SeqIO and Grain paths."""

from __future__ import annotations

import functools
import hashlib
import re
import threading

import numpy as np

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
EVALUATION_SEED = 0
"""The seed of the noise in validation batches. All runs share it: their curves are comparable."""


def noise_source(task: str, objective: object) -> str:
    """The name of a source of noise: a task with an objective and its fields.

    Two tasks, or two settings of an objective, never share their noise.

    Raises:
      ValueError: the objective's repr holds a memory address, so that the noise would differ
        between processes.
    """
    fields = repr(objective)
    if _ADDRESS.search(fields):
        raise ValueError(
            f"task {task!r}: the noise is derived from the objective's repr, but {fields} has a "
            "memory address; make the objective a frozen dataclass of plain fields"
        )
    return f"{task}|{fields}"


@functools.lru_cache(maxsize=1024)
def _hash64(seed: int, task: str) -> int:
    digest = hashlib.blake2b(f"{seed}|{task}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def phase_seed(seed: int, phase: int) -> int:
    """The data seed of a phase: the run's seed in phase 0, another seed in each later phase."""
    return seed if phase == 0 else int(np.random.SeedSequence([seed, phase]).generate_state(1)[0])


def example_rng(seed: int, task: str, n: int) -> np.random.Generator:
    """The generator for example `n` = epoch * size + index of `task` (a `noise_source` name).

    The generator depends on the arguments alone, and so is the same in every process and worker and
    for every order of examples.
    """
    # The dtype is explicit, because NumPy makes a list with items on both sides of 2**63 a float.
    key = np.array([_hash64(seed, task), n], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key))


class _Reused(threading.local):
    """The generator of a thread, and the state of a generator that has drawn nothing."""

    def __init__(self) -> None:
        self.philox = np.random.Philox(key=0)
        self.generator = np.random.Generator(self.philox)
        self.state = self.philox.state
        self.key = self.state["state"]["key"]


_REUSED = _Reused()


def reused_rng(seed: int, task: str, n: int) -> np.random.Generator:
    """Like `example_rng`, but several times faster, and valid until this thread's next call.

    Each thread has one generator, which is set to the state of a new one.
    """
    reused = _REUSED
    reused.key[0] = _hash64(seed, task)
    reused.key[1] = n
    reused.philox.state = reused.state
    return reused.generator
