"""The rows of a task from TensorFlow Datasets, or from Hugging Face's `datasets`."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from t5x_like.data import extras
from t5x_like.data.corpora.corpus import CorpusError
from t5x_like.data.labelled import named_tasks
from t5x_like.data.labelled.named_tasks import NamedTask, Online

Splits = dict[str, Iterator[Mapping[str, Any]]]


def splits(task: NamedTask) -> Splits:
    """{split: its rows} of "train" and of "dev", where there are such.

    `datasets` is asked first where it is installed.

    Raises:
      CorpusError: neither package is installed or has the task, or the data cannot be had; says
        which files may be given in their place.
    """
    failures = []
    for package, online, read in (
        ("datasets", task.hugging_face, _hugging_face),
        ("tensorflow_datasets", task.tfds, _tfds),
    ):
        if online is None:
            continue
        if importlib.util.find_spec(package) is None:
            failures.append(f"{package} is not installed")
            continue
        try:
            return read(online)
        except Exception as error:  # whatever a script of a data set or the network raises
            reason = str(error).strip().partition("\n")[0]
            failures.append(f"{package} has not {online.name}: {type(error).__name__}: {reason}")
    reasons = "; ".join(failures) or "neither has it"
    raise CorpusError(
        f"the rows of {task.name} are to come from `datasets` or TensorFlow Datasets, and cannot: "
        f"{reasons}. Or {named_tasks.wanted(task)}"
    )


def _hugging_face(online: Online) -> Splits:
    datasets = extras.require("datasets", "datasets", purpose="a data set of Hugging Face")
    loaded = datasets.load_dataset(online.name, online.config)
    return {split: _named_rows(loaded[name]) for split, name in online.splits.items()}


def _named_rows(rows: Any) -> Iterator[Mapping[str, Any]]:
    """Rows whose class labels, also in lists, are the names that the data set declares."""
    classes = {}
    for column, feature in rows.features.items():
        inner = getattr(feature, "feature", feature)
        if getattr(inner, "names", None):
            classes[column] = inner.names
    for row in rows:
        yield {column: _name(cell, classes.get(column)) for column, cell in row.items()}


def _tfds(online: Online) -> Splits:
    tfds = extras.require("tensorflow_datasets", "data", purpose="a TFDS data set")
    builder = tfds.builder(online.name)
    if not builder.is_prepared():
        builder.download_and_prepare()
    classes = {
        column: names
        for column, feature in builder.info.features.items()
        if (names := getattr(getattr(feature, "feature", feature), "names", None))
    }

    def rows(split: str) -> Iterator[Mapping[str, Any]]:
        for example in tfds.as_numpy(builder.as_dataset(split=split, shuffle_files=False)):
            plain = {column: _plain(cell) for column, cell in example.items()}
            yield {column: _name(cell, classes.get(column)) for column, cell in plain.items()}

    return {split: rows(name) for split, name in online.splits.items()}


def _plain(cell: Any) -> Any:
    """A value of NumPy as one of Python: bytes are texts."""
    if isinstance(cell, np.ndarray):
        return [_plain(item) for item in cell]
    if isinstance(cell, Mapping):
        return {name: _plain(item) for name, item in cell.items()}
    if isinstance(cell, bytes):
        return cell.decode(errors="surrogateescape")
    return cell.item() if isinstance(cell, np.generic) else cell


def _name(cell: Any, names: Any) -> Any:
    """The name of a class, or those of a list; other cells as they are."""
    if names is None:
        return cell
    if isinstance(cell, list):
        return [_name(item, names) for item in cell]
    return names[cell] if cell >= 0 else None
