"""A run that fine-tunes a pretrained model on labelled files."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t5x_like.api.pretraining import Pretraining, from_gin
from t5x_like.config import settings
from t5x_like.core.spelling import nearest
from t5x_like.data.labelled import tasks_file
from t5x_like.data.labelled.columns import Named
from t5x_like.data.labelled.few_rows import FewRows
from t5x_like.data.labelled.labelled_files import Labelled
from t5x_like.runs.settings.finetuning import regularising
from t5x_like.runs.settings.finetuning.configuration import Configuration, configuration
from t5x_like.runs.settings.finetuning.distilling import Distilling
from t5x_like.runs.settings.finetuning.label_weighing import Weighing
from t5x_like.runs.settings.finetuning.learned.one_task import OfTask, Wanted
from t5x_like.runs.settings.finetuning.methods import Method
from t5x_like.runs.settings.finetuning.reading import Reading
from t5x_like.runs.settings.finetuning.regularising import Regularising

if TYPE_CHECKING:
    from t5x_like.training.callbacks import Callback

_OF_FILES = ("train", "dev", "kind", "text", "second", "label", "weight", "columns")
_OF_CONFIGURATIONS = (
    *("epochs", "batch_size", "learning_rate", "average_last", "cache_dir", "gin"),
)
_OF_RUNS = ("cache_dir", "mesh", "batch_size", "learning_rate", "seed")
"""Arguments that say what files hold, those that configurations need, and settings of runs."""


def finetune(
    source: str,
    *,
    task: str | Sequence[str] | Mapping[str, Mapping[str, Any]] | None = None,
    data_dir: str | None = None,
    train: str | Sequence[str] | None = None,
    dev: str | Sequence[str] | None = None,
    kind: str | None = None,
    text: str | None = None,
    second: str | None = None,
    label: str | None = None,
    weight: str | None = None,
    columns: Sequence[str] | None = None,
    examples: int | str | None = None,
    head: bool = False,
    search: bool = False,
    epochs: float | None = None,
    batch_size: int | None = None,
    learning_rate: float | None = None,
    length: int | None = None,
    stride: int | None = None,
    pieces: str | None = None,
    pack: bool = False,
    class_weights: str | Mapping[str, float] | None = None,
    label_smoothing: float | None = None,
    focal_gamma: float | None = None,
    reinit_layers: int | None = None,
    r_drop: float | None = None,
    average_last: float | None = None,
    method: str | Method | None = None,
    teacher: str | Distilling | None = None,
    model_dir: str | None = None,
    cache_dir: str | None = None,
    seed: int | None = None,
    mesh: Mapping[str, int] | None = None,
    callbacks: Sequence[Callback] = (),
    gin: Sequence[str] = (),
) -> Pretraining:
    """A run that fine-tunes a pretrained model; what is not given follows from files and family.

    Args:
      source: a run, an import, or a model of Hugging Face (a directory, or its name at the hub).
      task, data_dir: "sst2" in place of files; ["sst2", "rte"], a .toml, or {name: {"train": ...}}.
      train, dev: files (.csv, .tsv, .jsonl, .parquet, .conll, SQuAD); held-out ones (None: 10 %).
      kind: "classes", "several", "numbers", "ordered", "tags", "choices", "spans" or "texts".
      text, second, label, weight: columns of a text (question), a context, labels, weights of rows.
      columns, examples: names of columns of tables without them; how many rows are drawn ("all").
      head, search: T5 learns with a head, not words; XLNet searches an answer's end from its start.
      epochs, batch_size, learning_rate, average_last: passes; rows a step; peak; epochs averaged.
      length, stride: tokens of a row (None: of the longest, at most 512); to a text's next window.
      pack, pieces: several texts a row; those with a word's tag: "first", "last", "all" or "mean".
      class_weights, reinit_layers: "balanced" or {class: weight}; last layers that start afresh.
      label_smoothing, focal_gamma, r_drop: share of other classes; power of 1 - p; R-Drop's weight.
      method, teacher: what trains ("lora"), or a `Method`; a run to learn from, or a `Distilling`.
      model_dir, cache_dir, seed, mesh, callbacks, gin: as in `recipe`; None: `<source>-<files>`.

    Raises:
      CorpusError, ConfigError, UnreadError, OSError, ValueError: files, model or settings are bad.
    """
    return _made(**locals())


def _made(source: str, **given: Any) -> Pretraining:
    """The run for the arguments of `finetune`."""
    wanted = Wanted(
        head=given["head"],
        search=given["search"],
        method=given["method"] if isinstance(given["method"], Method) else Method(given["method"]),
        read=Reading(*(given[word] for word in Reading._fields)),
        weighing=Weighing(*(given[word] for word in Weighing._fields)),
        regularising=Regularising(*(given[word] for word in Regularising._fields)),
        few=FewRows(given["examples"], given["seed"] or 0),
    )
    made = configuration(
        source,
        _learned(given),
        wanted,
        distilling=_teacher(given["teacher"]),
        **{word: given[word] for word in _OF_CONFIGURATIONS},
    )
    words = {word: given[word] for word in _OF_RUNS}
    words["model_dir"] = given["model_dir"] or made.model_dir
    run = _of_text(made, [*settings.bindings(words), *made.bindings], given["callbacks"])
    if given["r_drop"] is not None:
        regularising.check_dropout(run.run.abstract_model)
    return dataclasses.replace(run, notes=[*made.notes, *run.notes])


def _teacher(teacher: str | Distilling | None) -> Distilling:
    return teacher if isinstance(teacher, Distilling) else Distilling(teacher)


def _learned(given: Mapping[str, Any]) -> Labelled | OfTask | dict[str, Labelled | OfTask]:
    """What the arguments of `finetune` say of one task, or of each of several."""
    task, data_dir = given["task"], given["data_dir"]
    if task is None or (isinstance(task, str) and not task.endswith(tasks_file.ENDING)):
        return _one(given)
    if said := [name for name in _OF_FILES if given[name] is not None]:
        raise ValueError(f"{', '.join(said)} are of one task: say them of each of several (task)")
    if isinstance(task, Mapping):
        return {name: _of_several(name, said) for name, said in task.items()}
    tasks: list[tuple[str, Labelled | OfTask]] = []
    for name in [task] if isinstance(task, str) else task:
        if name.endswith(tasks_file.ENDING):
            known = tasks_file.read(name)
            tasks += [(known_name, _of_several(known_name, of)) for known_name, of in known.items()]
        else:
            tasks.append((name, OfTask(name, data_dir)))
    names = [name for name, _ in tasks]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"several tasks have one name: {', '.join(sorted(twice))}")
    return dict(tasks)


def _of_several(name: str, said: Mapping[str, Any]) -> Labelled | OfTask:
    """What is said of one of several tasks.

    Raises:
      ValueError: nobody can say that of a task.
    """
    known = (*_OF_FILES, "task", "data_dir", "labels")
    if unknown := [word for word in said if word not in known]:
        advice = nearest(unknown[0], known, of="words")
        raise ValueError(f"task {name}: nothing reads {unknown[0]!r}{advice}")
    try:
        one: Any = _one({**dict.fromkeys(known), **said})
    except ValueError as error:
        raise ValueError(f"task {name}: {error}") from error
    labels = said.get("labels")
    if labels is None or isinstance(one, Labelled):
        return one if labels is None else one._replace(labels=labels)
    raise ValueError(
        f"task {name}: the task {one.name!r} says what its classes are: leave out labels"
    )


def _one(given: Mapping[str, Any]) -> Labelled | OfTask:
    """A task by name, or files and what is said of them."""
    task, data_dir = given["task"], given["data_dir"]
    if task is not None:
        if said := [name for name in _OF_FILES if given[name] is not None]:
            raise ValueError(f"task {task!r} says what its files hold: leave out {', '.join(said)}")
        return OfTask(task, data_dir)
    if data_dir is not None or given["train"] is None:
        raise ValueError(
            "say what there is to learn: training files (train), or a task by its name (task), "
            "whose files may lie in data_dir"
        )
    train, dev, kind, text, second, label, weight, columns = (given[name] for name in _OF_FILES)
    named = Named(text, second, label)
    return Labelled(train, dev, kind, named, tuple(columns or ()), weight=weight)


def _of_text(
    made: Configuration, bindings: Sequence[str], callbacks: Sequence[Callback]
) -> Pretraining:
    """The run of a configuration, whose text gin reads from a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "finetune.gin"
        path.write_text(made.text, encoding="utf-8")
        return from_gin([made.base, str(path)], bindings, callbacks=callbacks)
