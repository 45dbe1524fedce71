"""Cached tasks with their vocabulary, ready to be cut into examples."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from t5x_like.core.protocols import FeatureSpec, Objective, TokenIds, Vocabulary
from t5x_like.data import order
from t5x_like.data.cache.reader import Cache
from t5x_like.data.cache.task_records import TaskRecord
from t5x_like.data.samples import packing
from t5x_like.data.samples.samples import RecordSamples, Samples, is_carried, make_samples
from t5x_like.data.samples.token_stream import separator
from t5x_like.data.stream import Component


@dataclasses.dataclass(frozen=True)
class CachedTasks:
    """Cached tasks with their vocabulary, ready to be cut into examples."""

    records: tuple[TaskRecord, ...]
    caches: tuple[Cache, ...]
    vocabulary: Vocabulary
    lengths: Mapping[str, int]

    def components(
        self, split: str, *, pack: bool = False, rows: int | None = None, alone: bool = False
    ) -> list[Component]:
        """The tasks that have examples in `split`, cut for `lengths`; plans what needs a plan.

        Args:
          split: `train` or `validation`.
          pack: several samples to a row, of tasks that can be packed.
          rows: of a batch, where rows are carried from batch to batch.
          alone: whether each task will fill whole batches by itself, as in evaluation; else carried
            tasks divide the rows of a batch in proportion to their weights.

        Raises:
          ValueError: a task cannot be packed, or a batch has too few rows for a plan.
        """
        present = [
            (record, cache)
            for record, cache in zip(self.records, self.caches, strict=True)
            if split in cache.manifest.splits and cache.manifest.splits[split].records
        ]
        carried = [self._carried(record) for record, _ in present]
        given: list[int | None] = [rows] * len(present)
        if rows is not None and not alone and any(carried):
            weights = [record.weight for record, _ in present]
            given = [*order.shares(weights, rows, multiple=math.lcm(*filter(None, carried)))]
        return [
            Component(
                name=record.name,
                samples=self._samples(record, cache, split=split, pack=pack, rows=own),
                objective=record.objective,
                features=self._features(record),
                post_cache=record.steps,
                eos=record.eos,
                token_ids=cache.token_ids,
                weight=record.weight,
                rows=own if multiple else None,
            )
            for (record, cache), own, multiple in zip(present, given, carried, strict=True)
        ]

    def tokens(self, name: str, split: str = "train") -> int:
        """How many a task's text has, in all its features."""
        found = zip(self.records, self.caches, strict=True)
        (cache,) = (cache for record, cache in found if record.name == name)
        return sum(cache.manifest.splits[split].tokens.values())

    def _samples(
        self, record: TaskRecord, cache: Cache, *, split: str, pack: bool, rows: int | None
    ) -> Samples:
        cached, objective = cache.split(split), record.objective
        if objective is None:
            if not pack:
                return RecordSamples(cached)
            return packing.packed_records(
                cached, self.lengths, post_cache=record.steps, eos=record.eos
            )
        if pack:
            return packing.packed_documents(cached, objective, self.lengths)
        shape = objective.geometry(self.lengths)
        ids = cache.token_ids
        return make_samples(shape, cached, separator=separator(ids), rows=rows, ids=ids)

    def _features(self, record: TaskRecord) -> Mapping[str, FeatureSpec]:
        if record.objective is not None:
            return record.objective.features(self.lengths)
        return {name: FeatureSpec(length) for name, length in self.lengths.items()}

    def _carried(self, record: TaskRecord) -> int:
        """The number of rows of which a carried task needs a multiple; 0 for other tasks."""
        if record.objective is None:
            return 0
        shape = record.objective.geometry(self.lengths)
        return getattr(shape, "rows_multiple", 1) if is_carried(shape) else 0

    def identity(self) -> dict[str, Any]:
        """Flat JSON that differs exactly where the stream of examples would."""
        found: dict[str, Any] = {
            "data.lengths": dict(self.lengths),
            "data.weights": {record.name: record.weight for record in self.records},
        }
        for record, cache in zip(self.records, self.caches, strict=True):
            found[f"data.{record.name}.text"] = cache.manifest.content_hash
            found[f"data.{record.name}.segments"] = cache.manifest.segmentation
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


def check_vocabulary(
    task: str, objective: Objective | None, ids: TokenIds, *, counted: bool = True
) -> None:
    """Raises ValueError where a vocabulary lacks what an objective needs.

    Args:
      task: named in the message.
      objective: None needs nothing.
      ids: of the vocabulary.
      counted: whether `ids` are those of a cache, which counts them.
    """
    needs = () if objective is None else objective.needs
    missing = [name for name in ids.missing(needs) if counted or name != "counts"]
    if missing:
        raise ValueError(
            f"task {task!r} ({type(objective).__name__}) needs a vocabulary with "
            f"{', '.join(missing)}, and this one has none; train one that has with `t5x_like "
            "vocab`, or name one (VOCABULARY or --vocabulary) and cache the text again with it"
        )
