"""The rows of step N as a function of (components, seed, N, batch size), and of nothing else."""

from __future__ import annotations

import dataclasses
import functools
import os
import sys
import weakref
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from t5x_like.data import post_cache
from t5x_like.data.randomness import example_rng, noise_source
from t5x_like.data.samples import Sample, Samples
from t5x_like.protocols import Objective, TokenIds

Row = dict[str, np.ndarray]


class Converter(Protocol):
    """Task features to model features, such as `feature_converters.EncoderDecoder`."""

    def convert(
        self, examples: Sequence[Mapping[str, np.ndarray]], lengths: Mapping[str, int]
    ) -> Row: ...


@dataclasses.dataclass(frozen=True)
class Component:
    """A cached task, as one part of a mixture.

    Attributes:
      name: of the task; part of what its order and its noise derive from.
      samples: what the objective is given.
      objective: None where the cache holds finished features.
      post_cache: names of `post_cache.STEPS`, run after the objective.
      eos: the id to append to each feature that takes one.
      token_ids: special ids of the vocabulary.
      weight: its share, relative to the other components' weights.
    """

    name: str
    samples: Samples
    objective: Objective | None
    post_cache: tuple[str, ...]
    eos: Mapping[str, int]
    token_ids: TokenIds
    weight: int = 1


@dataclasses.dataclass(frozen=True)
class Examples:
    """Model features of row n = epoch * size + index of one component, before any shuffling."""

    component: Component
    lengths: Mapping[str, int]
    seed: int
    converter: Converter

    def __len__(self) -> int:
        return len(self.component.samples)

    def __getitem__(self, n: int) -> Row:
        return self.convert(n, self.component.samples[n % len(self)])

    @functools.cached_property
    def _noise(self) -> str:
        return noise_source(self.component.name, self.component.objective)

    def convert(self, n: int, samples: Sequence[Sample]) -> Row:
        """The row that `samples` make in place `n`: another epoch is another place."""
        component = self.component
        rng = example_rng(self.seed, self._noise, n)
        examples = []
        for sample in samples:
            features = (
                sample
                if component.objective is None
                else component.objective(sample, rng, component.token_ids)
            )
            examples.append(
                post_cache.apply(
                    component.post_cache, features, lengths=self.lengths, eos=component.eos
                )
            )
        return self.converter.convert(examples, self.lengths)


@dataclasses.dataclass(frozen=True)
class _Batches:
    """Item N: the asked-for rows of global batch N, stacked."""

    rows_of_stream: Any
    rows: np.ndarray
    batch_size: int

    def __len__(self) -> int:
        return sys.maxsize // self.batch_size

    def __getitem__(self, step: int) -> Row:
        first = step * self.batch_size
        return _stack([self.rows_of_stream[first + int(row)] for row in self.rows])


def train_stream(
    components: Sequence[Component],
    *,
    lengths: Mapping[str, int],
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
      components: drawn from in exactly the proportion of their weights, each in epochs.
      lengths: of the task features.
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
      ValueError: a component without samples, or rows outside the batch.
    """
    import grain

    rows = _checked_rows(rows, batch_size)
    examples = [Examples(component, lengths, seed, converter) for component in components]
    stream = _mixture(examples, seed=seed, shuffle=shuffle)
    batches = grain.MapDataset.source(_Batches(stream, rows, batch_size))[start_step:]
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
    lengths: Mapping[str, int],
    converter: Converter,
    batch_size: int,
    seed: int,
    rows: Sequence[int] | np.ndarray | None = None,
    max_batches: int | None = None,
) -> Iterator[Row]:
    """The first batches in the order of the cache, the same whenever they are asked for.

    Args:
      component: usually of a held-out split.
      lengths: of the task features.
      converter: makes model features.
      batch_size: rows of the global batch.
      seed: of the noise, which is that of epoch 0.
      rows: which rows of the global batch to yield; None for all.
      max_batches: at most so many; None for all.

    Returns:
      {model feature: [len(rows), ...]} of each batch; rows past the last sample are all zeros,
      loss weights included.

    Raises:
      ValueError: the component has no samples.
    """
    rows = _checked_rows(rows, batch_size)
    examples = Examples(component, lengths, seed, converter)
    _check_not_empty(component)
    padding = {name: np.zeros_like(value) for name, value in examples[0].items()}
    steps = -(-len(examples) // batch_size)

    def batch(step: int) -> Row:
        places = step * batch_size + rows
        return _stack([examples[int(n)] if n < len(examples) else padding for n in places])

    return map(batch, range(steps if max_batches is None else min(steps, max_batches)))


def _mixture(examples: Sequence[Examples], *, seed: int, shuffle: bool) -> Any:
    """The endless `grain.MapDataset` of rows."""
    import grain

    datasets = []
    for part in examples:
        _check_not_empty(part.component)
        # The objective comes before shuffle and repeat: it is given epoch * size + index.
        dataset = grain.MapDataset.source(part.component.samples).map_with_index(part.convert)
        if shuffle:
            dataset = dataset.shuffle(seed=_component_seed(seed, part.component.name))
        datasets.append(dataset.repeat())
    weights = [part.component.weight for part in examples]
    if not datasets or min(weights) < 1:
        raise ValueError(f"a mixture needs weights of at least 1, got {weights}")
    return datasets[0] if len(datasets) == 1 else grain.MapDataset.mix(datasets, weights=weights)


def _in_processes(iterable: Any, num_workers: int) -> Any:
    import grain
    from absl import flags

    # Grain looks up its flags, which a program without absl.app never parses.
    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()
    return iterable.mp_prefetch(
        grain.MultiprocessingOptions(num_workers=num_workers, per_worker_buffer_size=2),
        worker_init_fn=_keep_off_accelerators,
    )


def _component_seed(seed: int, name: str) -> int:
    """Grain adds the epoch to its seed: neighbouring seeds would share their orders."""
    sequence = np.random.SeedSequence([seed, zlib.crc32(name.encode())])
    return int(sequence.generate_state(1)[0])


def _check_not_empty(component: Component) -> None:
    if not len(component.samples):
        raise ValueError(f"task {component.name!r} has no samples in this split: it has no text")


def _checked_rows(rows: Sequence[int] | np.ndarray | None, batch_size: int) -> np.ndarray:
    rows = np.arange(batch_size) if rows is None else np.asarray(rows, np.int64)
    if not len(rows) or rows.min() < 0 or rows.max() >= batch_size:
        raise ValueError(f"rows must be some of 0 to {batch_size - 1}, got {rows.tolist()}")
    return rows


def _stack(rows: Sequence[Row]) -> Row:
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def _keep_off_accelerators(worker: int, workers: int) -> None:
    """Grain imports jax; an accelerator belongs to the process that trains."""
    del worker, workers
    os.environ["JAX_PLATFORMS"] = "cpu"
    if "jax" in sys.modules:
        sys.modules["jax"].config.update("jax_platforms", "cpu")
