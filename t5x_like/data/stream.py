"""The rows of step N as a function of (components, seed, N, batch size), and of nothing else."""

from __future__ import annotations

import dataclasses
import functools
import os
import sys
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from t5x_like.core.protocols import FeatureSpec, Objective, TokenIds
from t5x_like.data import late_steps
from t5x_like.data.cache.workers import die_with_parent
from t5x_like.data.order import Order, Part, order
from t5x_like.data.samples.randomness import noise_source, reused_rng
from t5x_like.data.samples.samples import Sample, Samples

Row = dict[str, np.ndarray]


class Converter(Protocol):
    """Task features to model features, such as `feature_converters.EncoderDecoder`."""

    def convert(
        self,
        examples: Sequence[Mapping[str, np.ndarray]],
        *,
        features: Mapping[str, FeatureSpec],
        ids: TokenIds,
    ) -> Row: ...


@dataclasses.dataclass(frozen=True)
class Component:
    """A cached task, as one part of a mixture.

    Attributes:
      name: of the task; part of what its order and its noise derive from.
      samples: what the objective is given.
      objective: None where the cache holds finished features.
      features: what an example holds at most, after `post_cache`.
      post_cache: names of `late_steps.STEPS`, run after the objective.
      eos: the id to append to each feature that takes one.
      token_ids: special ids of the vocabulary.
      weight: its share, relative to the other components' weights.
      rows: of a batch, for which samples were planned that are carried from batch to batch: never
        shuffled, sample n in row n % rows of its rows of step n // rows. None for others.
    """

    name: str
    samples: Samples
    objective: Objective | None
    features: Mapping[str, FeatureSpec]
    post_cache: tuple[str, ...]
    eos: Mapping[str, int]
    token_ids: TokenIds
    weight: int = 1
    rows: int | None = None

    @property
    def carried(self) -> bool:
        """Whether a model may carry memory from a row of one batch to that of the next."""
        return self.rows is not None


@dataclasses.dataclass(frozen=True)
class Examples:
    """Model features of row n = epoch * size + index of one component, before any shuffling."""

    component: Component
    seed: int
    converter: Converter

    def __len__(self) -> int:
        return self._size

    @functools.cached_property
    def _size(self) -> int:
        return len(self.component.samples)

    @functools.cached_property
    def _noise(self) -> str:
        return noise_source(self.component.name, self.component.objective)

    @functools.cached_property
    def _lengths(self) -> dict[str, int | None]:
        return {name: spec.length for name, spec in self.component.features.items()}

    def __getitem__(self, n: int) -> Row:
        """Row n: another epoch has another noise, unless the objective is static."""
        return self.converted(self.features(n))

    def converted(self, examples: Sequence[Sample]) -> Row:
        """Model features of the examples that share a row."""
        component = self.component
        return self.converter.convert(
            examples, features=component.features, ids=component.token_ids
        )

    def features(self, n: int) -> list[Sample]:
        """The examples that share row n, end of sequence appended."""
        component, index = self.component, n % self._size
        rng = None
        if component.objective is not None:
            place = index if component.objective.static else n
            rng = reused_rng(self.seed, self._noise, place)
        return [self._example(sample, rng) for sample in component.samples[index]]

    def _example(self, sample: Sample, rng: np.random.Generator | None) -> Sample:
        component = self.component
        if component.objective is not None:
            assert rng is not None
            sample = component.objective(sample, rng, component.token_ids)
            if not component.post_cache:
                return sample  # its features are as long as it declares
        return late_steps.apply(
            component.post_cache, sample, lengths=self._lengths, eos=component.eos
        )


@dataclasses.dataclass(frozen=True)
class _Batches:
    """Item N: the asked-for rows of global batch N, stacked."""

    examples: Sequence[Examples]
    order: Order
    rows: Sequence[int]
    batch_size: int

    def __len__(self) -> int:
        return sys.maxsize // self.batch_size

    def __getitem__(self, step: int) -> Row:
        first = step * self.batch_size
        places = [self.order[first + row] for row in self.rows]
        # All examples before all rows: taking turns, they would drive each other's code out of the
        # processor's cache, up to a tenth of the time.
        found = [self.examples[component].features(n) for component, n in places]
        return _stack(
            [
                self.examples[component].converted(shared)
                for (component, _), shared in zip(places, found, strict=True)
            ]
        )


