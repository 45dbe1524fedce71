"""Benchmarks by name: which files hold their rows, and what a model learns from a row."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from t5x_like.core.spelling import alike
from t5x_like.data.corpora import registry
from t5x_like.data.corpora.corpus import CorpusError
from t5x_like.data.labelled.distributed_files import Files

Row = Mapping[str, Any]
NOT = "not: "
"""What begins a held-out target that is a wrong answer."""


class Online(NamedTuple):
    """A data set of TensorFlow Datasets or of Hugging Face.

    Attributes:
      name: its name, for TFDS with that of its configuration: "glue/sst2".
      dev: its held-out split; None where it has none.
      config: the name of its configuration at Hugging Face.
      train: its training split; None where it has none.
    """

    name: str
    dev: str | None = "validation"
    config: str | None = None
    train: str | None = "train"

    @property
    def splits(self) -> dict[str, str]:
        """{"train" or "dev": its name there}."""
        names = {"train": self.train, "dev": self.dev}
        return {split: name for split, name in names.items() if name is not None}


def as_it_is(row: Row) -> Iterator[Row]:
    """The row."""
    yield row


def every(row: Row) -> bool:
    """True."""
    del row
    return True


@dataclasses.dataclass(frozen=True, kw_only=True)
class NamedTask:
    """A benchmark, as its authors publish it.

    Attributes:
      name: what `--task` calls it.
      summary: a line about it.
      kind: the name of the kind of label, of `labelled_files.KINDS`.
      columns: {column: its names in the publications}: the texts first, the label last.
      labels: {cell: name of the class}, in the order of their numbers; None for other cells.
      prompt: the text that a T5 reads, "{column}" for each text; "" where T5 has none.
      target: the text that it writes; "{label:0.2}" is a number, rounded to a multiple of 0.2.
      files: the ways in which its files are published.
      tfds, hugging_face: the data set there.
      expand: makes rows of one, of which it may be a nested description.
      learns: whether an expanded row is one to learn from; all are held out.
      metrics: of the texts that a T5 writes.
      best_metric: the metric by which a checkpoint is best.
      several_targets: whether held-out rows of one text are several right targets of it.
      written: the form in which a T5 learns it, where its rows are other than an encoder's.
      asked_of: the task whose models it is for, where it has no rows to learn from.
    """

    name: str
    summary: str
    kind: str
    columns: Mapping[str, Sequence[str]]
    labels: Mapping[str, str] | None = None
    prompt: str = ""
    target: str = "{label}"
    files: Sequence[Files] = ()
    tfds: Online | None = None
    hugging_face: Online | None = None
    expand: Callable[[Row], Iterable[Row]] = as_it_is
    learns: Callable[[Row], bool] = every
    metrics: tuple[str, ...] = ("exact_match",)
    best_metric: str | None = None
    several_targets: bool = False
    written: NamedTask | None = None
    asked_of: str | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns of texts."""
        return tuple(self.columns)[:-1]

    @property
    def label(self) -> str:
        """The column of the label."""
        return tuple(self.columns)[-1]

    def rows(self, published: Iterable[Row], where: str) -> Iterator[dict[str, Any]]:
        """Rows with `columns`, whose labels have their names.

        Args:
          published: the rows of its publication.
          where: what they are read from, for errors.

        Raises:
          CorpusError: a row lacks a column, or has no label, or an unknown one.
        """
        expanded = (row for several in published for row in self.expand(several))
        for number, row in enumerate(expanded, start=1):
            place = f"{where}, row {number:,}"
            cells = {
                column: _cell(row, names, place=place) for column, names in self.columns.items()
            }
            yield cells | {self.label: self._named(cells[self.label], place)}

    def _named(self, cell: Any, place: str) -> Any:
        if self.labels is None:
            return cell
        known = str(cell).lower() if isinstance(cell, bool) else str(cell)
        if known in self.labels:
            return self.labels[known]
        if known in self.labels.values():
            return known
        raise CorpusError(
            f"{place}: the label of {self.name} is {cell!r}, and not one of "
            f"{', '.join(self.labels)}: rows without a label can be predicted, not learned"
        )

    def pair(self, row: Row, *, prompted: bool) -> dict[str, str]:
        """{"inputs": ..., "targets": ...} of one of its `rows`, with T5's prompt or without."""
        plain = " ".join(f"{{{column}}}" for column in self.texts)
        return {
            "inputs": filled(self.prompt if prompted and self.prompt else plain, row),
            "targets": filled(self.target, row),
        }


_SLOT = re.compile(r"\{(\w+)(?::([\d.]+))?\}")


def filled(template: str, row: Row) -> str:
    """A template with the cells of a row: "{column}", or "{column:0.2}" for a rounded number."""

    def text(slot: re.Match[str]) -> str:
        cell, step = row[slot[1]], slot[2]
        if step is None:
            return str(cell)
        decimals = len(step.partition(".")[2])
        return f"{round(float(cell) / float(step)) * float(step):.{decimals}f}"

    return _SLOT.sub(text, template)


def _cell(row: Row, names: Sequence[str], *, place: str) -> Any:
    for name in names:
        if row.get(name) is not None:
            return row[name]
    raise CorpusError(
        f"{place} has no {' or '.join(map(repr, names))}, only {', '.join(row)}: these are not the "
        "files of this task"
    )


def tasks() -> dict[str, NamedTask]:
    """The tasks by name: the union of the `LABELLED` of the modules of `t5x_like.tasks`.

    Raises:
      ValueError: two have one name.
    """
    package = registry.task_package()
    by_name: dict[str, NamedTask] = {}
    for module in pkgutil.iter_modules(package.__path__):
        imported = importlib.import_module(f"{package.__name__}.{module.name}")
        for task in getattr(imported, "LABELLED", ()):
            if task.name in by_name:
                raise ValueError(f"two tasks are named {task.name!r}: rename one")
            by_name[task.name] = task
    return by_name


def task(name: str) -> NamedTask:
    """The task of this name.

    Raises:
      CorpusError: there is none; the message gives the nearest names, and all.
    """
    known = tasks()
    if name in known:
        return known[name]
    near = alike(name, known)
    nearest = f"; nearest: {', '.join(near)}" if near else ""
    raise CorpusError(f"no task {name!r}{nearest}. The tasks are {', '.join(sorted(known))}")


def published(
    task: NamedTask, data_dir: Path, *, train: bool = True
) -> tuple[Files, dict[str, list[Path]]]:
    """The layout of a task's files below a directory, and its training and held-out files.

    Args:
      task: the task.
      data_dir: the directory.
      train: whether there must be training files; else there must be held-out ones.

    Raises:
      CorpusError: there are no such files; the message says which there might be.
    """
    if not data_dir.is_dir():
        raise CorpusError(f"{data_dir} is not a directory: --data_dir holds the files of a task")
    for files in task.files:
        splits = files.matching(data_dir)
        if splits["train" if train else "dev"]:
            return files, splits
    which = "training" if train else "held-out"
    raise CorpusError(f"{data_dir} has no {which} files of {task.name}: {wanted(task)}")


def wanted(task: NamedTask) -> str:
    """Which files a task reads, as the end of a sentence."""
    layouts = [
        " and ".join(filter(None, (files.train[0], files.dev[0] or "no dev file")))
        for files in task.files
    ]
    return f"put {', or '.join(layouts)} into the directory of --data_dir"
