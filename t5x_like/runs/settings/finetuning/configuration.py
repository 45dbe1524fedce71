"""The configuration of a run that fine-tunes a saved model on labelled files, as gin text."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from flax import nnx

from t5x_like.config import gin_files, gin_text
from t5x_like.config.object_text import Writer
from t5x_like.data.cache import location
from t5x_like.data.corpora.text_files import TextFiles
from t5x_like.evaluation import label_metrics
from t5x_like.runs.settings import imported
from t5x_like.runs.settings.finetuning import methods, steps_of_epochs, tried_settings
from t5x_like.runs.settings.finetuning.distilling import Distilling
from t5x_like.runs.settings.finetuning.finetuned_model import FineTunedModel
from t5x_like.runs.settings.finetuning.learned import one_task, several_tasks
from t5x_like.runs.settings.finetuning.learned.one_task import Wanted, Whole
from t5x_like.runs.settings.finetuning.methods import Method

if TYPE_CHECKING:
    from t5x_like.data.labelled.labelled_files import Labelled
    from t5x_like.runs.run import Phase
    from t5x_like.runs.settings.finetuning.learned.one_task import OfTask

_ADAFACTOR = ("t5", "mt5", "umt5", "longt5")
"""The families whose settings have Adafactor."""
_OF_STEPS = ("EPOCHS", "WARMUP_SHARE")
"""Macros that numbers of steps follow; no part of a run reads them."""


class Configuration(NamedTuple):
    """A run that fine-tunes.

    Attributes:
      base: the gin file of its family's settings.
      text: gin text of what follows from the model and the files.
      model_dir: a directory for it.
      bindings: the further settings that gin reads after the text.
      notes: lines about what was understood.
    """

    base: str
    text: str
    model_dir: str
    bindings: list[str]
    notes: list[str]


def configuration(
    source: str,
    labelled: Labelled | OfTask | Mapping[str, Labelled | OfTask],
    wanted: Wanted,
    *,
    epochs: float | None,
    batch_size: int | None,
    learning_rate: float | None,
    average_last: float | None,
    cache_dir: str | None,
    distilling: Distilling,
    gin: Sequence[str],
) -> Configuration:
    """The configuration of a run; arguments and errors are those of `t5x_like.finetune`."""
    label_metrics.check_installed()
    method, regularising = wanted.method, wanted.regularising
    method.check(reinit_layers=regularising.reinit_layers)
    distilling.check(is_full=method.is_full, r_drop=regularising.r_drop, pack=wanted.read.pack)
    directory, notes = imported.directory(source, cache_dir)
    order = _macros("\n".join(gin)).get("CORPUS_LABELS")
    root = location.cache_root(cache_dir)
    if isinstance(labelled, Mapping):
        several_tasks.check(wanted, distilling, order, directory=directory)
        parts = several_tasks.parts(labelled, directory, root, wanted)
        whole, name = several_tasks.together(parts), "-".join(labelled)
    else:
        part = one_task.learned(labelled, directory, root, order, wanted)
        whole, name = one_task.alone(part), TextFiles(part.labelled.train).name
    if distilling.teacher is not None:
        taught = distilling.on(whole.model, whole.labels)
        whole = whole._replace(model=taught.model, taught=taught)
    base = _settings_of(whole.model, method)
    asked = {"EPOCHS": epochs, "BATCH_SIZE": batch_size, "PEAK_LEARNING_RATE": learning_rate}
    given = {name: x for name, x in asked.items() if x is not None}
    usual = _settings(base, gin) | given
    macros = {
        **whole.data,
        "BEST_METRIC": whole.best_metric,
        **wanted.few.evaluated(steps_of_epochs.steps(usual, whole.rows, average_last)),
        **method.macros(whole.model.model_type),
    }
    vocabulary = one_task.vocabulary(whole.model)
    windows = [note for rows in whole.rows for note in rows.notes]
    phases = method.phases(whole.model, macros["TRAIN_STEPS"])
    trains = [*methods.lines_about(phases)]
    if not method.is_full:
        trains = [method.line(whole.model.make, vocabulary)]
    return Configuration(
        base,
        _text(whole, macros, method.adapt(vocabulary), phases),
        f"{source.rstrip('/')}-{name}{wanted.few.suffix}",
        [binding for binding in gin if binding.partition("=")[0].strip() not in _OF_STEPS],
        [*whole.lines, *windows, *trains, *_untried(whole, usual, method), *notes],
    )


def _settings_of(model: FineTunedModel, method: Method) -> str:
    """The gin file of the settings of a model's family.

    Small new parameters of a T5 have AdamW: Adafactor's steps are relative to the size of a
    parameter, and theirs is nearly 0 at first.

    Raises:
      ValueError: there is none.
    """
    name = f"finetune/{model.model_type}.gin"
    if not method.is_full and model.model_type in _ADAFACTOR:
        return "finetune/adamw.gin"
    if not (gin_files.gin_root() / name).exists():
        raise ValueError(f"no settings to fine-tune a {model.model_type} with are known yet")
    return name


def _text(
    whole: Whole,
    macros: Mapping[str, Any],
    adapt: functools.partial[Any] | None,
    phases: Sequence[Phase],
) -> str:
    """Gin text of the parts of a run, and of macros."""
    writer = Writer()
    objects: dict[str, Any] = {
        "MODEL": whole.model.make,
        "OBJECTIVE": whole.objective,
        "FEATURE_CONVERTER": whole.converter,
        "INIT_FROM": whole.model.init_from,
    }
    if adapt is not None:
        objects["ADAPT"] = adapt
    if (taught := whole.taught) is not None:
        objects["TEACHER"] = taught.teacher
        objects |= {} if taught.adapt is None else {"ADAPT": taught.adapt}
    if phases:
        objects["PHASES"] = [*phases]
    lines = {
        **{name: writer.reference(part) for name, part in objects.items()},
        **{name: repr(value) for name, value in macros.items()},
    }
    return writer.text(
        "What is fine-tuned.", [f"{name} = {value}" for name, value in lines.items()]
    )


def _settings(base: str, gin: Sequence[str]) -> dict[str, Any]:
    """{macro: value} of a family's settings, which further ones replace."""
    return _macros(gin_files.read(gin_files.gin_root() / base)) | _macros("\n".join(gin))


def _macros(text: str) -> dict[str, Any]:
    """The values of gin text and of the settings for fine-tuning that it includes."""
    parsed = gin_text.read(text)
    included = [name for name in parsed.includes if name.startswith("finetune/")]
    values: dict[str, Any] = {}
    for name in included:
        values |= _macros(gin_files.read(gin_files.gin_root() / name))
    return values | {str(name): value for name, value in parsed.values.items()}


def _untried(whole: Whole, usual: Mapping[str, Any], method: Method) -> Iterator[str]:
    """A line about settings that no paper tried; none of a BART's is about texts to write."""
    model = whole.model
    if not method.is_full:
        return
    if model.form is None and model.model_type in ("bart", "led"):
        return
    abstract = nnx.eval_shape(lambda: model.make(rngs=nnx.Rngs(0)))
    yield from tried_settings.outside(abstract, usual, model_type=model.model_type)
