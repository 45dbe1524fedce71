"""Packed rows: which records share a row, planned once from their lengths, kept with the cache."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from t5x_like.data.cache import CacheSplit
from t5x_like.data.cache_format import temporary_name
from t5x_like.data.samples import Sample

_VERSION = 1
_OPEN_ROWS = 256


@dataclasses.dataclass(frozen=True)
class Plan:
    """Which records make each row.

    Attributes:
      ends: int64 [rows]: where in `members` each row ends.
      members: int64 [records]: record numbers, row after row.
    """

    ends: np.ndarray
    members: np.ndarray

    def row(self, i: int) -> np.ndarray:
        """int64 [n]: the records of row `i`, in the order of the cache."""
        return self.members[self.ends[i - 1] if i else 0 : self.ends[i]]


def plan_rows(needs: np.ndarray, capacity: Sequence[int]) -> Plan:
    """First fit: each record, in order, goes to the first of the open rows that has room.

    At most 256 rows are open; where one more is needed, the fullest is closed. So planning is
    linear in the number of records, and a row's records lie near each other in the cache.

    Args:
      needs: int64 [features, records]: the tokens of each record, at most `capacity`.
      capacity: tokens of a row for each feature.

    Returns:
      Rows in the order in which they were opened; the same for the same arguments.
    """
    limits = np.asarray(capacity, np.int64)[:, None]
    room = np.tile(limits, _OPEN_ROWS)
    row_at = [-1] * _OPEN_ROWS
    row_of = np.empty(needs.shape[1], np.int64)
    rows = 0
    for record in range(needs.shape[1]):
        need = needs[:, record : record + 1]
        fits = np.asarray((room >= need).all(axis=0))
        place = int(fits.argmax())
        if not fits[place]:
            place = int((room / limits).min(axis=0).argmin())
            room[:, place] = limits[:, 0]
            row_at[place] = -1
        if row_at[place] < 0:
            row_at[place] = rows
            rows += 1
        room[:, place] -= need[:, 0]
        row_of[record] = row_at[place]
    members = np.argsort(row_of, kind="stable")
    return Plan(np.cumsum(np.bincount(row_of, minlength=rows)), members)


def added_tokens(post_cache: Sequence[str], eos: Mapping[str, int]) -> dict[str, int]:
    """How many tokens the named steps of `post_cache.STEPS` add to each feature."""
    appended = sum(step.startswith("append_eos") for step in post_cache)
    return dict.fromkeys(eos, appended)


class PackedSamples:
    """Rows of several records each, as many as fit.

    The plan is computed at the first use, written beside the cache (if that can be written),
    and mapped from there.

    Args:
      split: the cached records.
      lengths: tokens of a row for each feature; longer records are trimmed to it.
      extra: tokens that steps after the cache add to each record's features (`added_tokens`).

    Raises:
      ValueError: the cache lacks a feature.
    """

    def __init__(
        self, split: CacheSplit, lengths: Mapping[str, int], *, extra: Mapping[str, int]
    ) -> None:
        missing = sorted(lengths.keys() - split.manifest.features.keys())
        if missing:
            known = ", ".join(split.manifest.features)
            raise ValueError(f"the cache {split.directory} has no feature {missing}, only {known}")
        self.split = split
        self.lengths = dict(lengths)
        self.extra = {name: extra.get(name, 0) for name in lengths}

    def __reduce__(self) -> tuple[object, ...]:
        return functools.partial(PackedSamples, extra=self.extra), (self.split, self.lengths)

    def __len__(self) -> int:
        return len(self.plan.ends)

    def __getitem__(self, i: int) -> tuple[Sample, ...]:
        return tuple(self.split.record(int(record)) for record in self.plan.row(i))

    @functools.cached_property
    def plan(self) -> Plan:
        """Which records make each row."""
        path = self.split.directory / f"{self.split.name}.packed-{self._key()}.npy"
        if not path.exists():
            made = plan_rows(self._needs(), list(self.lengths.values()))
            try:
                _save(path, made)
            except OSError:
                return made  # a cache that cannot be written: planned again in each process
        return _load(path)

    @functools.cached_property
    def efficiency(self) -> dict[str, float]:
        """The fraction of each feature's places that hold tokens."""
        totals = self._needs().sum(axis=1).tolist()
        places = {name: len(self) * length for name, length in self.lengths.items()}
        return {
            name: total / places[name] for name, total in zip(self.lengths, totals, strict=True)
        }

    def _needs(self) -> np.ndarray:
        rows = [
            np.minimum(self.split.lengths(name) + self.extra[name], length)
            for name, length in self.lengths.items()
        ]
        return np.stack(rows)

    def _key(self) -> str:
        content = self.split.manifest.content_hash
        decisive = [_VERSION, content, sorted(self.lengths.items()), sorted(self.extra.items())]
        return hashlib.sha256(repr(decisive).encode()).hexdigest()[:16]


def _save(path: Path, plan: Plan) -> None:
    """One file, so that it is whole or absent: the number of rows, their ends, the members."""
    temporary = temporary_name(path)
    with temporary.open("wb") as file:
        np.save(file, np.concatenate([[len(plan.ends)], plan.ends, plan.members]))
    temporary.rename(path)


def _load(path: Path) -> Plan:
    values = np.load(path, mmap_mode="r", allow_pickle=False)
    rows = int(values[0])
    return Plan(values[1 : rows + 1], values[rows + 1 :])
