"""The settings that JAX reads from the environment: if they differ by process, numbers differ."""

from __future__ import annotations

import functools
import os
import re
import shlex
from pathlib import Path
from typing import Any

import jax
from jax._src import distributed

from t5x_like.training.hosts.agreement import difference
from t5x_like.training.hosts.multihost import ProcessError

_VARIABLES = ("LIBTPU_INIT_ARGS", "NVIDIA_TF32_OVERRIDE", "XLA_FLAGS")
_OF_ONE_HOST = re.compile(
    "address|cache|default_device|devices|device_count|dump|explain|frames|jax_platform"
    "|locations|log|parallelism|pprint|profil|socket|threads|timeout|trac|url|verbose|xla_backend"
    "|_(dir|path|to)$"
)
"""Names of options that may differ: where a host keeps, shows and looks for things, and with how
many threads. Devices are counted."""
_KEY = "t5x_like/environment"
_SECONDS = 600


def lines(num_processes: int) -> list[str]:
    """The compared settings, a line each. JAX must know its devices, or may look for them."""
    settings = [f"--num_processes {num_processes}", f"{jax.local_device_count()} devices"]
    for name, value in sorted(jax.config.values.items()):
        if not _OF_ONE_HOST.search(name):
            settings.append(f"{name.upper()}={getattr(value, 'name', value)}")
    for name in _VARIABLES:
        options = shlex.split(_content(os.environ.get(name, "")))
        shared = (option for option in options if not _OF_ONE_HOST.search(option.partition("=")[0]))
        settings += sorted(f"{name} {option}" for option in shared)
    return settings


def _content(flags: str) -> str:
    """Flags of XLA, or those in the file that is named in their place."""
    if not flags or flags.lstrip().startswith("-") or not (file := Path(flags)).is_file():
        return flags
    return file.read_text(encoding="utf-8", errors="replace")


@functools.cache
def compare() -> None:
    """Raises an error in all processes, which JAX has connected, if their environments differ.

    All call it; a second call does nothing. Over the coordinator, not the devices: numbers of
    different widths would crash a collective.

    Raises:
      ProcessError: it names the processes that differ from process 0, and the first difference.
    """
    state: Any = distributed.global_state
    client, count, wait = state.client, state.num_processes, 1000 * _SECONDS
    if client is None:
        return
    client.key_value_set(f"{_KEY}/{state.process_id}", "\n".join(lines(count)))
    if state.process_id == 0:
        texts = [client.blocking_key_value_get(f"{_KEY}/{n}", wait) for n in range(count)]
        client.key_value_set(f"{_KEY}/verdict", difference("the environment", texts))
    if verdict := client.blocking_key_value_get(f"{_KEY}/verdict", wait):
        raise ProcessError(verdict)
