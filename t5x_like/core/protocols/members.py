"""The members of a protocol that an object lacks, and the error about them."""

from __future__ import annotations

from typing import Any, Generic, Protocol


def lacking(one: Any, protocol: type) -> list[str]:
    """The members of a protocol, and of those that it extends, that `one` lacks."""
    extended = [kind for kind in protocol.__mro__ if kind not in (Protocol, Generic, object)]
    names = dict.fromkeys(name for kind in extended for name in vars(kind) if name[0] != "_")
    return [name for name in names if not hasattr(one, name)]


def check(part: Any, protocol: type, *, name: str = "") -> None:
    """Compares a part of a run with the protocol that it must have.

    Args:
      part: the object.
      protocol: the protocol, one of `core.protocols`.
      name: what messages call the part; its class by default.

    Raises:
      ValueError: it lacks members.
    """
    if missing := lacking(part, protocol):
        raise ValueError(
            f"{name or type(part).__name__} has no {', '.join(missing)}: "
            f"protocols.{protocol.__name__} says what these are"
        )
