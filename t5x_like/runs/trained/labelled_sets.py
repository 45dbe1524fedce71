"""The held-out rows of tasks by name, on which a run of `finetune` is evaluated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from t5x_like.data.labelled import named_tasks, task_files
from t5x_like.data.seqio.registered_tasks import registered_task
from t5x_like.runs.settings.finetuning import finetuned_model

if TYPE_CHECKING:
    from t5x_like.runs.trained.trained_run import TrainedRun


def held_out(
    model: TrainedRun, directory: str, task: str | None, data_dir: str | None
) -> str | list[str] | None:
    """The files of a task's held-out rows, in the form that the run has learned from.

    It is None where no task is named, or one of SeqIO and not of labelled rows.

    Raises:
      CorpusError: there is no such task, or its files are not there or not its own.
      ValueError: there is a folder of files, and no task.
    """
    if task is None:
        if data_dir is not None:
            raise ValueError("data_dir holds the files of a task: name it (task)")
        return None
    is_of_files = model.run.data.mixture_or_task_name is None
    if data_dir is None and not (
        is_of_files and registered_task(task) is None and task in named_tasks.tasks()
    ):
        return None
    as_texts = finetuned_model.writes_alone(directory)
    return task_files.held_out(task, data_dir, as_texts=as_texts, root=model.run.data.root)
