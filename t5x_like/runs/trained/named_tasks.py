"""Tasks and files that a user names to evaluate a run on."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from t5x_like.core.protocols.data import PLAIN_TEXT, names
from t5x_like.data.cache.reader import Cache
from t5x_like.data.corpora import text_pieces
from t5x_like.data.corpora.corpus import Corpus
from t5x_like.data.corpora.named_fields import NamedFields
from t5x_like.data.dataset_names import Withheld
from t5x_like.data.rows import late_steps
from t5x_like.data.rows.feature_converters import unpacked
from t5x_like.data.samples.order import spread
from t5x_like.data.samples.randomness import EVALUATION_SEED
from t5x_like.data.streams import mixtures
from t5x_like.data.streams.stream import Examples
from t5x_like.data.task import in_words
from t5x_like.evaluation.task_metrics import decoder, measured
from t5x_like.evaluation.tasks import answers, several_targets
from t5x_like.evaluation.tasks.evaluated_task import EvaluatedTask, open_task
from t5x_like.objectives.supervised.labelled_rows import LabelledRows
from t5x_like.runs.checks import preflight

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import Objective
    from t5x_like.data.dataset import Data
    from t5x_like.data.task import Task
    from t5x_like.runs.trained.trained_run import TrainedRun

Files = str | Sequence[str]
_ALL = "all"
"""The name of the split of files that a user names: no document is left out."""


@dataclasses.dataclass(frozen=True)
class Named:
    """A task or mixture, or files, and how much of it to read.

    Attributes:
      task: the name of a task or mixture.
      corpus: files in place of a task.
      split: the split of the task.
      at_most: the most examples of each task, spread evenly over the split; None for all.
    """

    task: str | None = None
    corpus: Files | None = None
    split: str = "validation"
    at_most: int | None = None

    def __post_init__(self) -> None:
        if (self.task is None) == (self.corpus is None):
            raise ValueError("name either a task or files of a corpus to evaluate on")


def open_named(
    model: TrainedRun, named: Named, *, report: Callable[[str], None]
) -> list[EvaluatedTask | Examples]:
    """The named tasks: text-to-text with texts, and others as the rows of the run's objective.

    Args:
      model: the run, in the phase of its checkpoint.
      named: what to open.
      report: shows a line to the user.

    Raises:
      ValueError, OSError: there is no such thing, it has no such split or no examples, or the model
        does not read it.
    """
    run = model.run
    data = _data(model, named)
    opened: list[EvaluatedTask | Examples] = []
    for task in data.named_tasks() or _own(model, named) or data.recorded():
        preflight.kinds_fit(run, [task.objective])
        if task.tokenized is not None:
            _check_vocabulary(task, model)
        answered = task.objective.answers == "text"
        if task.corpus is None and (answered or task.metrics is not None):
            opened.append(_of_seqio(model, data, task, named=named, report=report))
        elif answered:
            opened.append(_of_pairs(model, data, task, named=named))
        else:
            opened.append(_of_objective(model, data, task, named=named))
    return opened


def _own(model: TrainedRun, named: Named) -> list[Task]:
    """The task with this name in the mixture of the run, as its record has it."""
    data = model.run.data
    if data.mixture_or_task_name is None:
        return []
    with contextlib.suppress(ValueError):
        return [task for task in data.recorded() if task.name == named.task]
    return []


def _data(model: TrainedRun, named: Named) -> Data:
    """The run's data, with other names."""
    data = model.run.data
    if not isinstance(data.corpus, Withheld):
        data = data.with_lengths()
    if named.task is not None:
        named_task = dataclasses.replace(data, mixture_or_task_name=named.task, corpus=None)
        return named_task.with_lengths()
    named_data = dataclasses.replace(
        data,
        mixture_or_task_name=None,
        corpus=named.corpus,
        objective=_objective(data),
        read_corpus=functools.partial(_read, data.read_corpus, model.labels),
    )
    objective = named_data.chosen_objective
    learned = objective.reads if objective else PLAIN_TEXT
    text: Corpus = named_data.read_corpus(named.corpus)
    if learned != PLAIN_TEXT and text.with_columns(learned) is None:
        if isinstance(text, NamedFields) and text.present:
            raise ValueError(
                f"{named.corpus} has no column {' and no column '.join(text.lacking(learned))}, "
                f"which the run has learned from: its columns are {', '.join(text.present)}"
            )
        raise ValueError(
            f"{named.corpus} is {in_words(text.columns)}, but the run has learned from "
            f"{' and '.join(names(learned))}: give files whose rows have these columns (.tsv or "
            ".jsonl)"
        )
    return named_data.with_lengths()


def _read(read: Any, labels: Mapping[str, Sequence[str]], named: Files) -> Corpus:
    """Files without a held-out part, whose labels have the numbers that the run has learned."""
    corpus: Corpus = read(named, validation=0.0, validation_files=None)
    return corpus.with_label_names(labels) if labels else corpus


