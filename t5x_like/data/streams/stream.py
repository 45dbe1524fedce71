"""The batches of a run. The rows of step N depend on tasks, seed, N and batch size alone."""

from __future__ import annotations

import dataclasses
import functools
import os
import sys
import weakref
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing import resource_tracker
from typing import Any, cast

import numpy as np

from t5x_like.core.protocols.data import FeatureConverter, FeatureSpec, TokenIds
from t5x_like.data.cache.workers import die_with_parent
from t5x_like.data.rows import late_steps
from t5x_like.data.samples.order import Epochs, Order, Part, order, spread
from t5x_like.data.samples.passes import epochs_of
from t5x_like.data.samples.randomness import noise_source, reused_rng
from t5x_like.data.samples.samples import RecordSamples, Sample, Samples, WindowSamples
from t5x_like.data.streams.by_length import ByLength
from t5x_like.data.task import Task
from t5x_like.objectives.parts.geometry import PerRecord, RecordWindows, keeps_records

Row = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Examples:
    """The rows of one task's split, before they are shuffled.

    Row n, counted through all epochs, holds model features.

    Attributes:
      task: the opened task.
      samples: the samples that its objective receives.
      converter: makes model features.
      seed: the seed of order and noise.
      rows: the task's rows of a batch, where rows are carried from batch to batch; None for other
        tasks. Sample n lies in row n % rows of these, at step n // rows, and is never shuffled.
    """

    task: Task
    samples: Samples
    converter: FeatureConverter
    seed: int
    rows: int | None = None

    def __len__(self) -> int:
        """The number of samples: the rows after which the samples begin again."""
        return len(self.samples)

    @functools.cached_property
    def epochs(self) -> Epochs:
        """The epochs of the rows."""
        return epochs_of(self.samples)

    @functools.cached_property
    def _noise(self) -> str:
        return noise_source(self.task.name, self.task.objective)

    @functools.cached_property
    def _features(self) -> Mapping[str, FeatureSpec]:
        return self.task.features

    @functools.cached_property
    def _lengths(self) -> dict[str, int | None]:
        return {name: spec.length for name, spec in self._features.items()}

    @functools.cached_property
    def _declared(self) -> bool:
        """Whether the features of an example are as long as the objective declares."""
        geometry = self.task.objective.geometry(self.task.lengths)
        return not self.task.steps and not keeps_records(geometry)

    @functools.cached_property
    def _ids(self) -> TokenIds:
        return self.task.token_ids

    def __getitem__(self, n: int) -> Row:
        """Row n. Each epoch has noise of its own, unless the objective is static."""
        return self.converted(self.features(n))

    def converted(self, examples: Sequence[Sample], length: int | None = None) -> Row:
        """Model features of the examples that share a row; `length` tokens, or the task's."""
        features = self._features if length is None else self._features_of(length)
        return self.converter.convert(examples, features=features, ids=self._ids)

    def _features_of(self, length: int) -> Mapping[str, FeatureSpec]:
        return self.task.objective.features({**self.task.lengths, "inputs": length})

    @functools.cached_property
    def tokens(self) -> np.ndarray | None:
        """int [samples]: the tokens of each row; None where they are not known beforehand."""
        geometry = self.task.objective.geometry(self.task.lengths)
        if not isinstance(geometry, PerRecord | RecordWindows):
            return None
        if not isinstance(self.samples, RecordSamples | WindowSamples):
            return None
        return geometry.row_tokens(self.samples.split.offsets)

    def features(self, n: int) -> list[Sample]:
        """The examples that share row n, end of sequence appended."""
        objective, index = self.task.objective, self.epochs.sample_of(n)
        rng = reused_rng(self.seed, self._noise, index if objective.static else n)
        return [self._example(sample, rng) for sample in self.samples[index]]

    def _example(self, sample: Sample, rng: np.random.Generator) -> Sample:
        task = self.task
        sample = task.objective(sample, rng, self._ids)
        if self._declared:
            return sample
        return late_steps.apply(task.steps, sample, lengths=self._lengths, eos=task.eos or {})


