"""Several tasks at once: one body, and a head for each (MT-DNN: Liu et al., 2019, section 3)."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from t5x_like.data.rows.task_rows import TaskRows
from t5x_like.models.finetuned import FineTuned
from t5x_like.models.multi_task import MultiTask, TaskHead
from t5x_like.runs.settings.finetuning import finetuned_model, methods
from t5x_like.runs.settings.finetuning.learned import one_task
from t5x_like.runs.settings.finetuning.learned.one_task import Part, Whole

if TYPE_CHECKING:
    from pathlib import Path

    from t5x_like.data.labelled.labelled_files import Labelled
    from t5x_like.runs.settings.finetuning.distilling import Distilling
    from t5x_like.runs.settings.finetuning.finetuned_model import FineTunedModel
    from t5x_like.runs.settings.finetuning.learned.one_task import OfTask, Wanted

_FORMS = ("classes", "several", "numbers", "ordered", "tags")
"""The forms of the answers of tasks that share rows: choices and spans have rows of their own."""
_NAME = re.compile(r"[\w-]+")
_HEAD, _EACH_HEAD = "^head\\.", "^head\\.[^.]+\\."
"""The beginnings of patterns of the parameters of one head, and of each of several."""


def check(
    wanted: Wanted, distilling: Distilling, order: Sequence[str] | None, *, directory: str
) -> None:
    """Checks what is wanted of several tasks, before their files are read.

    Args:
      wanted: what a user wants of the model.
      distilling: the teacher.
      order: the names of classes in their order, where it is given.
      directory: that of the model.

    Raises:
      ValueError: a setting is for one task alone, or the model has no heads.
    """
    if finetuned_model.writes_alone(directory) and not wanted.head:
        raise ValueError(
            "several tasks have a head each, and a T5 writes its answers: add --head (head), or "
            "learn a file of the texts of all tasks, with a prompt before each"
        )
    alone = {
        "a teacher": distilling.teacher,
        "r_drop": wanted.regularising.r_drop,
        "search": wanted.search,
        "pack": wanted.read.pack,
        "the method features": wanted.method.name == methods.FEATURES,
    }
    for name, given in alone.items():
        if given:
            raise ValueError(f"{name} is for one task: leave it out, or learn the tasks apart")
    if order is not None:
        raise ValueError(
            "CORPUS_LABELS are the classes of one task: say those of several as their labels, in "
            "the .toml file of --task"
        )


def parts(
    tasks: Mapping[str, Labelled | OfTask], directory: str, root: Path, wanted: Wanted
) -> dict[str, Part]:
    """What is learned of each task.

    Args:
      tasks: the files of each task, or a task by name.
      directory: that of the model.
      root: the folder of caches.
      wanted: what a user wants of the model.

    Raises:
      ValueError, OSError: the files of a task or the model cannot be read, or it cannot learn this;
        the message names the task.
    """
    learned = {}
    for name, labelled in sorted(tasks.items()):  # gin text has them in this order
        if not _NAME.fullmatch(name):
            raise ValueError(f"the name of a task has letters, digits, _ and - only, not {name!r}")
        try:
            part = one_task.learned(labelled, directory, root, None, wanted)
        except ValueError as error:
            raise ValueError(f"task {name}: {error}") from error
        if part.model.form not in _FORMS:
            raise ValueError(
                f"task {name} has {part.files.kind}: several tasks at once learn "
                f"{', '.join(_FORMS)}; learn it apart"
            )
        learned[name] = part
    return learned


def together(parts: Mapping[str, Part]) -> Whole:
    """What a run of all tasks learns. A checkpoint is best by the mean of their best metrics.

    Raises:
      ValueError: their heads are not for one body.
    """
    lengths = {"inputs": max(part.lengths["inputs"] for part in parts.values())}
    objectives = {name: part.objective for name, part in parts.items()}
    texts = {name: {"files": part.labelled.train, **part.text} for name, part in parts.items()}
    return Whole(
        model=_model({name: part.model for name, part in parts.items()}),
        objective=objectives,
        converter=TaskRows(objectives),
        data={
            "CORPUS": texts,
            "TASK_FEATURE_LENGTHS": lengths,
            "GROUP_BY_LENGTH": all(
                one_task.is_of_any_length(part, lengths) for part in parts.values()
            ),
        },
        rows=[part.rows(lengths) for part in parts.values()],
        best_metric=",".join(f"{name}/{part.best_metric}" for name, part in parts.items()),
        labels=(),
        lines=[f"{name}: {line}" for name, part in parts.items() for line in part.lines],
    )


def _model(models: Mapping[str, FineTunedModel]) -> FineTunedModel:
    """The model with the heads of all, each of which begins as it does alone."""
    first, *_ = models.values()
    body, *_ = first.make.args
    for name, model in models.items():
        if model.make.func is not FineTuned or not _same(model.make.args[0], body):
            raise ValueError(
                f"the head of task {name} reads other states of a {first.model_type} than those of "
                "the other tasks: learn it apart"
            )
    heads = {name: _head(model.make) for name, model in models.items()}
    make: functools.partial[Any] = functools.partial(MultiTask, body, heads)
    started = first.init_from
    rename = {
        pattern: [re.sub(r"^head\.", f"head.{name}.", str(replacement)) for name in models]
        for pattern, replacement in started.rename.items()
    }
    skip = tuple(
        dict.fromkeys(
            pattern.replace(_HEAD, _EACH_HEAD, 1)
            for model in models.values()
            for pattern in model.init_from.skip
        )
    )
    init_from = dataclasses.replace(started, rename=rename, skip=skip)
    return first._replace(make=make, init_from=init_from)


def _head(make: functools.partial[Any]) -> TaskHead:
    """The head of a `FineTuned`, and its loss."""
    head = make.args[1]
    settings = {name: value for name, value in head.keywords.items() if name != "num_labels"}
    plain = functools.partial(head.func, *head.args, **settings)
    return TaskHead(plain, head.keywords["num_labels"], make.keywords["label_loss"])


def _same(make: functools.partial[Any], other: functools.partial[Any]) -> bool:
    return (make.func, make.args, make.keywords) == (other.func, other.args, other.keywords)
