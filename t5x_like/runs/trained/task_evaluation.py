"""Evaluates a trained run on any task or files: metrics, and predictions beside targets."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Callable
from pathlib import Path

from t5x_like.core import progress
from t5x_like.core.partial_files import PartialFile
from t5x_like.core.protocols.answers import Answers
from t5x_like.data.streams import stream
from t5x_like.evaluation.evaluator import with_row_names, with_token_names
from t5x_like.evaluation.task_metrics import ask, fields_read, measure
from t5x_like.evaluation.tasks import answers, labelled_task, one_target
from t5x_like.evaluation.tasks.evaluated_task import EvaluatedTask
from t5x_like.evaluation.tasks.predictions import AnswersSoFar
from t5x_like.runs.trained.baseline_comparison import Columns
from t5x_like.runs.trained.named_tasks import Named, open_named
from t5x_like.runs.trained.teacher_forced import TeacherForced
from t5x_like.runs.trained.trained_run import TrainedRun, batch_to_device

Report = Callable[[str], None]


def columns(
    model: TrainedRun, named: Named, *, predictions: Path, report: Report
) -> dict[str, Columns]:
    """{task: {"trained": {metric: value}}} of the named tasks.

    They are the metrics of the task's author, or else `exact_match`, beside the teacher-forced
    ones. Predictions of text-to-text tasks are written as JSON lines. A command that was killed
    goes on after the examples that it has answered.

    Args:
      model: the run, loaded for batches of `model.rows` rows.
      named: the tasks or files.
      predictions: a `.jsonl` file, or a folder for `<task>-<split>-<step>.jsonl`.
      report: shows a line to the user.

    Raises:
      ValueError, OSError: as `open_named`; or `predictions` is one file for several tasks, or
        cannot be written.
    """
    model = model.in_phase()
    options = dataclasses.replace(model.run.options, batch_size=model.rows)
    model = dataclasses.replace(model, run=model.run.with_parts(options=options))
    tasks = open_named(model, named, report=report)
    if predictions.suffix == ".jsonl" and len(tasks) > 1:
        raise ValueError(
            f"{predictions} is one file, but there are {len(tasks)} tasks: name a folder for their "
            "predictions"
        )
    teacher_forced = TeacherForced(model)
    columns_of: dict[str, Columns] = {}
    for task in tasks:
        if isinstance(task, EvaluatedTask):
            values = _text_to_text(
                model, task, teacher_forced, predictions=predictions, report=report
            )
            columns_of[task.name] = {"trained": values}
        else:
            if (warning := one_target.of_rows(task, named.split)) is not None:
                report(warning)
            at_most = None if named.at_most is None else -(-named.at_most // model.rows)
            rows = stream.eval_stream(task, batch_size=model.rows, max_batches=at_most)
            batches = (batch_to_device(model, batch) for batch in rows)
            values = with_row_names(teacher_forced(model.params, batches), task.task.objective)
            if labelled_task.is_labelled(task.task):
                values |= _of_labels(model, task, named=named, report=report)
            columns_of[task.task.name] = {"trained": values}
    return columns_of


def _of_labels(
    model: TrainedRun, rows: stream.Examples, *, named: Named, report: Report
) -> dict[str, float]:
    """The metrics of a task of labels."""
    task = labelled_task.of_rows(rows, named.split, kinds=model.kinds, at_most=named.at_most)
    answerer = model.answerer(task.lengths, batch_size=model.rows, features=rows.task.features)
    answered = ask(fields_read(task.metrics), task.examples, answerer)
    values, failures = measure(task.metrics, task.examples, answered)
    for metric, reason in failures:
        report(f"warning: task {task.name!r}: metric {metric} has no value: {reason}")
    return values


def _text_to_text(
    model: TrainedRun,
    task: EvaluatedTask,
    teacher_forced: TeacherForced,
    *,
    predictions: Path,
    report: Report,
) -> dict[str, float]:
    """All metrics of a task; writes its predictions."""
    for line in task.cut():
        report(f"note: {line}")
    if (warning := one_target.of_texts(task)) is not None:
        report(warning)
    shown = len(task.examples)
    if shown < task.total:
        report(f"note: {task.name}: {shown:,} of {task.total:,} examples, spread evenly")
    answerer = model.answerer(task.lengths, batch_size=model.rows)
    file = _file(predictions, task, model.step)
    answered = _answers(model, task, answerer, file=file)
    if answered.predictions:
        report(f"note: {task.name}: predictions are in {file}")
    values = with_token_names(teacher_forced(model.params, answerer.batches(task.examples)))
    measured, failures = measure(task.metrics, task.examples, answered, taken=values)
    for metric, reason in failures:
        report(f"warning: task {task.name!r}: metric {metric} has no value: {reason}")
    return measured | values


def _answers(
    model: TrainedRun, task: EvaluatedTask, answerer: answers.ModelAnswers, *, file: Path
) -> Answers:
    """The answers to a task's examples, which are kept in `file`."""
    fields = fields_read(task.metrics) | {"predictions"} & model.kinds
    if not fields:
        return Answers()
    settings = {
        "step": model.step,
        "task": task.name,
        "split": task.split,
        "lengths": dict(task.lengths),
        "examples": _digest(task),
        "fields": sorted(fields),
        **answers.SETTINGS,
    }
    so_far = AnswersSoFar(PartialFile(file, settings), sorted(fields))
    done = len(so_far.partial.resume())
    total = len(task.examples)
    bar = progress.bar(
        desc=f"{task.name} {task.split}", total=total, initial=done, unit=" examples"
    )
    with bar:
        for start in range(done, total, model.rows):
            part = task.examples[start : start + model.rows]
            so_far.add(ask(fields, part, answerer))
            bar.update(len(part))
    all_answers = so_far.read()
    so_far.finish(task, all_answers)
    return all_answers


def _digest(task: EvaluatedTask) -> str:
    """A digest of the tokens of all examples."""
    digest = hashlib.sha256()
    for example in task.examples:
        for name in sorted(task.lengths):
            if name in example:
                digest.update(f"{name} {len(example[name])} ".encode())
                digest.update(example[name].tobytes())
    return digest.hexdigest()


def _file(predictions: Path, task: EvaluatedTask, step: int) -> Path:
    if predictions.suffix == ".jsonl":
        return predictions
    name = re.sub(r"[^\w.-]+", "_", f"{task.name}-{task.split}-{step}")
    return predictions / f"{name}.jsonl"