@dataclasses.dataclass(frozen=True)
class _Batches:
    """The batches: item N is the requested rows of global batch N, stacked."""

    examples: Sequence[Examples]
    order: Order | ByLength
    rows: Sequence[int]
    batch_size: int
    rows_before: int = 0

    def __len__(self) -> int:
        return (sys.maxsize - self.rows_before) // self.batch_size

    def __getitem__(self, step: int) -> Row:
        first = self.rows_before + step * self.batch_size
        places = [self.order[first + row] for row in self.rows]
        # All examples are made before any row. To alternate takes up to a tenth longer, because
        # each drives the code of the other out of the processor's cache.
        features = [self.examples[task].features(n) for task, n in places]
        length = self.order.length(step) if isinstance(self.order, ByLength) else None
        return _stack(
            [
                self.examples[task].converted(shared, length)
                for (task, _), shared in zip(places, features, strict=True)
            ]
        )


def train_stream(
    examples: Sequence[Examples],
    *,
    batch_size: int,
    rows: Sequence[int] | np.ndarray | None = None,
    start_step: int = 0,
    num_threads: int = 2,
    num_workers: int = 0,
    shuffle: bool = True,
    by_length: bool = False,
    rows_before: int = 0,
) -> TrainStream:
    """An endless stream of batches from `start_step` on.

    Row r of step N is the same for every choice of rows, threads, processes and first step.

    Args:
      examples: the examples of each task of a mixture, with one seed. Tasks are drawn from in exact
        proportion to their weights, each in epochs. Where rows are carried from batch to batch,
        each task has rows of its own.
      batch_size: the rows of the global batch.
      rows: the rows of the global batch to yield, in this order; None for all.
      start_step: the first step.
      num_threads: the number of threads that prefetch; 0 computes each batch on request.
      num_workers: the number of processes that compute batches; 0 for none.
      shuffle: whether to shuffle each epoch differently; otherwise the order is that of the cache.
      by_length: whether rows of like length share batches (`ByLength`), which are then as long as
        their longest row.
      rows_before: the rows that batches of other sizes have had before step 0.

    Returns:
      {model feature: [len(rows), ...]} of each step.

    Raises:
      ValueError: a task has no samples, rows lie outside the batch, or the tasks do not fit
        together; or rows that depend on the size follow batches of another size.
    """
    import grain

    rows = _checked_rows(rows, batch_size)
    _check_not_empty(examples)
    parts = [Part(e.task.name, e.epochs, e.task.weight, e.rows) for e in examples]
    seeds = {part.seed for part in examples}
    if len(seeds) > 1:
        raise ValueError(f"the tasks of one stream have one seed, not {sorted(seeds)}")
    seed = min(seeds, default=0)
    ordered: Order = order(parts, batch_size=batch_size, seed=seed, shuffle=shuffle)
    if rows_before:
        check_continues(examples, by_length=by_length)
    if by_length:
        check_by_length(examples)
        tokens = [cast(np.ndarray, part.tokens) for part in examples]
        most = max(part.task.lengths["inputs"] for part in examples)
        epochs = [part.epochs for part in examples]
        ordered = ByLength(ordered, epochs, tokens, batch_size, seed, most)
    source = _Batches(examples, ordered, rows, batch_size, rows_before)
    batches = grain.MapDataset.source(source)[start_step:]
    options = grain.ReadOptions(num_threads=num_threads, prefetch_buffer_size=2 * num_threads)
    iterable = batches.to_iter_dataset(options)
    return TrainStream(iter(_in_processes(iterable, num_workers) if num_workers else iterable))


class TrainStream(Iterator[Row]):
    """The batches of `train_stream`. Deleting the stream closes its threads and processes."""

    def __init__(self, batches: Any) -> None:
        self._batches = [batches]
        # A finalizer also runs at exit, while the modules that it needs still exist.
        self.close = weakref.finalize(self, _close, self._batches)

    def __next__(self) -> Row:
        if not self._batches:
            raise StopIteration
        batch = next(self._batches[0])
        # The arrays are copied, because those of a worker process lie in memory shared with it.
        return {name: np.array(value) for name, value in sorted(batch.items())}


def _close(batches: list[Any]) -> None:
    batches.pop().close()


