"""Held-out rows of a run, and what the model of its checkpoint answers to each."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from t5x_like.core.abilities import GuessesMasked, ReplacesTokens, Writes, can
from t5x_like.core.protocols.data import FeatureSpec
from t5x_like.data.rows.feature_converters import PrefixDecoder, start_id
from t5x_like.data.samples.randomness import EVALUATION_SEED
from t5x_like.data.streams import mixtures
from t5x_like.data.streams.stream import Examples
from t5x_like.data.task import Task
from t5x_like.data.vocabulary_choice import never
from t5x_like.inference import masked_words, replaced_tokens
from t5x_like.inference.decoding.settings import Decoding
from t5x_like.inference.model_on_mesh import ModelOnMesh
from t5x_like.inference.writing import Writer
from t5x_like.runs.run import Run
from t5x_like.runs.trained.trained_run import TrainedRun

Features = dict[str, np.ndarray]

_GUESSES = 3


@dataclasses.dataclass(frozen=True)
class Guesses:
    """The predictions of a model at the predicted positions of a row, in their order.

    Attributes:
      truths: the tokens that were there, int32 [K].
      chances: their probabilities, float32 [K].
      best: the likeliest tokens of each position, int32 [K, 3].
      best_chances: their probabilities, float32 [K, 3].
    """

    truths: np.ndarray
    chances: np.ndarray
    best: np.ndarray
    best_chances: np.ndarray


@dataclasses.dataclass(frozen=True)
class Marks:
    """The predictions of a discriminator for a row in which a generator has replaced tokens.

    Attributes:
      read: the tokens that it reads, int32 [L].
      originals: the tokens of the text, int32 [L].
      chances: the probability of each that it was replaced, float32 [L].
    """

    read: np.ndarray
    originals: np.ndarray
    chances: np.ndarray


@dataclasses.dataclass(frozen=True)
class Writing:
    """The likeliest tokens, one by one, up to the end or as many as the longest target has."""

    tokens: np.ndarray  # int32 [T]


class Continuation(Writing):
    """The same by a language model, which has read the first half of a row."""


Answer = Guesses | Marks | Writing


@dataclasses.dataclass(frozen=True)
class Sample:
    """A held-out example and the model's answer.

    Attributes:
      place: its task and its row.
      features: its features. A row of a language model comes in halves: the model reads `inputs`,
        and `targets` follow in the text.
      specs: the declared features; none of the halves are.
      answer: the answer; None from a model that gives none to such rows.
    """

    place: str
    features: Features
    specs: Mapping[str, FeatureSpec]
    answer: Answer | None


@dataclasses.dataclass(frozen=True)
class PhaseSamples:
    """Samples of phase `number` of a run, from 1, whose features have these `lengths`."""

    number: int
    lengths: Mapping[str, int]
    samples: Sequence[Sample]


def samples(trained: TrainedRun, n: int) -> list[PhaseSamples]:
    """Held-out rows with the answers of a checkpoint, for each objective that the run has had.

    Of phases with one objective, which differ in lengths or rows, the last one is shown. Nothing is
    trained or tokenised: text and caches must be there.

    Args:
      trained: the run and the parameters.
      n: the rows of a phase, in turns of the tasks of a mixture, each of which has one at least.

    Raises:
      ValueError, OSError: text or cache are missing or have changed, or nothing is held out.
    """
    last: dict[str, tuple[int, Run]] = {}
    for number, run in enumerate(trained.begun_phases(), start=1):
        last[repr(run.data.task_objectives())] = number, run
    mesh = ModelOnMesh(trained.model, trained.run.layout)
    return [_of_phase(number, run, mesh, n) for number, run in sorted(last.values(), key=_number)]


def _number(phase: tuple[int, Run]) -> int:
    return phase[0]


def _of_phase(number: int, run: Run, mesh: ModelOnMesh, n: int) -> PhaseSamples:
    tasks = run.data.open(once=never)
    n = max(n, len(tasks))
    phase_samples = [
        sample
        for examples, share in held_out(run, tasks, n, rows=2 * n)
        for sample in _of_task(examples, share, run=run, mesh=mesh)
    ]
    return PhaseSamples(number, tasks[0].lengths, phase_samples)


def held_out(run: Run, tasks: Sequence[Task], n: int, *, rows: int) -> list[tuple[Examples, int]]:
    """The held-out examples of each opened task, and its share of `n` rows.

    Args:
      run: the run.
      tasks: its tasks.
      n: the rows that all tasks share.
      rows: the rows of a batch, for tasks with carried rows; some need an even number.

    Raises:
      ValueError: nothing is held out, or its rows cannot be made.
    """
    texts = mixtures.examples(
        tasks,
        "validation",
        converter=run.feature_converter,
        seed=EVALUATION_SEED,
        rows=rows,
        alone=True,
    )
    if not texts:
        raise ValueError("no text of the run is held out")
    shares = [len(range(k, n, len(texts))) for k in range(len(texts))]
    return [*zip(texts, shares, strict=True)]


def spread(end: int, n: int) -> list[int]:
    """At most `n` numbers that are spread over those below `end`."""
    return [end * k // min(n, end) for k in range(min(n, end))]


def _of_task(examples: Examples, n: int, *, run: Run, mesh: ModelOnMesh) -> Iterator[Sample]:
    """Samples of rows that are spread over the split; of a packed row, its first example.

    Where rows go on from batch to batch, they are of the first batch, which nothing precedes.
    """
    places = spread(min(len(examples), examples.rows or len(examples)), n)
    rows: list[Features] = [examples.features(place)[0] for place in places]
    specs = examples.task.features
    if not rows:
        return
    if _goes_on(examples):
        rows, specs = [_halves(row["targets"]) for row in rows], {}
    answers = _answers(examples, rows, run=run, mesh=mesh)
    for place, row, answer in zip(places, rows, answers, strict=True):
        yield Sample(f"{examples.task.name}, row {place:,}", row, specs, answer)


def _goes_on(examples: Examples) -> bool:
    """Whether its rows are text alone, which a language model can only continue."""
    return "inputs" not in examples.task.features


def _halves(tokens: np.ndarray) -> Features:
    middle = -(-len(tokens) // 2)
    return {"inputs": tokens[:middle], "targets": tokens[middle:]}


def _answers(
    examples: Examples, rows: Sequence[Features], *, run: Run, mesh: ModelOnMesh
) -> Sequence[Answer | None]:
    """The answer to each row, by what the rows ask and what the model is."""
    model = mesh.model
    if "masked_positions" in rows[0]:
        if can(model, ReplacesTokens):
            return _marks(mesh, _batch(examples, rows, mesh), rows)
        if can(model, GuessesMasked):
            return _guesses(mesh, _batch(examples, rows, mesh), rows, examples)
    elif can(model, Writes):
        return _writings(mesh, run, rows, examples)
    return [None] * len(rows)


def _batch(examples: Examples, rows: Sequence[Features], mesh: ModelOnMesh) -> Features:
    """The rows as the model reads them in training; the last is repeated where the mesh asks."""
    converted = [examples.converted([row]) for row in rows]
    converted += converted[-1:] * (mesh.rows(len(rows)) - len(rows))
    return {name: np.stack([row[name] for row in converted]) for name in converted[0]}


def _guesses(
    mesh: ModelOnMesh, batch: Features, rows: Sequence[Features], examples: Examples
) -> list[Answer | None]:
    logits_BKV = mesh(masked_words.predictions, batch)
    p_BKV = jax.nn.softmax(logits_BKV[..., : examples.task.token_ids.vocab_size])
    chances_BK = jnp.take_along_axis(p_BKV, batch["masked_targets"][..., None], axis=-1)[..., 0]
    best_chances_BKk, best_BKk = jax.lax.top_k(p_BKV, _GUESSES)
    arrays = [np.asarray(array) for array in (chances_BK, best_BKk, best_chances_BKk)]
    guesses: list[Answer | None] = []
    for n, row in enumerate(rows):
        count = len(row["masked_targets"])
        guesses.append(Guesses(row["masked_targets"], *(array[n, :count] for array in arrays)))
    return guesses


def _marks(mesh: ModelOnMesh, batch: Features, rows: Sequence[Features]) -> list[Answer | None]:
    arrays = [np.asarray(array) for array in mesh(replaced_tokens.marked, batch)]
    return [
        Marks(*(array[n, : len(row["inputs"])] for array in arrays)) for n, row in enumerate(rows)
    ]


def _writings(
    mesh: ModelOnMesh, run: Run, rows: Sequence[Features], examples: Examples
) -> list[Answer | None]:
    ids, converter = examples.task.token_ids, run.feature_converter
    longest = max(1, *(len(row["targets"]) for row in rows))
    write = Writer(
        model=mesh,
        ids=ids,
        start=start_id(converter, ids),
        prefix=isinstance(converter, PrefixDecoder),
        decoding=Decoding(max_new_tokens=longest),
        batch_size=len(rows),
        max_positions=mesh.model.max_tokens,
    )
    written = write([row["inputs"].tolist() for row in rows])
    kind = Continuation if _goes_on(examples) else Writing
    return [kind(np.array(best.tokens, np.int32)) for best, *_ in written]
