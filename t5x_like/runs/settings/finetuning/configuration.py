"""The configuration of a run that fine-tunes a saved model on labelled files, as gin text."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from flax import nnx

from t5x_like.config import gin_files, gin_text
from t5x_like.config.object_text import Writer
from t5x_like.core import tag_schemes
from t5x_like.data.cache import location
from t5x_like.data.corpora.text_files import TextFiles
from t5x_like.data.labelled import task_files
from t5x_like.data.labelled.few_rows import FewRows
from t5x_like.data.labelled.labelled_files import Labelled, LabelledFiles
from t5x_like.data.rows.feature_converters import default_converter
from t5x_like.evaluation import label_metrics
from t5x_like.inference.text_rows import bucket
from t5x_like.objectives.supervised.choices import Choices
from t5x_like.objectives.supervised.classes import Classes
from t5x_like.objectives.supervised.labelled_rows import LabelledRows
from t5x_like.objectives.supervised.numbers import Numbers
from t5x_like.objectives.supervised.ordered import Ordered
from t5x_like.objectives.supervised.searched_spans import SearchedSpans
from t5x_like.objectives.supervised.several import Several
from t5x_like.objectives.supervised.spans import Spans
from t5x_like.objectives.supervised.tags import Tags
from t5x_like.runs.settings import imported
from t5x_like.runs.settings.finetuning import (
    finetuned_model,
    label_weighing,
    methods,
    reading,
    steps_of_epochs,
    text_to_text,
    tried_settings,
)
from t5x_like.runs.settings.finetuning.distilling import Distilling, Taught
from t5x_like.runs.settings.finetuning.finetuned_model import FineTunedModel
from t5x_like.runs.settings.finetuning.label_weighing import Weighing
from t5x_like.runs.settings.finetuning.methods import Method
from t5x_like.runs.settings.finetuning.reading import Reading
from t5x_like.runs.settings.finetuning.regularising import Regularising, with_r_drop

if TYPE_CHECKING:
    from pathlib import Path

    from t5x_like.core.protocols.data import Vocabulary
    from t5x_like.runs.run import Phase

_OBJECTIVES: Mapping[str, type[LabelledRows]] = {
    "choices": Choices,
    "classes": Classes,
    "numbers": Numbers,
    "ordered": Ordered,
    "several": Several,
    "tags": Tags,
    "spans": Spans,
}
"""The objective of each kind of label."""
_ADAFACTOR = ("t5", "mt5", "umt5")
"""The families whose settings have Adafactor."""
_OF_STEPS = ("EPOCHS", "WARMUP_SHARE")
"""Macros that numbers of steps follow; no part of a run reads them."""


class OfTask(NamedTuple):
    """A task by name, and the directory of its files; None for those of the network."""

    name: str
    data_dir: str | None = None


class Configuration(NamedTuple):
    """A run that fine-tunes.

    Attributes:
      base: the gin file of its family's settings.
      text: gin text of what follows from the model and the files.
      model_dir: a directory for it.
      bindings: the further settings that gin reads after the text.
      notes: lines about what was understood.
    """

    base: str
    text: str
    model_dir: str
    bindings: list[str]
    notes: list[str]


def configuration(
    source: str,
    labelled: Labelled | OfTask,
    *,
    head: bool,
    search: bool,
    epochs: float | None,
    batch_size: int | None,
    learning_rate: float | None,
    average_last: float | None,
    few: FewRows,
    read: Reading,
    cache_dir: str | None,
    weighing: Weighing,
    regularising: Regularising,
    distilling: Distilling,
    method: Method,
    gin: Sequence[str],
) -> Configuration:
    """The configuration of a run; arguments and errors are those of `t5x_like.finetune`."""
    label_metrics.check_installed()
    method.check(reinit_layers=regularising.reinit_layers)
    distilling.check(is_full=method.is_full, r_drop=regularising.r_drop)
    directory, notes = imported.directory(source, cache_dir)
    labelled, files, lines = _understood(
        labelled, directory, location.cache_root(cache_dir), gin, few, head=head
    )
    parts = _parts(
        directory, files, labelled, weighing, regularising, method=method, search=search, read=read
    )
    if distilling.teacher is not None:
        parts = parts.taught_by(distilling, files)
    geometry, vocabulary = parts.objective.geometry(parts.lengths), _vocabulary(parts.model)
    rows = reading.rows(labelled, files, geometry, vocabulary)
    base = _settings_of(parts.model, method)
    asked = {"EPOCHS": epochs, "BATCH_SIZE": batch_size, "PEAK_LEARNING_RATE": learning_rate}
    usual = _settings(base, gin) | {name: x for name, x in asked.items() if x is not None}
    macros = {
        **_of_data(labelled, files, parts),
        "GROUP_BY_LENGTH": geometry.specials is not None,
        **few.evaluated(steps_of_epochs.steps(usual, rows, average_last)),
        **method.macros(parts.model.model_type),
    }
    phases = method.phases(parts.model, macros["TRAIN_STEPS"])
    trains = [*methods.lines_about(phases)]
    if not method.is_full:
        trains = [method.line(parts.model.make, vocabulary)]
    return Configuration(
        base,
        _text(parts, macros, method.adapt(vocabulary), phases),
        f"{source.rstrip('/')}-{TextFiles(labelled.train).name}{few.suffix}",
        [binding for binding in gin if binding.partition("=")[0].strip() not in _OF_STEPS],
        [*lines, *rows.notes, *trains, *_untried(parts, usual, method), *notes],
    )


def _of_data(labelled: Labelled, files: LabelledFiles, parts: _Parts) -> dict[str, Any]:
    """The macros of the files, and of what decides which checkpoint is best."""
    return {
        "CORPUS": labelled.train,
        "CORPUS_HELD_OUT": labelled.dev,
        "CORPUS_FIELD": dict(files.fields),
        "CORPUS_COLUMNS": tuple(labelled.header),
        "CORPUS_LABELS": _order(labelled, files),
        "TASK_FEATURE_LENGTHS": parts.lengths,
        "BEST_METRIC": labelled.best_metric or parts.best_metric,
    }


def _understood(
    labelled: Labelled | OfTask,
    directory: str,
    root: Path,
    gin: Sequence[str],
    few: FewRows,
    *,
    head: bool,
) -> tuple[Labelled, LabelledFiles, list[str]]:
    """The labelled files as a model learns them, what they hold, and lines about them.

    Args:
      labelled: the files, or a task.
      directory: that of the model.
      root: the folder of caches.
      gin: settings, which may give the order of the names of classes.
      few: how many of the training rows are learned from.
      head: whether a user wants a head.

    Raises:
      ValueError: a head is wanted for texts to write.
    """
    kind = labelled.kind if isinstance(labelled, Labelled) else None
    writes = finetuned_model.writes_alone(directory) and not head
    if isinstance(labelled, OfTask):
        labelled = task_files.labelled(*labelled, as_texts=writes, root=root)
    if writes:
        text_to_text.check_kind(labelled.kind, directory)
        labelled = labelled._replace(kind=text_to_text.KIND)
    if (order := _macros("\n".join(gin)).get("CORPUS_LABELS")) is not None:
        labelled = labelled._replace(labels=order)
    files = labelled.understood()
    if few.examples is not None:
        labelled = few.of(labelled, files, root=root)
        files = labelled.understood()
    if head and files.kind == text_to_text.KIND:
        raise ValueError(
            "a head does not write texts, which these files hold: leave out --head (head), or name "
            "another kind (--kind)"
        )
    lines = [*files.lines(), *labelled.notes]
    if files.kind == text_to_text.KIND:
        labelled = text_to_text.measured(labelled, files, kind=kind)
        labelled = text_to_text.as_pairs(labelled, files, root)
        files = labelled.understood()
    return labelled, files, lines


class _Parts(NamedTuple):
    """What a kind of label decides: the model, its objective, and the tokens of each feature."""

    model: FineTunedModel
    objective: Any
    lengths: dict[str, int]
    best_metric: str
    taught: Taught | None = None

    def taught_by(self, distilling: Distilling, files: LabelledFiles) -> _Parts:
        """The same with a teacher; raises as `Distilling.on`."""
        taught = distilling.on(self.model, [*files.labels])
        return self._replace(model=taught.model, taught=taught)


def _parts(
    directory: str,
    files: LabelledFiles,
    labelled: Labelled,
    weighing: Weighing,
    regularising: Regularising,
    *,
    method: Method,
    search: bool,
    read: Reading,
) -> _Parts:
    reinit_layers, r_drop = regularising.reinit_layers or 0, regularising.r_drop
    read.check(files.kind)
    if search and files.kind != Spans.answers:
        raise ValueError(f"search is for answers in texts (--kind spans), not for {files.kind}")
    if files.kind == text_to_text.KIND:
        model = method.on(finetuned_model.as_saved(directory, reinit_layers=reinit_layers))
        label_weighing.weighed(model.make, weighing, files)  # refuses what is given
        with_r_drop(model.make, r_drop, files.kind)
        written = text_to_text.objective(model, labelled)
        lengths = text_to_text.lengths(files, _vocabulary(model), model, inputs=read.length)
        return _Parts(model, written, lengths, labelled.metrics[0])
    of_kind = _OBJECTIVES[files.kind]
    num_labels = 1 if of_kind.answers == "choices" else len(files.labels) or 1
    model = finetuned_model.of_saved(
        directory,
        finetuned_model.SEARCHED if search else of_kind.answers,
        num_labels=num_labels,
        reinit_layers=reinit_layers,
    )
    model = method.on(model)
    if model.form == finetuned_model.SEARCHED:
        of_kind = SearchedSpans
    make = label_weighing.weighed(model.make, weighing, files)
    model = model._replace(make=with_r_drop(make, r_drop, files.kind))
    labels = [*files.labels]
    objective = read.applied(of_kind.of_family(model.frame, files.fields, labels), labels)
    tokens = read.length or _tokens(files, _vocabulary(model), objective, model)
    return _Parts(model, objective, {"inputs": tokens}, _best_metric(objective, files))


def _vocabulary(model: FineTunedModel) -> Vocabulary:
    """The vocabulary of a saved model; raises ValueError where there is none."""
    vocabulary = model.init_from.vocabulary()
    if vocabulary is None:
        raise ValueError(
            f"{model.init_from.directory} has no vocabulary: import it again with --vocabulary"
        )
    return vocabulary


def _order(labelled: Labelled, files: LabelledFiles) -> list[str] | None:
    """The order of the names of classes, where the run shall not find it in the files."""
    said = files.kind == "classes" and labelled.labels is not None
    return [*files.labels] if said or files.kind == "ordered" else None


def _best_metric(objective: LabelledRows, files: LabelledFiles) -> str:
    """The metric by which a checkpoint is best."""
    if files.kind == "tags" and not tag_schemes.mark_entities(files.labels):
        return "accuracy"  # parts of speech and the like
    return objective.best_metric


def _settings_of(model: FineTunedModel, method: Method) -> str:
    """The gin file of the settings of a model's family.

    Small new parameters of a T5 have AdamW: Adafactor's steps are relative to the size of a
    parameter, and theirs is nearly 0 at first.

    Raises:
      ValueError: there is none.
    """
    name = f"finetune/{model.model_type}.gin"
    if not method.is_full and model.model_type in _ADAFACTOR:
        return "finetune/adamw.gin"
    if not (gin_files.gin_root() / name).exists():
        raise ValueError(f"no settings to fine-tune a {model.model_type} with are known yet")
    return name


def _text(
    parts: _Parts,
    macros: Mapping[str, Any],
    adapt: functools.partial[Any] | None,
    phases: Sequence[Phase],
) -> str:
    """Gin text of the parts of a run, and of macros."""
    writer = Writer()
    objects: dict[str, Any] = {
        "MODEL": parts.model.make,
        "OBJECTIVE": parts.objective,
        "FEATURE_CONVERTER": default_converter(parts.objective),
        "INIT_FROM": parts.model.init_from,
    }
    if adapt is not None:
        objects["ADAPT"] = adapt
    if (taught := parts.taught) is not None:
        objects["TEACHER"] = taught.teacher
        objects |= {} if taught.adapt is None else {"ADAPT": taught.adapt}
    if phases:
        objects["PHASES"] = [*phases]
    lines = {
        **{name: writer.reference(part) for name, part in objects.items()},
        **{name: repr(value) for name, value in macros.items()},
    }
    return writer.text(
        "What is fine-tuned.", [f"{name} = {value}" for name, value in lines.items()]
    )


def _settings(base: str, gin: Sequence[str]) -> dict[str, Any]:
    """{macro: value} of a family's settings, which further ones replace."""
    return _macros(gin_files.read(gin_files.gin_root() / base)) | _macros("\n".join(gin))


