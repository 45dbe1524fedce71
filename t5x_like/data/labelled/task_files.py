"""The labelled files of a task by name: those of its authors, or rows that are written once."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from t5x_like.data.corpora.corpus import CorpusError
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
      CorpusError: there is no such task, it has no rows to learn from, or its files are not there
        or not its own.
    """
    task = _task(name, as_texts=as_texts)
    if task.asked_of is not None:
        raise CorpusError(
            f"{name} has no rows to learn from: learn {task.asked_of}, and give its run to "
            f"`t5x_like eval RUN --task {name} --data_dir DIR`"
        )
    published = _Published.of(task, data_dir, as_texts=as_texts)
    files = published.files(root, ("train", "dev"))
    if published.as_they_are:
        return Labelled(files["train"], files.get("dev"), task.kind)
    notes = (*published.left_out(), *published.not_learned())
    return _said(task, files["train"], files.get("dev"), published.texts)._replace(notes=notes)


def held_out(name: str, data_dir: str | None, *, as_texts: bool, root: Path) -> str | list[str]:
    """The held-out files of a task, as `--dev` would name them; arguments as in `labelled`.

    Raises:
      CorpusError: there is no such task, or it has no held-out rows, or its files are not there or
        not its own.
    """
    task = _task(name, as_texts=as_texts)
    published = _Published.of(task, data_dir, as_texts=as_texts, train=False)
    files = published.files(root, ("dev",))
    if "dev" not in files:
        raise CorpusError(f"{name} has no held-out rows: name files (--corpus)")
    return files["dev"]


def _task(name: str, *, as_texts: bool) -> NamedTask:
    task = named_tasks.task(name)
    return task.written if as_texts and task.written is not None else task


@dataclasses.dataclass(frozen=True)
class _Published:
    """The rows of a task, from its authors' files or from a data set of the network.

    Attributes:
      task: the task.
      form: how the files are published; None for a data set.
      paths: {split: its files}.
      prompted: whether a T5 reads them.
    """

    task: NamedTask
    form: Files | None
    paths: Mapping[str, list[Path]]
    prompted: bool

    @classmethod
    def of(
        cls, task: NamedTask, data_dir: str | None, *, as_texts: bool, train: bool = True
    ) -> _Published:
        """Finds the files; `train` says whether there must be some to learn from."""
        if data_dir is None:
            return cls(task, None, {}, as_texts)
        folder = Path(data_dir).expanduser()
        return cls(task, *named_tasks.published(task, folder, train=train), as_texts)

    @property
    def as_they_are(self) -> bool:
        """Whether the files are read as they are."""
        return self.form is not None and isinstance(self.form.form, AsTheyAre)

    @property
    def texts(self) -> bool:
        """Whether the rows are pairs of texts."""
        return (self.prompted and bool(self.task.prompt)) or self.task.kind == "texts"

    def files(self, root: Path, splits: Iterable[str]) -> dict[str, str | list[str]]:
        """{split: its files}, of those splits that there are; rows are written below `root`."""
        if self.as_they_are:
            return {split: [*map(str, self.paths[split])] for split in splits if self.paths[split]}
        names = {"train": self.task.name, "dev": f"{self.task.name}_dev"}
        rows = {
            names[split]: self._learned(of_split, split)
            for split, of_split in self._rows().items()
            if split in splits
        }
        states = [_state(path) for split in splits for path in self.paths.get(split, ())]
        identity = [_VERSION, self.texts, self.prompted, states]
        made = written_rows.written(rows, identity=identity, name=self.task.name, root=root)
        return {split: made[names[split]] for split in splits if names[split] in made}

    def _rows(self) -> Mapping[str, Iterable[Mapping[str, Any]]]:
        """{split: its rows as they are published}."""
        if self.form is None:
            return online_rows.splits(self.task)
        form = self.form.form
        assert not isinstance(form, AsTheyAre)
        return {split: form.rows(paths) for split, paths in self.paths.items() if paths}

    def _learned(
        self, published: Iterable[Mapping[str, Any]], split: str
    ) -> Iterator[dict[str, Any]]:
        """The rows that a model learns; of three texts and more all but the first are one."""
        task = self.task
        for row in task.rows(published, f"{task.name}, {split}"):
            if split == "train" and not task.learns(row):
                continue
            if self.texts:
                yield task.pair(row, prompted=self.prompted)
                continue
            if task.kind in ("choices", "spans"):
                yield row
                continue
            first, *others = task.texts
            second = {others[0]: " ".join(row[name] for name in others)} if others else {}
            yield {first: row[first], **second, task.label: row[task.label]}

    def left_out(self) -> Iterator[str]:
        """A line about the torn rows of each split that are left out, if there are any."""
        if self.form is None or not isinstance(self.form.form, TornTable):
            return
        for paths in self.paths.values():
            torn, total = self.form.form.left_out(paths)
            if torn:
                names = ", ".join(path.name for path in paths)
                yield (
                    f"{torn:,} of {total:,} rows of {names} are left out: they lack a cell, or "
                    "have another number of cells than the first line."
                )

    def not_learned(self) -> Iterator[str]:
        """A line about rows that are not for learning, where a task has such."""
        if self.task.learns is named_tasks.every:
            return
        rows = [*self.task.rows(self._rows()["train"], f"{self.task.name}, train")]
        yield (
            f"{sum(map(self.task.learns, rows)):,} of {len(rows):,} training rows are learned: "
            f"{self.task.summary}."
        )


def _said(
    task: NamedTask, train: str | list[str], dev: str | list[str] | None, texts: bool
) -> Labelled:
    best, labels = task.best_metric, [*dict.fromkeys((task.labels or {}).values())] or None
    said = Labelled(train, dev, "texts" if texts else task.kind, best_metric=best)
    if texts:
        return said._replace(metrics=task.metrics, several_targets=task.several_targets)
    if task.kind in ("tags", "spans"):
        return said
    first, *others = task.texts
    if task.kind == "choices":
        return said._replace(named=Named(first, None, task.label))
    named = Named(first, others[0] if others else None, task.label)
    return said._replace(named=named, labels=labels)


def _state(path: Path) -> list[Any]:
    """What changes when a file does."""
    status = path.stat()
    return [path.name, status.st_size, status.st_mtime_ns]
