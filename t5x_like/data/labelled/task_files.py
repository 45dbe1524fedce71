"""The labelled files of a task by name: those of its authors, or rows that are written once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from t5x_like.data.labelled import named_tasks, online_rows, written_rows
from t5x_like.data.labelled.columns import Named
from t5x_like.data.labelled.distributed_files import AsTheyAre, Files, TornTable
from t5x_like.data.labelled.labelled_files import Labelled
from t5x_like.data.labelled.named_tasks import NamedTask

_VERSION = 1
"""A number in the names of folders. Raise it when the same files would give other rows."""


def labelled(name: str, data_dir: str | None, *, as_texts: bool, root: Path) -> Labelled:
    """What `--train`, `--dev` and so on would say of a task.

    Args:
      name: the name of the task.
      data_dir: the folder of its files; None to ask `datasets` and TensorFlow Datasets.
      as_texts: whether a T5 learns it, as text to text with T5's prompt and words for labels.
      root: the folder of caches.

    Raises:
      CorpusError: there is no such task, or its files are not there or not its own.
    """
    task = named_tasks.task(name)
    form: Files | None = None
    train: list[Path] = []
    dev: list[Path] = []
    if data_dir is not None:
        form, train, dev = named_tasks.published(task, Path(data_dir).expanduser())
        if isinstance(form.form, AsTheyAre):
            held_out = [*map(str, dev)] or None
            return Labelled([*map(str, train)], held_out, task.kind)
    texts = (as_texts and bool(task.prompt)) or task.kind == "texts"
    places = {"train": (train, ""), "dev": (dev, "_dev")}
    published: Mapping[str, Iterable[Mapping[str, Any]]]
    if form is None:
        published = online_rows.splits(task)
    else:
        published = {split: _rows(form, paths) for split, (paths, _) in places.items() if paths}
    rows = {
        f"{name}{places[split][1]}": _learned(task, of_split, split, texts, prompted=as_texts)
        for split, of_split in published.items()
    }
    identity = [_VERSION, texts, as_texts, [*map(_state, [*train, *dev])]]
    made = written_rows.written(rows, identity=identity, name=name, root=root)
    said = _said(task, made[name], made.get(f"{name}_dev"), texts)
    return said._replace(notes=() if form is None else tuple(_left_out(form, [train, dev])))


def _left_out(form: Files, splits: Iterable[list[Path]]) -> Iterator[str]:
    """A line about the rows of each split that are left out, if there are any."""
    if not isinstance(form.form, TornTable):
        return
    for paths in splits:
        torn, total = form.form.left_out(paths)
        if torn:
            names = ", ".join(path.name for path in paths)
            yield (
                f"{torn:,} of {total:,} rows of {names} are left out: they lack a cell, or have "
                "another number of cells than the first line."
            )


def _said(task: NamedTask, train: str, dev: str | None, texts: bool) -> Labelled:
    if texts:
        metrics, best = task.metrics, task.best_metric
        return Labelled(train, dev, "texts", metrics=metrics, best_metric=best)
    first, *others = task.texts
    if task.kind == "choices":
        return Labelled(train, dev, task.kind, Named(first, None, task.label))
    named = Named(first, others[0] if others else None, task.label)
    kind, labels = task.kind, [*dict.fromkeys((task.labels or {}).values())] or None
    if kind == "tags":
        return Labelled(train, dev, kind, best_metric=task.best_metric)
    return Labelled(train, dev, kind, named, labels=labels, best_metric=task.best_metric)


def _learned(
    task: NamedTask,
    published: Iterable[Mapping[str, Any]],
    split: str,
    texts: bool,
    *,
    prompted: bool,
) -> Iterator[dict[str, Any]]:
    """The rows that a model learns; of three texts and more all but the first are one."""
    for row in task.rows(published, f"{task.name}, {split}"):
        if texts:
            yield task.pair(row, prompted=prompted)
            continue
        if task.kind == "choices":
            yield row
            continue
        first, *others = task.texts
        second = {others[0]: " ".join(row[name] for name in others)} if others else {}
        yield {first: row[first], **second, task.label: row[task.label]}


def _rows(form: Files, paths: list[Path]) -> Iterator[Mapping[str, Any]]:
    assert not isinstance(form.form, AsTheyAre)
    return form.form.rows(paths)


def _state(path: Path) -> list[Any]:
    """What changes when a file does."""
    status = path.stat()
    return [path.name, status.st_size, status.st_mtime_ns]
