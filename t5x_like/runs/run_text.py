"""A run that was made in Python as gin text, by which its directory is opened again."""

from __future__ import annotations

import dataclasses

from t5x_like.config.object_text import Writer
from t5x_like.core.partitioning import DEFAULT_RULES, Layout, make_layout
from t5x_like.data.vocabulary_choice import Given
from t5x_like.runs.run import Run


def run_text(run: Run) -> str:
    """What `eval`, `infer` and `export` need of a run, as `t5x_like train` writes it.

    An optimizer is a pair of functions, of which nothing can be written: it is left out, so that
    the text alone does not train. Nor is a vocabulary that is there already, which is saved beside
    it.

    Raises:
      ValueError: a part has no name that a gin file could import, such as a lambda.
    """
    writer = Writer()
    data = run.data
    if isinstance(data.vocabulary, Given):
        data = dataclasses.replace(data, vocabulary=type(data)().vocabulary)
    parts = {
        "model_dir": run.model_dir,
        "data": data,
        "feature_converter": run.feature_converter,
        "options": run.options,
        "phases": tuple(run.phases),
        "teacher": run.teacher,
    }
    model = writer.reference(run.model)
    lines = [f"run.Run.{name} = {writer.reference(part)}" for name, part in parts.items()]
    writer.modules |= {("t5x_like.cli", "run"), ("t5x_like", "partitioning")}
    lines += [
        "run.Run.model = %MODEL",
        "run.Run.optimizer = None",
        "run.Run.layout = @partitioning.make_layout()",
        *_layout(run.layout),
    ]
    return writer.text("A run that was made in Python.", [f"MODEL = {model}", *lines])


def _layout(layout: Layout) -> list[str]:
    """Its axes, of which the first takes as many devices as there are."""
    first, *others = layout.mesh.shape.items()
    mesh = {first[0]: -1, **dict(others)}
    rules = {name: rule for name, rule in layout.rules.items() if DEFAULT_RULES.get(name) != rule}
    name = f"partitioning.{make_layout.__name__}"
    return [f"{name}.mesh = {mesh!r}", f"{name}.rules = {rules!r}"]
