"""Which tokens of a corpus make one sample: the shapes an objective may ask for."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class ConcatenateAndSplit:
    """All documents end to end, cut every `length` tokens; the last sample may be shorter."""

    length: int

    def __post_init__(self) -> None:
        if self.length < 1:
            raise ValueError(f"a sample needs at least one token, got length {self.length}")


@dataclasses.dataclass(frozen=True)
class PerRecord:
    """One cached record is one sample (text-to-text tasks)."""
