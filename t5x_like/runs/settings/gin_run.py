"""The run that gin describes, and a copy of it that is independent of gin's configuration."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from t5x_like.config import gin_config, presets
from t5x_like.data import extras
from t5x_like.runs.run import Run
from t5x_like.runs.settings import (
    proportion,
    starting_model,
    table_rows,
    token_counts,
    unread_settings,
)


def load(
    files: Sequence[str],
    bindings: Sequence[str] = (),
    folders: Sequence[str] = (),
    *,
    keeps_model: bool = True,
) -> tuple[Run, list[str]]:
    """The run that gin files and then bindings describe, and lines about their settings.

    It leaves gin configured with the run.

    Args:
      files: names of models and files (`gin_files.find`).
      bindings: `NAME=value`, or `module.Thing.parameter=value`.
      folders: searched for files as well.
      keeps_model: whether the run trains the model of the files. Where the caller replaces it, its
        tables do not follow the vocabulary.

    Raises:
      ConfigError: a file, name or value is not valid.
      UnreadError: a setting that nothing would read.
      OSError, ValueError: the model that it starts from cannot be read, has other sizes, or is of
        another family.
    """
    extras.quiet_tensorflow()  # files may import SeqIO's tasks
    gin_config.load(files, bindings, folders)
    token_counts.estimate_total()
    notes = proportion.follow(token_counts.usual_total())
    notes += token_counts.follow()
    built = build()
    plain: Run = gin_config.without_gin(built)
    start, imported = starting_model.opened(plain)
    notes += imported
    sizes = starting_model.follow(plain.with_parts(init_from=start))
    if keeps_model and (start is None or not start.model):
        sizes += table_rows.follow(plain)
    notes += sizes
    # Again: sizes may be others, and whoever read another configuration has parsed this one anew.
    built = build()
    # The copy reads the settings of what a run calls later; objectives by name read those of all.
    copy: Run = gin_config.without_gin(built)
    notes += unread_settings.check(built, gin_config.given_settings())
    return _with_objectives(copy.with_parts(init_from=start)), notes


def build() -> Run:
    """The run of gin's current configuration. Some of its parts read gin when they are called.

    Raises:
      ConfigError: a part is missing or cannot be made.
    """
    return gin_config.build(Run)


def without_gin(run: Run) -> Run:
    """A copy of the run that does not change when another configuration is loaded."""
    return _with_objectives(gin_config.without_gin(run))


def _with_objectives(run: Run) -> Run:
    """The run, which finds objectives by name as the current configuration changes them."""
    data = dataclasses.replace(run.data, find_objective=presets.now())
    return run.with_parts(data=data)