def train_stream(
    components: Sequence[Component],
    *,
    converter: Converter,
    batch_size: int,
    seed: int,
    rows: Sequence[int] | np.ndarray | None = None,
    start_step: int = 0,
    num_threads: int = 2,
    num_workers: int = 0,
    shuffle: bool = True,
) -> TrainStream:
    """Batches from `start_step` on, without end.

    Row r of step N is the same whatever rows are asked for, in however many threads and
    processes, and from whichever step the stream is started. It is never saved.

    Args:
      components: drawn from in exactly the proportion of their weights, each in epochs; where rows
        are carried from batch to batch, each has rows of its own.
      converter: makes model features.
      batch_size: rows of the global batch.
      seed: of order and noise.
      rows: which rows of the global batch to yield, in this order; None for all.
      start_step: the first step.
      num_threads: that prefetch; 0 computes each batch when it is asked for.
      num_workers: processes that compute batches; 0 for none.
      shuffle: each epoch differently; else in the order of the cache.

    Returns:
      {model feature: [len(rows), ...]} of each step.

    Raises:
      ValueError: a component without samples, rows outside the batch, or components that do not
        go together.
    """
    import grain

    rows = _checked_rows(rows, batch_size)
    examples = [_examples(component, seed, converter) for component in components]
    parts = [Part(c.name, len(c.samples), c.weight, c.rows) for c in components]
    ordered = order(parts, batch_size=batch_size, seed=seed, shuffle=shuffle)
    source = _Batches(examples, ordered, rows, batch_size)
    batches = grain.MapDataset.source(source)[start_step:]
    options = grain.ReadOptions(num_threads=num_threads, prefetch_buffer_size=2 * num_threads)
    iterable = batches.to_iter_dataset(options)
    return TrainStream(iter(_in_processes(iterable, num_workers) if num_workers else iterable))


class TrainStream(Iterator[Row]):
    """The batches of `train_stream`. Closes its threads and processes when it is dropped."""

    def __init__(self, batches: Any) -> None:
        self._batches = [batches]
        # Also at exit, while the modules that closing needs are still there.
        self.close = weakref.finalize(self, _close, self._batches)

    def __next__(self) -> Row:
        if not self._batches:
            raise StopIteration
        batch = next(self._batches[0])
        # Copies: what comes from a worker process lies in memory shared with it.
        return {name: np.array(value) for name, value in sorted(batch.items())}


def _close(batches: list[Any]) -> None:
    batches.pop().close()


def eval_stream(
    component: Component,
    *,
    converter: Converter,
    batch_size: int,
    seed: int,
    rows: Sequence[int] | np.ndarray | None = None,
    max_batches: int | None = None,
) -> Iterator[Row]:
    """The first batches in the order of the cache, the same whenever they are asked for.

    Args:
      component: usually of a held-out split.
      converter: makes model features.
      batch_size: rows of the global batch.
      seed: of the noise, which is that of epoch 0.
      rows: which rows of the global batch to yield; None for all.
      max_batches: at most so many; None for all.

    Returns:
      {model feature: [len(rows), ...]} of each batch; rows past the last sample are all zeros,
      loss weights included.

    Raises:
      ValueError: the component has no samples, or carries rows for another batch size.
    """
    rows = _checked_rows(rows, batch_size)
    examples = _examples(component, seed, converter)
    if component.rows not in (None, batch_size):
        raise ValueError(
            f"task {component.name!r} carries rows for batches of {component.rows}, not of "
            f"{batch_size}: open it alone, for this batch size"
        )
    padding = {name: np.zeros_like(value) for name, value in examples[0].items()}
    steps = -(-len(examples) // batch_size)

    def batch(step: int) -> Row:
        places = [step * batch_size + row for row in rows]
        return _stack([examples[n] if n < len(examples) else padding for n in places])

    return map(batch, range(steps if max_batches is None else min(steps, max_batches)))


def _examples(component: Component, seed: int, converter: Converter) -> Examples:
    if not len(component.samples):
        raise ValueError(f"task {component.name!r} has no samples in this split: it has no text")
    return Examples(component, seed, converter)


def _in_processes(iterable: Any, num_workers: int) -> Any:
    import grain
    from absl import flags

    # Grain looks up its flags, which a program without absl.app never parses.
    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()
    return iterable.mp_prefetch(
        grain.MultiprocessingOptions(num_workers=num_workers, per_worker_buffer_size=2),
        worker_init_fn=_start_worker,
    )


def _checked_rows(rows: Sequence[int] | np.ndarray | None, batch_size: int) -> list[int]:
    rows = np.arange(batch_size) if rows is None else np.asarray(rows, np.int64)
    if not len(rows) or rows.min() < 0 or rows.max() >= batch_size:
        raise ValueError(f"rows must be some of 0 to {batch_size - 1}, got {rows.tolist()}")
    return rows.tolist()


def _stack(rows: Sequence[Row]) -> Row:
    """Does what `np.stack` does to each array, in a third of its time."""
    return {
        name: np.concatenate([row[name] for row in rows]).reshape(len(rows), *value.shape)
        if value.ndim
        else np.array([row[name] for row in rows])
        for name, value in rows[0].items()
    }


def _start_worker(worker: int, workers: int) -> None:
    del worker, workers
    die_with_parent()
    # Grain imports jax; an accelerator belongs to the process that trains.
    os.environ["JAX_PLATFORMS"] = "cpu"
    if "jax" in sys.modules:
        sys.modules["jax"].config.update("jax_platforms", "cpu")
