"""The devices that layouts are made of: all of JAX's, or absent ones that a compiler knows."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import jax

_DEVICES: contextvars.ContextVar[Sequence[jax.Device] | None] = contextvars.ContextVar(
    "devices", default=None
)


@contextlib.contextmanager
def on_devices(found: Sequence[jax.Device]) -> Iterator[None]:
    """Makes `devices` return these."""
    token = _DEVICES.set(found)
    try:
        yield
    finally:
        _DEVICES.reset(token)


def devices() -> list[jax.Device]:
    """Those of `on_devices`, or else all devices of JAX."""
    import jax

    return list(_DEVICES.get() or jax.devices())
