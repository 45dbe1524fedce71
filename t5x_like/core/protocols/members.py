"""The members of a protocol that an object lacks."""

from __future__ import annotations

from typing import Any, Generic, Protocol


def lacking(one: Any, protocol: type) -> list[str]:
    """The members of a protocol, and of those that it extends, that `one` lacks."""
    extended = [kind for kind in protocol.__mro__ if kind not in (Protocol, Generic, object)]
    names = dict.fromkeys(name for kind in extended for name in vars(kind) if name[0] != "_")
    return [name for name in names if not hasattr(one, name)]