def _objective(data: Data) -> Objective | None:
    """The objective of the run's first task; the named one if the task cannot be found here."""
    try:
        return data.task_objectives()[0]
    except ValueError:
        return data.chosen_objective


def _check_vocabulary(task: Task, model: TrainedRun) -> None:
    assert task.tokenized is not None
    if task.tokenized.vocabulary.fingerprint != model.vocabulary.fingerprint:
        raise ValueError(
            f"task {task.name!r} has another vocabulary than the run, which would read its ids as "
            "other tokens: register the task with the vocabulary in MODEL_DIR/vocabulary"
        )


def _of_seqio(
    model: TrainedRun,
    data: Data,
    task: Task,
    *,
    named: Named,
    report: Callable[[str], None],
) -> EvaluatedTask:
    """A text-to-text task of SeqIO's registry or of a record."""
    evaluated, lines = open_task(
        data,
        task,
        split=named.split,
        vocabulary=model.vocabulary,
        kinds=model.kinds,
        default=measured(task.objective.measures, decoder(model.vocabulary)),
        at_most=named.at_most,
    )
    for line in lines:
        report(f"note: {line}")
    return evaluated


def _of_pairs(model: TrainedRun, data: Data, task: Task, *, named: Named) -> EvaluatedTask:
    """Files of inputs and targets, or a corpus of such pairs."""
    corpus = task.corpus
    assert corpus is not None
    lengths = dict(data.lengths or {})
    task = task.with_directory(model.vocabulary)
    inputs = (pair["inputs"] for pair in _documents(corpus, named))
    texts = several_targets.texts(inputs, task.objective)
    chosen = [texts[number] for number in spread(len(texts), named.at_most)]
    read = {number for numbers in chosen for number in numbers}
    pairs = {n: pair for n, pair in enumerate(_documents(corpus, named)) if n in read}
    examples = [
        _example([pairs[number] for number in numbers], task, model=model, lengths=lengths)
        for numbers in chosen
    ]
    decode = decoder(model.vocabulary)
    return EvaluatedTask(
        name=task.name,
        split=named.split if named.corpus is None else _ALL,
        examples=examples,
        total=len(texts),
        lengths=lengths,
        metrics=answers.computable(measured(task.measures, decode), model.kinds),
        decode=decode,
    )


def _documents(corpus: Corpus, named: Named) -> Iterator[dict[str, str]]:
    split = named.split if named.corpus is None else "train"
    if split not in corpus.splits:
        raise ValueError(
            f"corpus {corpus.name!r} has no split {split!r}; its splits are "
            f"{', '.join(corpus.splits)}"
        )
    return text_pieces.join(corpus.documents(split))


def _example(
    pairs: Sequence[Mapping[str, str]],
    task: Task,
    *,
    model: TrainedRun,
    lengths: Mapping[str, int],
) -> dict[str, Any]:
    """The features of a text's first pair after all steps, and texts under SeqIO's names."""
    first = pairs[0]
    tokens = {
        name: np.array(model.vocabulary.encode(text), np.int32) for name, text in first.items()
    }
    features = late_steps.apply(task.steps, tokens, lengths=lengths, eos=task.eos or {})
    targets = several_targets.target([pair["targets"] for pair in pairs])
    texts = {**first, "targets": targets}
    return features | {f"{name}_pretokenized": text for name, text in texts.items()}


def _of_objective(model: TrainedRun, data: Data, task: Task, *, named: Named) -> Examples:
    """A text under an objective, from its cache. A missing cache of a text at hand is made."""
    split, lengths = named.split, data.lengths or {}
    task = task.for_lengths(lengths)
    task.check_trainable(lengths)
    if named.corpus is not None and task.corpus is not None:
        # All documents are in one split, so this is another cache than that of training.
        task = dataclasses.replace(task, label=f"{task.label}-{task.corpus.fingerprint()[:8]}")
        split = "train"
    text = None if task.text is None else task.text.fingerprint()
    if task.text is not None:
        task = data.make_cache(task, model.vocabulary)
    cache = Cache.open(data.root / task.directory, corpus_fingerprint=text)
    return _rows(model, task.with_cache(cache, lengths), split)


def _rows(model: TrainedRun, task: Task, split: str) -> Examples:
    """The rows of a split of an opened task."""
    if not task.has(split):
        splits = ", ".join(task.cache.manifest.splits) if task.cache is not None else ""
        raise ValueError(f"task {task.name!r} has no examples in split {split!r}, only in {splits}")
    if task.label_names != model.labels:
        raise ValueError(
            f"task {task.name!r} has the labels {task.label_names}, but the run has learned "
            f"{model.labels or 'none'}: their numbers would mean other classes"
        )
    converter = model.run.feature_converter
    (examples,) = mixtures.examples(
        [task],
        split,
        # Files are one split, which is called as that of training, whose rows may be packed.
        converter=unpacked(converter) if isinstance(task.objective, LabelledRows) else converter,
        seed=EVALUATION_SEED,
        rows=model.rows,
        alone=True,
    )
    return examples
