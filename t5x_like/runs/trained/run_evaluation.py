"""The metrics of a run on its held-out text, or on a task or files that a user names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from t5x_like.core import whole_files
from t5x_like.core.abilities import AnswersTasks, can
from t5x_like.core.buckets import sending
from t5x_like.runs.trained import baseline_comparison, labelled_sets, one_head, task_evaluation
from t5x_like.runs.trained.named_tasks import Named

if TYPE_CHECKING:
    from t5x_like.runs.trained.baseline_comparison import Columns
    from t5x_like.runs.trained.trained_run import TrainedRun


def columns(
    model: TrainedRun,
    directory: str,
    *,
    task: str | None,
    data_dir: str | None,
    corpus: str | Sequence[str] | None,
    split: str,
    batches: int | None,
    predictions: str | Path | None,
    report: Callable[[str], None],
) -> dict[str, Columns]:
    """{task: {who: {metric: value}}}; arguments and errors are those of `LoadedModel.evaluate`.

    Args:
      model: the run. Of one of several tasks, a named task is evaluated with the head of its name,
        and the held-out text of each with its own.
      directory: its directory.
      task, data_dir, corpus, split, batches, predictions: as in `LoadedModel.evaluate`.
      report: shows a line to the user.
    """
    if can(model.model, AnswersTasks):
        heads = model.model.tasks
        if task in heads:
            model = one_head.of_run(model, str(task))
        elif task is not None or corpus is not None:
            raise one_head.which(model.model)
        else:
            each = [one_head.of_run(model, name) for name in heads]
            of_each = [_of_held_out(one, directory, batches, report) for one in each]
            return {name: values for some in of_each for name, values in some.items()}
    if files := labelled_sets.held_out(model, directory, task, data_dir):
        task, corpus = None, files
    if task is None and corpus is None:
        return _of_held_out(model, directory, batches, report)
    at_most = None if batches is None else batches * model.rows
    named = Named(task=task, corpus=corpus, split=split, at_most=at_most)
    folder = f"{directory}/predictions" if predictions is None else predictions
    if predictions is None:
        whole_files.check_no_link(folder, inside=directory)
    with sending.written(folder) as path:
        return task_evaluation.columns(model, named, predictions=path, report=report)


def _of_held_out(
    model: TrainedRun, directory: str, batches: int | None, report: Callable[[str], None]
) -> dict[str, Columns]:
    """The metrics on the held-out text of the run, beside baselines."""
    columns_of = baseline_comparison.columns(
        model, batch_size=model.rows, batches=batches or 50, report=report
    )
    if not columns_of:
        raise ValueError(f"the tasks of {directory} hold no documents out")
    return columns_of
