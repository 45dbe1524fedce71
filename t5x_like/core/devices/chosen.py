"""The devices that layouts are made of: all of JAX's, or absent ones that a compiler knows."""

from __future__ import annotations

import contextlib
import contextvars
import re
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


def is_ampere(device: jax.Device) -> bool:
    """Whether it is an NVIDIA GPU of compute capability 8.0 (Ampere, 2020) or later.

    Kernels of Triton and the attention of cuDNN need one.
    """
    capability = str(getattr(device, "compute_capability", ""))
    return bool(re.fullmatch(r"\d+\.\d+", capability)) and float(capability) >= 8


def devices() -> list[jax.Device]:
    """Those of `on_devices`, or else all devices of JAX."""
    import jax

    return list(_DEVICES.get() or jax.devices())
