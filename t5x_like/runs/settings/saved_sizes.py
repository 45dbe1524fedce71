"""The sizes of a model follow those of the one that it starts from, where INIT_FROM is its name."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from t5x_like.config import gin_config, object_text
from t5x_like.core.buckets import storage
from t5x_like.runs import run_directory, saved_model

if TYPE_CHECKING:
    from t5x_like.runs.run import Run

_OF_THE_RUN = frozenset(
    """
    activation_dropout_rate attention_dropout_rate cosine_weight discriminator_weight dropout_rate
    dtype exclude_original initializer init_std kernel kl_of_masked_only kl_weight label_smoothing
    mem_len mlm_weight remat reuse_len scan_unroll sentence_head temperature z_loss
    """.split()
)
"""Fields of models that say how they are trained and computed, and which heads they have."""


def follow(run: Run) -> list[str]:
    """Sets the sizes in the process's gin configuration.

    Args:
      run: the run that it describes.

    Returns:
      A line about the changes; none where nothing changes.

    Raises:
      ValueError: the two models are of different families, or the user has given other sizes.
    """
    start = run.init_from
    if start is None or not start.model or start.directory is None:
        return []
    begun = run.model_dir is not None and run_directory.has_config(storage.path(run.model_dir))
    directory = run.model_dir if begun and run.model_dir else start.directory
    theirs, ours = _config(saved_model.constructor(directory), directory), _config(run.model, "")
    family, other = (type(one).__module__.rpartition(".")[2] for one in (ours, theirs))
    if type(theirs) is not type(ours):
        raise ValueError(
            f"this run trains a model of the family {family}, and {directory} has one of the "
            f"family {other}: choose a recipe of that family (`t5x_like recipes`)"
        )
    changed = {
        field.name: getattr(theirs, field.name)
        for field in dataclasses.fields(theirs)
        if field.name not in _OF_THE_RUN
        and getattr(theirs, field.name) != getattr(ours, field.name)
    }
    selector = f"{family}.{type(ours).__name__}"
    for given in gin_config.given_settings():
        if given.setting.selector == selector and given.setting.parameter in changed:
            raise ValueError(
                f"{selector}.{given.setting.parameter} is given, and is "
                f"{changed[given.setting.parameter]!r} in {directory}, whose sizes INIT_FROM "
                "takes: leave it out, or name the parameters alone with @init_from.InitFrom()"
            )
    if not changed:
        return []
    writer = object_text.Writer()
    lines = [f"{selector}.{name} = {writer.reference(value)}" for name, value in changed.items()]
    writer.modules.add((type(ours).__module__.rpartition(".")[0], family))
    gin_config.add_text(writer.text("sizes", lines), where=f"the sizes of {directory}")
    said = ", ".join(
        f"{name} {getattr(value, '__name__', value)}" for name, value in changed.items()
    )
    return [f"As in {directory}: {said}."]


def _config(make: Any, directory: str) -> Any:
    """The configuration that a constructor gives its model.

    Raises:
      ValueError: it gives none.
    """
    found = getattr(make, "keywords", {}).get("config") or next(iter(getattr(make, "args", ())), 0)
    if not dataclasses.is_dataclass(found):
        raise ValueError(
            f"the model of {directory or 'this run'} has no sizes that another could have: name "
            "its parameters alone with INIT_FROM = @init_from.InitFrom()"
        )
    return found