def _macros(text: str) -> dict[str, Any]:
    """The values of gin text and of the settings for fine-tuning that it includes."""
    parsed = gin_text.read(text)
    included = [name for name in parsed.includes if name.startswith("finetune/")]
    values: dict[str, Any] = {}
    for name in included:
        values |= _macros(gin_files.read(gin_files.gin_root() / name))
    return values | {str(name): value for name, value in parsed.values.items()}


def _untried(parts: _Parts, usual: Mapping[str, Any], method: Method) -> Iterator[str]:
    """A line about settings that no paper tried; none of BART's is about texts to write."""
    model = parts.model
    if not method.is_full:
        return
    if parts.objective.answers == "text" and model.model_type == "bart":
        return
    abstract = nnx.eval_shape(lambda: model.make(rngs=nnx.Rngs(0)))
    yield from tried_settings.outside(abstract, usual, model_type=model.model_type)


def _tokens(
    files: LabelledFiles, vocabulary: Vocabulary, objective: LabelledRows, model: FineTunedModel
) -> int:
    """The tokens of the longest of some rows, rounded up; at most what the model reads."""
    sizes = [sum(map(len, map(vocabulary.encode, texts))) for texts in files.some_texts]
    most = min(objective.most_tokens, model.max_tokens or objective.most_tokens)
    return min(bucket(max(sizes) + objective.specials), most)
