"""Cached tasks with their vocabulary, ready to be cut into examples."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from t5x_like.data import packing
from t5x_like.data.cache import Cache
from t5x_like.data.samples import RecordSamples, Samples, make_samples
from t5x_like.data.stream import Component
from t5x_like.data.task_records import TaskRecord
from t5x_like.protocols import Vocabulary


@dataclasses.dataclass(frozen=True)
class Opened:
    """Cached tasks with their vocabulary, ready to be cut into examples."""

    records: tuple[TaskRecord, ...]
    caches: tuple[Cache, ...]
    vocabulary: Vocabulary
    lengths: Mapping[str, int]

    def components(self, split: str, *, pack: bool = False) -> list[Component]:
        """The tasks that have examples in `split`, cut for `lengths`.

        Args:
          split: `train` or `validation`.
          pack: several records to a row, for tasks whose examples are records.
        """
        return [
            Component(
                name=record.name,
                samples=self._samples(record, cache, split=split, pack=pack),
                objective=record.objective,
                post_cache=record.steps,
                eos=record.eos,
                token_ids=cache.token_ids,
                weight=record.weight,
            )
            for record, cache in zip(self.records, self.caches, strict=True)
            if split in cache.manifest.splits and cache.manifest.splits[split].records
        ]

    def _samples(self, record: TaskRecord, cache: Cache, *, split: str, pack: bool) -> Samples:
        if record.objective is not None:
            return make_samples(record.objective.geometry(self.lengths), cache.split(split))
        if not pack:
            return RecordSamples(cache.split(split))
        extra = packing.added_tokens(record.steps, record.eos)
        return packing.PackedSamples(cache.split(split), self.lengths, extra=extra)

    def identity(self) -> dict[str, Any]:
        """Flat JSON that differs exactly where the stream of examples would."""
        found: dict[str, Any] = {
            "data.lengths": dict(self.lengths),
            "data.weights": {record.name: record.weight for record in self.records},
        }
        for record, cache in zip(self.records, self.caches, strict=True):
            found[f"data.{record.name}.text"] = cache.manifest.content_hash
            found[f"data.{record.name}.objective"] = repr(record.objective)
            found[f"data.{record.name}.steps"] = list(record.steps)
            found[f"data.{record.name}.eos"] = dict(record.eos)
        return found


def check_materialized(record: TaskRecord, cache: Cache, lengths: Mapping[str, int]) -> None:
    """Raises ValueError where a task was cached whole, for other lengths than these."""
    made = cache.manifest.materialized
    if made is not None and made["lengths"] != dict(lengths):
        raise ValueError(
            f"task {record.name!r} was cached whole for lengths {made['lengths']}, not "
            f"{dict(lengths)}: set TASK_FEATURE_LENGTHS to those, or run `t5x_like cache "
            f"{record.name} --materialize` with the new ones"
        )
