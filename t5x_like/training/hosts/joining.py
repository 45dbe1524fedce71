"""Joins the processes of a run; they find each other in time, and end together."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
from jax._src import clusters

from t5x_like.core import exit_status, whole_files
from t5x_like.training.hosts import environments
from t5x_like.training.hosts.multihost import ProcessError
from t5x_like.training.hosts.peers import Peers

_HEARTBEAT_SECONDS = 100
"""JAX's default."""

_FOLLOW_SECONDS = 10.0
"""The time to wait after an error of JAX: when a process is lost, JAX fails in all others, and the
watch says which one was lost."""

_joined: list[Peers] = []


class Members(NamedTuple):
    """The arguments of `jax.distributed.initialize`; None where the environment has the value."""

    coordinator_address: str | None = None
    num_processes: int | None = None
    process_id: int | None = None


def join(
    members: Members,
    *,
    watch_port: int | None = None,
    start_seconds: float = 600.0,
    lost_seconds: float = 45.0,
) -> Peers | None:
    """Joins the other processes. Call it before JAX uses a device.

    Args:
      members: this process and process 0.
      watch_port: the port of process 0 over which processes watch each other; None for the one
        after the coordinator's, 0 for no watching.
      start_seconds: how long processes wait for each other.
      lost_seconds: after how long without a sign a process is lost.

    Raises:
      MissingProcessError: a process does not come; the message says which.
      ValueError: the environment does not say what is missing in `members`.
      OSError: process 0 cannot listen on the port, or is not what listens there.
      ProcessError: JAX reads something else from the environment of one of them.
    """
    if os.environ.get("JAX_PLATFORMS") == "cpu":
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # JAX finds the same; here it is known before JAX waits without a word.
    named = members.coordinator_address or os.environ.get("JAX_COORDINATOR_ADDRESS")
    detected: tuple[Any, ...] = clusters.ClusterEnv.auto_detect_unset_distributed_params(
        named, *members[1:], None, None, int(start_seconds)
    )
    address, count, process = detected[:3]
    peers = None
    if watch_port != 0 and None not in (address, count, process) and count > 1:
        host, _, port = address.rpartition(":")
        peers = Peers(
            host.strip("[]"),
            watch_port or int(port) + 1,
            count=count,
            process=process,
            start_seconds=start_seconds,
            lost_seconds=lost_seconds,
        )
        peers.join()
        _joined[:] = [peers]
    if process == 0 and address:
        with _told(OSError):
            check_free(int(address.rpartition(":")[2]))
    with _followed():
        jax.distributed.initialize(
            coordinator_address=address,
            num_processes=count,
            process_id=process,
            initialization_timeout=int(start_seconds),
            # JAX aborts where it misses a process for so long: after the watch, which says who.
            heartbeat_timeout_seconds=max(_HEARTBEAT_SECONDS, int(2 * lost_seconds)),
        )
        with _told(ProcessError):
            environments.compare()
    return peers


@contextlib.contextmanager
def _told(kind: type[Exception]) -> Iterator[None]:
    """Tells the other processes of an error of this kind."""
    try:
        yield
    except kind as error:
        tell(str(error), exit_status.ERROR)
        raise


@contextlib.contextmanager
def _followed() -> Iterator[None]:
    """Calls `follow` with an error."""
    try:
        yield
    except Exception as error:
        follow(error)
        raise


def check_free(port: int) -> None:
    """Raises OSError if another program listens on the coordinator's port; JAX would crash."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            raise OSError(
                f"process 0 cannot listen on port {port} as the coordinator ({error.strerror}): "
                "end the program that uses it, or name another port with --coordinator_address, "
                "the same on all hosts"
            ) from error


def follow(error: BaseException) -> None:
    """Waits where JAX failed: if another process is lost, this one ends and says which.

    JAX knows of it first, and does not say who it is.
    """
    if any(isinstance(cause, jax.errors.JaxRuntimeError) for cause in whole_files.chain(error)):
        for peers in _joined:
            peers.follow(_FOLLOW_SECONDS)


def tell(text: str, status: int) -> None:
    """Tells the other processes, if there are any, why this one ends now."""
    for peers in _joined:
        peers.fail(text, status)
