"""Coordination of processes: barriers with time-outs, work of one for all, stopping together."""

from __future__ import annotations

import collections
import re
import secrets
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec
from orbax.checkpoint import multihost

T = TypeVar("T")
_DAY = 24 * 3600
LONG_S = 2 * 3600
"""How long processes may wait for one that reads the files of a checkpoint, or computes metrics."""
_uses: collections.Counter[str] = collections.Counter()


class ProcessError(RuntimeError):
    """Another process is missing, failed, or does not see the same files."""


def barrier(name: str, *, timeout_s: float = 600) -> None:
    """Waits until every process has called it with this name equally often.

    Raises:
      ProcessError: after `timeout_s`; the message says which processes are missing.
    """
    if jax.process_count() == 1:
        return
    _uses[name] += 1
    try:
        key = f"t5x_like/{name}/{_uses[name]}"
        multihost.get_barrier_sync_fn()(key=key, timeout_ms=int(timeout_s * 1000))
    except Exception as error:
        late = re.search(r"timed out task names:\n((?:[^\n]*\d\n)+)", f"{error}\n")
        who = ", ".join(re.findall(r"(\d+)$", late[1], re.MULTILINE)) if late else "unknown"
        raise ProcessError(
            f"Process {jax.process_index()} of {jax.process_count()} waited {timeout_s:g} s at "
            f"{name!r}. Missing process(es): {who}. See their logs. ({error})"
        ) from error


def gathered(name: str, value: np.ndarray, *, timeout_s: float = 600) -> np.ndarray:
    """Each process's `value`, in the order of the processes: [processes, ...].

    JAX's exchange waits for ever, so all meet at a barrier before it.

    Raises:
      ProcessError: as from `barrier`.
    """
    if jax.process_count() == 1:
        return value[None]
    barrier(name, timeout_s=timeout_s)
    devices = np.array(jax.devices()).reshape(jax.process_count(), -1)
    mesh = Mesh(devices, ("processes", "devices"), axis_types=(AxisType.Auto, AxisType.Auto))
    split = NamedSharding(mesh, PartitionSpec("processes"))
    return _on_host(jax.make_array_from_process_local_data(split, value[None]), mesh)


def everywhere(name: str, value: bool, *, timeout_s: float = 600) -> np.ndarray:
    """Each process's `value`, in the order of the processes: bool [processes]."""
    return gathered(name, np.array(value), timeout_s=timeout_s)


def whole(name: str, array: jax.Array) -> np.ndarray:
    """A global array on the host, in every process."""
    if array.is_fully_addressable:
        return np.asarray(array)
    barrier(name)
    assert isinstance(array.sharding, NamedSharding)
    return _on_host(array, array.sharding.mesh)


def _on_host(array: jax.Array, mesh: Mesh | AbstractMesh) -> np.ndarray:
    """An array, whole, once all devices of this process have it.

    NumPy takes what the first device has. Where a process ends while its other devices still
    exchange, JAX waits for them at its exit, and they wait for a process that may be gone.
    """
    replicated = NamedSharding(mesh, PartitionSpec())
    copies = jax.block_until_ready(jax.jit(_identity, out_shardings=replicated)(array))
    return np.asarray(copies.addressable_data(0))


def _identity(array: jax.Array) -> jax.Array:
    """Named, so that JAX compiles it once for a sharding and a shape."""
    return array


def from_first_process(name: str, text: str) -> str:
    """The text of process 0, which may take long to have it, in every process."""
    return every_text(name, text if jax.process_index() == 0 else "", timeout_s=LONG_S)[0]


def every_text(name: str, text: str, *, timeout_s: float = 600) -> list[str]:
    """The text of each process, in their order. Every process must call this."""
    if jax.process_count() == 1:
        return [text]
    own_bytes = np.frombuffer(text.encode(), np.uint8)
    sizes = gathered(name, np.array(len(own_bytes)), timeout_s=timeout_s)
    padded = np.zeros(int(sizes.max()), np.uint8)
    padded[: len(own_bytes)] = own_bytes
    all_bytes = gathered(name, padded)
    return [row[:n].tobytes().decode() for row, n in zip(all_bytes, sizes, strict=True)]


def first_process_then_others(name: str, work: Callable[[], T], *, timeout_s: float = _DAY) -> T:
    """The result of `work`: process 0 runs it first; the others run it then, and find its results.

    Raises:
      ProcessError: in the other processes, if it failed in process 0.
    """
    first = jax.process_index() == 0
    result: Any = None
    failure: Exception | None = None
    if first:
        try:
            result = work()
        except Exception as error:
            failure = error
    barrier(name, timeout_s=timeout_s)
    failed = bool(everywhere(f"{name}: failures", failure is not None)[0])
    if failure is not None:
        raise failure
    if failed:
        raise ProcessError(f"Process 0 failed in {name!r}; its log says why.")
    return result if first else work()


def check_shared(directory: epath.PathLike) -> None:
    """Raises ProcessError unless every process sees what process 0 writes to `directory`."""
    if jax.process_count() == 1:
        return
    token = from_first_process("shared directory", secrets.token_hex(4))
    probe = epath.Path(directory) / ".shared_directory_check"
    if jax.process_index() == 0:
        probe.parent.mkdir(parents=True, exist_ok=True)
        probe.write_text(token)
    barrier("shared directory written")
    seen = everywhere("shared directory seen", probe.exists() and probe.read_text() == token)
    if jax.process_index() == 0:
        probe.unlink()
    if not seen.all():
        raise ProcessError(
            f"{directory} is not shared: process(es) {np.flatnonzero(~seen).tolist()} do not see "
            "what process 0 writes there. Give a bucket (gs://...) or a network directory."
        )


class Vote:
    """Asks at every step whether any process wants to stop, without waiting for the answer.

    Every process gets the same answer for the same step, so that all stop together.
    """

    def __init__(self) -> None:
        if jax.process_count() > 1:
            mesh = Mesh(np.array(jax.devices()), ("all",), axis_types=(AxisType.Auto,))
            self._split = NamedSharding(mesh, PartitionSpec("all"))
            self._any = jax.jit(jnp.any, out_shardings=NamedSharding(mesh, PartitionSpec()))

    def cast(self, leave: bool) -> Any:
        """A scalar bool; with several processes, an array that may still be computed."""
        if jax.process_count() == 1:
            return leave
        shard = lambda _: np.array([leave])  # noqa: E731
        shape = (jax.device_count(),)
        return self._any(jax.make_array_from_callback(shape, self._split, shard))
