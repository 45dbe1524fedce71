"""A run that can be trained, made from a recipe, from gin files or from parts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from t5x_like.api import foreign_names
from t5x_like.api.foreign_names import named_here
from t5x_like.config import gin_config, gin_files, settings
from t5x_like.core.abilities import AnswersTasks, can
from t5x_like.core.buckets import staging
from t5x_like.runs import pretraining
from t5x_like.runs.memory.advice import memory_warnings
from t5x_like.runs.program import Programs
from t5x_like.runs.run import Run
from t5x_like.runs.settings import gin_run

if TYPE_CHECKING:
    import optax

    from t5x_like.core.protocols.data import Objective
    from t5x_like.core.protocols.model import Model
    from t5x_like.training.callbacks import Callback, Outcome
    from t5x_like.training.loop import Step


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pretraining:
    """A run that starts, resumes or is extended, depending on its directory.

    Attributes:
      run: its parts, which may also be put together by hand.
      config: its configuration as gin text, which is saved; None: written from the parts.
      notes: lines for the log, such as settings that follow others.
      callbacks: objects that the run calls while it trains (`Callback`).
      programs: programs that it shares with other runs of this process; None to share none.
    """

    run: Run
    config: str | None = None
    notes: Sequence[str] = ()
    callbacks: Sequence[Callback] = ()
    programs: Programs | None = None

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks of its model that have a head each; none where it has not several heads."""
        model: Any = self.run.abstract_model
        return model.tasks if can(model, AnswersTasks) else ()

    @staging.naming_addresses()
    def train(self, *, allow_change: Sequence[str] = ()) -> Outcome:
        """Trains to the end; Ctrl-C saves the step that was reached, and stops.

        Args:
          allow_change: the settings that a resumed run may change: seed, batch_size, data.

        Returns:
          How it ended, and after how many steps.

        Raises:
          ValueError, OSError: the run cannot work; earlier checkpoints are unchanged.
          NonFiniteError: a loss became nan or infinite; earlier checkpoints are good.
        """
        return pretraining.pretrain(self.run, self.config, **self._options(allow_change))

    def steps(self, *, allow_change: Sequence[str] = ()) -> Generator[Step, None, Outcome]:
        """Trains step by step: `for step in run.steps()`. Leaving the loop saves the step.

        Logs, evaluations and checkpoints happen between steps, as in `train`. Arguments and errors
        are those of `train`.
        """
        return pretraining.steps(self.run, self.config, **self._options(allow_change))

    def _options(self, allow_change: Sequence[str]) -> dict[str, Any]:
        return {
            "allow_change": frozenset(allow_change),
            "notes": [*self.notes, *memory_warnings(self.run)],
            "callbacks": self.callbacks,
            "programs": self.programs,
        }


