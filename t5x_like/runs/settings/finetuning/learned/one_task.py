"""What a saved model learns from labelled files: its kind of label, its head and its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from t5x_like.core import tag_schemes
from t5x_like.data.labelled import task_files
from t5x_like.data.labelled.few_rows import FewRows
from t5x_like.data.labelled.labelled_files import Labelled, LabelledFiles
from t5x_like.data.rows.feature_converters import default_converter
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
from t5x_like.runs.settings.finetuning import (
    finetuned_model,
    label_weighing,
    reading,
    text_to_text,
)
from t5x_like.runs.settings.finetuning.finetuned_model import FineTunedModel
from t5x_like.runs.settings.finetuning.label_weighing import Weighing
from t5x_like.runs.settings.finetuning.methods import Method
from t5x_like.runs.settings.finetuning.reading import Reading
from t5x_like.runs.settings.finetuning.regularising import Regularising, with_r_drop

if TYPE_CHECKING:
    from pathlib import Path

    from t5x_like.core.protocols.data import FeatureConverter, Vocabulary
    from t5x_like.runs.settings.finetuning.distilling import Taught

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


class OfTask(NamedTuple):
    """A task by name, and the directory of its files; None for those of the network."""

    name: str
    data_dir: str | None = None


class Wanted(NamedTuple):
    """What a user wants of the model, as `t5x_like.finetune` takes it.

    Attributes:
      head: whether a T5 learns with a head.
      search: whether an XLNet searches for the ends of answers.
      method: what trains.
      read: how texts become rows.
      weighing: how labels count.
      regularising: layers that start afresh, and R-Drop.
      few: how many of the training rows are learned from, of each task.
    """

    head: bool
    search: bool
    method: Method
    read: Reading
    weighing: Weighing
    regularising: Regularising
    few: FewRows


class Part(NamedTuple):
    """What is learned of one task.

    Attributes:
      model: the model with a head for it.
      objective: makes examples of the rows.
      lengths: the tokens of each feature.
      best_metric: the metric by which a checkpoint is best.
      labelled: the files, and what is said of them.
      files: what they hold.
      lines: lines about it.
      pack: whether rows of training hold several texts.
    """

    model: FineTunedModel
    objective: Any
    lengths: dict[str, int]
    best_metric: str
    labelled: Labelled
    files: LabelledFiles
    lines: list[str]
    pack: bool = False

    @property
    def text(self) -> dict[str, Any]:
        """The arguments of `user_corpus` for the files."""
        labelled, files = self.labelled, self.files
        said = files.kind == "classes" and labelled.labels is not None
        return {
            "validation_files": labelled.dev,
            "field": dict(files.fields),
            "header": tuple(labelled.header),
            # None where the run may find their order in the files.
            "labels": [*files.labels] if said or files.kind == "ordered" else None,
        }

    def rows(self, lengths: Mapping[str, int]) -> reading.Rows:
        """The rows of the files, for features of so many tokens."""
        of_files = (self.labelled, self.files, self.objective.geometry(lengths))
        rows = reading.rows(*of_files, vocabulary(self.model))
        if not self.pack:
            return rows
        length = self.objective.packed_tokens(lengths)
        return reading.packed(rows, *of_files, vocabulary(self.model), length=length)


class Whole(NamedTuple):
    """What a run learns: one task, or several.

    Attributes:
      model, best_metric, lines: as in `Part`.
      objective: the objective, or that of each task by name.
      converter: makes rows of the examples.
      data: the macros of the files, and of the rows.
      rows: the rows of each task.
      labels: the names of the classes of one task; none for several.
      taught: a teacher of it, if there is one.
    """

    model: FineTunedModel
    objective: Any
    converter: FeatureConverter
    data: Mapping[str, Any]
    rows: Sequence[reading.Rows]
    best_metric: str
    labels: Sequence[str]
    lines: Sequence[str]
    taught: Taught | None = None


def alone(part: Part) -> Whole:
    """What a run of one task learns."""
    text = part.text
    return Whole(
        model=part.model,
        objective=part.objective,
        converter=default_converter(part.objective, pack=part.pack),
        data={
            "CORPUS": part.labelled.train,
            "CORPUS_HELD_OUT": text["validation_files"],
            "CORPUS_FIELD": text["field"],
            "CORPUS_COLUMNS": text["header"],
            "CORPUS_LABELS": text["labels"],
            "TASK_FEATURE_LENGTHS": part.lengths,
            "GROUP_BY_LENGTH": not part.pack and is_of_any_length(part, part.lengths),
        },
        rows=[part.rows(part.lengths)],
        best_metric=part.best_metric,
        labels=[*part.files.labels],
        lines=part.lines,
    )


def is_of_any_length(part: Part, lengths: Mapping[str, int]) -> bool:
    """Whether rows of like length may share batches."""
    any_length: bool = part.objective.geometry(lengths).any_length
    return any_length


def learned(
    labelled: Labelled | OfTask,
    directory: str,
    root: Path,
    order: Sequence[str] | None,
    wanted: Wanted,
) -> Part:
    """What a saved model learns of a task.

    Args:
      labelled: the files, or a task by name.
      directory: that of the model.
      root: the folder of caches.
      order: the names of classes in their order, where it is given.
      wanted: what a user wants of it.

    Raises:
      CorpusError, OSError, ValueError: files or model cannot be read, or it cannot learn this.
    """
    labelled, files, lines = _understood(labelled, directory, root, order, wanted)
    if files.kind == text_to_text.KIND:
        return _of_texts(labelled, files, lines, directory, wanted)
    return _of_labels(labelled, files, lines, directory, wanted)


def _understood(
    labelled: Labelled | OfTask,
    directory: str,
    root: Path,
    order: Sequence[str] | None,
    wanted: Wanted,
) -> tuple[Labelled, LabelledFiles, list[str]]:
    """The labelled files as a model learns them, what they hold, and lines about them.

    Args:
      labelled: the files, or a task.
      directory: that of the model.
      root: the folder of caches.
      order: the names of classes in their order, where it is given.
      wanted: whether a user wants a head, and how many of the rows.

    Raises:
      ValueError: a head is wanted for texts to write.
    """
    kind = labelled.kind if isinstance(labelled, Labelled) else None
    writes = finetuned_model.writes_alone(directory) and not wanted.head
    if isinstance(labelled, OfTask):
        labelled = task_files.labelled(*labelled, as_texts=writes, root=root)
    if writes:
        text_to_text.check_kind(labelled.kind, directory)
        labelled = labelled._replace(kind=text_to_text.KIND)
    if order is not None:
        labelled = labelled._replace(labels=order)
    files = labelled.understood()
    if wanted.few.examples is not None:
        labelled = wanted.few.of(labelled, files, root=root)
        files = labelled.understood()
    if wanted.head and files.kind == text_to_text.KIND:
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


def _of_texts(
    labelled: Labelled, files: LabelledFiles, lines: list[str], directory: str, wanted: Wanted
) -> Part:
    """What an encoder-decoder learns to write."""
    _check(files, wanted)
    regularising = wanted.regularising
    saved = finetuned_model.as_saved(directory, reinit_layers=regularising.reinit_layers or 0)
    model = wanted.method.on(saved)
    label_weighing.weighed(model.make, wanted.weighing, files)  # refuses what is given
    with_r_drop(model.make, regularising.r_drop, files.kind)
    written = text_to_text.objective(model, labelled)
    inputs = wanted.read.length
    lengths = text_to_text.lengths(files, vocabulary(model), model, inputs=inputs)
    best_metric = labelled.best_metric or labelled.metrics[0]
    return Part(model, written, lengths, best_metric, labelled, files, lines)


def _of_labels(
    labelled: Labelled, files: LabelledFiles, lines: list[str], directory: str, wanted: Wanted
) -> Part:
    """What a model learns with a head."""
    _check(files, wanted)
    of_kind = _OBJECTIVES[files.kind]
    num_labels = 1 if of_kind.answers == "choices" else len(files.labels) or 1
    model = finetuned_model.of_saved(
        directory,
        finetuned_model.SEARCHED if wanted.search else of_kind.answers,
        num_labels=num_labels,
        reinit_layers=wanted.regularising.reinit_layers or 0,
    )
    wanted.read.check_model(model, wanted.method.name)
    model = wanted.method.on(model)
    if model.form == finetuned_model.SEARCHED:
        of_kind = SearchedSpans
    make = label_weighing.weighed(model.make, wanted.weighing, files)
    model = model._replace(make=with_r_drop(make, wanted.regularising.r_drop, files.kind))
    labels = [*files.labels]
    objective = wanted.read.applied(of_kind.of_family(model.frame, files.fields, labels), labels)
    tokens = wanted.read.length or _tokens(files, vocabulary(model), objective, model)
    wanted.read.check_length(objective, tokens, model)
    best_metric = labelled.best_metric or _best_metric(objective, files)
    of_labels = (best_metric, labelled, files, lines, wanted.read.pack)
    return Part(model, objective, {"inputs": tokens}, *of_labels)


def _check(files: LabelledFiles, wanted: Wanted) -> None:
    """Raises ValueError where a kind of label has not the settings that are wanted."""
    wanted.read.check(files.kind)
    if wanted.search and files.kind != Spans.answers:
        raise ValueError(f"search is for answers in texts (--kind spans), not for {files.kind}")


def vocabulary(model: FineTunedModel) -> Vocabulary:
    """The vocabulary of a saved model; raises ValueError where there is none."""
    vocabulary = model.init_from.vocabulary()
    if vocabulary is None:
        raise ValueError(
            f"{model.init_from.directory} has no vocabulary: import it again with --vocabulary"
        )
    return vocabulary


def _best_metric(objective: LabelledRows, files: LabelledFiles) -> str:
    """The metric by which a checkpoint is best."""
    if files.kind == "tags" and not tag_schemes.mark_entities(files.labels):
        return "accuracy"  # parts of speech and the like
    return objective.best_metric


def _tokens(
    files: LabelledFiles, vocabulary: Vocabulary, objective: LabelledRows, model: FineTunedModel
) -> int:
    """The tokens of the longest of some rows, rounded up; at most what the model reads."""
    sizes = [sum(map(len, map(vocabulary.encode, texts))) for texts in files.some_texts]
    most = min(objective.most_tokens, model.max_tokens or objective.most_tokens)
    return min(bucket(max(sizes) + objective.specials), most)
