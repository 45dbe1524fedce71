"""The gin text of a run that was made in Python, to open its directory again."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from t5x_like.config import gin_files, gin_text
from t5x_like.config.object_text import Writer
from t5x_like.core.partitioning import DEFAULT_RULES, Layout, make_layout
from t5x_like.data.vocabulary_choice import KnownVocabulary
from t5x_like.runs.run import Phase, Run


def run_text(run: Run) -> str:
    """The text of a run for `eval`, `predict` and `export`, as `t5x_like train` writes it.

    An optimizer of optax is a pair of functions, which cannot be written: the text leaves it out,
    and alone does not train. Our own optimizers are written (`calls.remember_call`). A vocabulary
    that exists already is left out, too, because it is saved beside the text.

    Raises:
      ValueError: a part has no name that a gin file could import, such as a lambda.
    """
    writer = Writer()
    writer.modules |= {("t5x_like.runs", "run"), ("t5x_like.core", "partitioning")}
    data = run.data
    if isinstance(data.vocabulary, KnownVocabulary):
        data = dataclasses.replace(data, vocabulary=type(data)().vocabulary)
    parts = {
        "model_dir": run.model_dir,
        "data": data,
        "feature_converter": run.feature_converter,
        "phases": tuple(map(_writable, run.phases)),
        "init_from": run.init_from,
        "add_tokens": run.add_tokens,
        "exchange_vocabulary": run.exchange_vocabulary,
        "grow": run.grow,
        "completer": run.completer,
        "adapt": run.adapt,
    }
    optimizer = writer.reference(_known_call(run.optimizer))
    model = writer.reference(run.model)
    lines = [f"run.Run.{name} = {writer.reference(part)}" for name, part in parts.items()]
    lines += [
        "run.Run.options = @run.Options()",
        *(
            f"run.Options.{name} = {value!r}"
            for name, value in dataclasses.asdict(run.options).items()
        ),
        f"run.Run.optimizer = {optimizer}",
        "run.Run.layout = @partitioning.make_layout()",
        *_layout(run.layout),
    ]
    macros, lines = _macros([f"run.Run.model = {model}", *lines, *writer.bindings])
    writer.bindings = lines
    return writer.text("A run that was made in Python.", macros)


def _known_call(optimizer: Any) -> Any:
    """The optimizer; None where it does not know the call that made it."""
    return None if getattr(optimizer, "made_by", None) is None else optimizer


def _writable(phase: Phase) -> Phase:
    return dataclasses.replace(phase, optimizer=_known_call(phase.optimizer))


def _macros(lines: Sequence[str]) -> tuple[list[str], list[str]]:
    """The macros of runs/pretrain.gin that the lines set, and the lines that use these macros.

    The command line thus changes a run made in Python by the same names as any other run.
    """
    pretrain = gin_text.read(gin_files.read(gin_files.gin_root() / "runs" / "pretrain.gin"))
    known = {
        str(binding): value
        for binding, value in pretrain.values.items()
        if isinstance(value, gin_text.Macro)
    }
    macros, rest = [], []
    for line in lines:
        name, _, value = line.partition(" = ")
        if name in known:
            macros.append(f"{known[name]} = {value}")
            line = f"{name} = %{known[name]}"
        rest.append(line)
    return macros, rest


def _layout(layout: Layout) -> list[str]:
    """The lines of a mesh and its rules; the first axis takes the rest of the devices."""
    first, *others = layout.mesh.shape.items()
    mesh = {first[0]: -1, **dict(others)}
    rules = {name: rule for name, rule in layout.rules.items() if DEFAULT_RULES.get(name) != rule}
    name = f"partitioning.{make_layout.__name__}"
    return [f"{name}.mesh = {mesh!r}", f"{name}.rules = {rules!r}"]