@named_here(foreign_names.TRAINING)
def recipe(
    name: str,
    *,
    corpus: str | Sequence[str] | Mapping[str, str | Sequence[str]] | None = None,
    task: str | None = None,
    sentences: str | None = None,
    module: str | None = None,
    model_dir: str | None = None,
    cache_dir: str | None = None,
    train_steps: int | None = None,
    batch_size: int | None = None,
    learning_rate: float | None = None,
    objective: str | Objective | None = None,
    vocabulary: str | None = None,
    init_from: str | None = None,
    add_tokens: str | None = None,
    exchange_vocabulary: bool | None = None,
    grow: bool | None = None,
    vocab_size: int | None = None,
    seed: int | None = None,
    mesh: Mapping[str, int] | None = None,
    model: Callable[..., Model] | None = None,
    optimizer: optax.GradientTransformation | None = None,
    callbacks: Sequence[Callback] = (),
    gin: Sequence[str] = (),
) -> Pretraining:
    """A published pretraining run, or its small twin, on your own text.

    Args:
      name: a name from `t5x_like recipes`: `bert_base`, `bert-mini`.
      corpus: files to read: a path or glob, several, `tfds:<name>`, or {name: files} as a mixture.
      task: the name of a corpus, task or mixture, in place of `corpus`.
      sentences: the language by whose rules text is cut (en), or `lines`.
      module: the module or `.py` file that registers `task`.
      model_dir: the run's directory; a run that it holds is resumed.
      cache_dir: directory of vocabularies and caches.
      train_steps: all steps of the run. Warm-up and phases keep their shares of it.
      batch_size: the rows of a step, over all devices.
      learning_rate: the peak, in recipes that have one (PEAK_LEARNING_RATE).
      objective: a preset's name, or an objective.
      vocabulary: `bytes`, a file or a directory; None trains one, or takes the one that exists.
      init_from: a run, or a model of Hugging Face (a directory, or its name at the hub).
      add_tokens: a file of tokens, one a line, that the vocabulary of `init_from` gets.
      exchange_vocabulary: whether `vocabulary` takes the place of that of `init_from`.
      grow: whether the recipe's model is larger than that of `init_from`.
      vocab_size: the number of pieces of a vocabulary that is trained.
      seed: the seed of parameters, order, noise and dropout.
      mesh: sizes of the mesh axes: {"data": 4, "tensor": 2}; -1 takes the rest.
      model: replaces the recipe's: `functools.partial(Bert, Config(...))`, called with `rngs`.
      optimizer: replaces the recipe's.
      callbacks: objects that the run calls while it trains.
      gin: further settings as on the command line: `["EVAL_PERIOD=100"]`.

    Raises:
      ConfigError, UnreadError: no such recipe or setting, a bad value, or nothing would read it.
    """
    return _of_recipe(**locals())


def _of_recipe(
    name: str,
    *,
    objective: str | Objective | None,
    callbacks: Sequence[Callback],
    gin: Sequence[str],
    model: Callable[..., Model] | None,
    optimizer: optax.GradientTransformation | None,
    **words: Any,
) -> Pretraining:
    """The run for the arguments of `recipe`."""
    words["objective"] = objective if isinstance(objective, str) else None
    bindings = [*settings.bindings(words), *gin]
    with gin_config.temporary_configuration():
        files = [str(gin_files.find_recipe(name))]
        loaded = _loaded(files, bindings, callbacks=callbacks, keeps_model=model is None)
    return _with_parts(loaded, objective, model=model, optimizer=optimizer)


def _with_parts(
    loaded: Pretraining, objective: Objective | str | None, **parts: Any
) -> Pretraining:
    """The run with those of the parts that are not None, and an objective that is not a name."""
    if objective is not None and not isinstance(objective, str):
        parts["data"] = dataclasses.replace(loaded.run.data, objective=objective)
    replaced = {name: part for name, part in parts.items() if part is not None}
    if not replaced:
        return loaded
    # Gin no longer describes the run, so its parts are written.
    return dataclasses.replace(loaded, run=loaded.run.with_parts(**replaced), config=None)


def from_gin(
    files: Sequence[str],
    bindings: Sequence[str] = (),
    folders: Sequence[str] = (),
    *,
    callbacks: Sequence[Callback] = (),
) -> Pretraining:
    """The run that gin files and then bindings describe; leaves gin configured with it.

    Args:
      files: names of models and files, as `t5x_like train --gin_file` takes them.
      bindings: `NAME=value`, or `module.Thing.parameter=value`.
      folders: searched for files as well.
      callbacks: objects that the run calls while it trains.

    Raises:
      ConfigError: a file, name or value is not valid.
      UnreadError: a setting that nothing would read.
    """
    return _loaded(files, bindings, folders, callbacks=callbacks)


def _loaded(*of_files: Sequence[str], callbacks: Sequence[Callback], **options: Any) -> Pretraining:
    """The run of `gin_run.load`, with these arguments."""
    run, notes = gin_run.load(*of_files, **options)
    return Pretraining(run=run, config=gin_config.config_text(), notes=notes, callbacks=callbacks)