def eval_stream(
    examples: Examples,
    *,
    batch_size: int,
    rows: Sequence[int] | np.ndarray | None = None,
    max_batches: int | None = None,
) -> Iterator[Row]:
    """Batches of `evaluated_rows`, in the order of the cache, the same at every call.

    Args:
      examples: the examples of one task, usually of a held-out split; the noise is that of epoch 0.
      batch_size: the rows of the global batch.
      rows: the rows of the global batch to yield; None for all.
      max_batches: the maximum number of batches; None for all.

    Returns:
      {model feature: [len(rows), ...]} of each batch. Rows past the last sample are all zeros, loss
      weights included.

    Raises:
      ValueError: there are no samples, or they carry rows for another batch size.
    """
    rows = _checked_rows(rows, batch_size)
    _check_not_empty([examples])
    if examples.rows not in (None, batch_size):
        raise ValueError(
            f"task {examples.task.name!r} carries rows for batches of {examples.rows}, not of "
            f"{batch_size}: open it alone, for this batch size"
        )
    padding = {name: np.zeros_like(value) for name, value in examples[0].items()}
    chosen = evaluated_rows(examples, batch_size=batch_size, max_batches=max_batches)

    def batch(step: int) -> Row:
        places = [step * batch_size + row for row in rows]
        return _stack([examples[chosen[n]] if n < len(chosen) else padding for n in places])

    return map(batch, range(-(-len(chosen) // batch_size)))


def evaluated_rows(
    examples: Examples, *, batch_size: int, max_batches: int | None
) -> Sequence[int]:
    """The numbers of the rows in so many batches at most: all, or some from every part of the text.

    Rows that are carried from batch to batch follow one another. Each begins at a place of its own
    in the text, so the first batches have some of every part, too.
    """
    at_most = None if max_batches is None else max_batches * batch_size
    if examples.rows is not None:
        return range(len(examples))[:at_most]
    return spread(len(examples), at_most)


def check_by_length(examples: Sequence[Examples]) -> None:
    """Raises ValueError where rows of like length cannot share batches."""
    for part in examples:
        if part.tokens is None:
            raise ValueError(
                f"GROUP_BY_LENGTH is for rows of labelled texts, each of its own length, and not "
                f"for {type(part.task.objective).__name__}: set it to False"
            )


def check_continues(examples: Sequence[Examples], *, by_length: bool) -> None:
    """Raises ValueError where batches of another size cannot have come before."""
    if by_length or any(part.rows is not None for part in examples):
        raise ValueError(
            "a phase cannot continue the rows of batches of another size (BATCH_WARMUP_TOKENS) "
            "where rows are carried from batch to batch, or share batches by their length "
            "(GROUP_BY_LENGTH)"
        )


def _check_not_empty(examples: Sequence[Examples]) -> None:
    for part in examples:
        if not part.samples:
            raise ValueError(
                f"task {part.task.name!r} has no samples in this split: the split has no text"
            )


def _in_processes(iterable: Any, num_workers: int) -> Any:
    import grain
    from absl import flags

    _keep_tracker_quiet()

    # Grain reads absl flags, which a program without absl.app never parses.
    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()
    return iterable.mp_prefetch(
        grain.MultiprocessingOptions(num_workers=num_workers, per_worker_buffer_size=2),
        worker_init_fn=_start_worker,
    )


def _keep_tracker_quiet() -> None:
    """Starts Python's tracker of shared memory so that it does not speak after our last line.

    It removes what processes leave that end early, as it should, and warns of it.
    """
    sys.warnoptions.append("ignore:resource_tracker:UserWarning")
    try:
        resource_tracker.ensure_running()
    finally:
        sys.warnoptions.pop()


def _checked_rows(rows: Sequence[int] | np.ndarray | None, batch_size: int) -> list[int]:
    rows = np.arange(batch_size) if rows is None else np.asarray(rows, np.int64)
    if not len(rows) or rows.min() < 0 or rows.max() >= batch_size:
        raise ValueError(f"rows must be some of 0 to {batch_size - 1}, got {rows.tolist()}")
    return rows.tolist()


def _stack(rows: Sequence[Row]) -> Row:
    """The arrays stacked by name, as by `np.stack`, in a third of its time."""
    return {
        name: np.concatenate([row[name] for row in rows]).reshape(len(rows), *value.shape)
        if value.ndim
        else np.array([row[name] for row in rows])
        for name, value in rows[0].items()
    }


def _start_worker(worker: int, workers: int) -> None:
    del worker, workers
    die_with_parent()
    # Grain imports jax, and the accelerator is for the process that trains.
    os.environ["JAX_PLATFORMS"] = "cpu"
    if "jax" in sys.modules:
        sys.modules["jax"].config.update("jax_platforms", "cpu")
