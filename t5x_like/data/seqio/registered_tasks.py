"""Tasks registered with SeqIO, as tasks for training."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t5x_like.core.protocols import Vocabulary
from t5x_like.data.corpora import registry
from t5x_like.data.order import integer_weights
from t5x_like.data.task import Task

if TYPE_CHECKING:
    import seqio


@dataclasses.dataclass(frozen=True)
class SeqioText:
    """The `TokenizedText` of a task in SeqIO's registry.

    Attributes:
      task: the registered `seqio.Task`, unchanged.
      refused: the first step after its cache that training from a cache cannot run.
      module: the module that a worker process imports to find the task; None uses one process.
    """

    task: seqio.Task
    refused: str | None = None
    module: str | None = None

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of its tokens.

        Raises:
          ValueError: its features have different vocabularies.
        """
        import seqio

        from t5x_like.data.seqio.task_cache import ids_fingerprint
        from t5x_like.data.seqio.vocabularies import from_seqio

        features = self.task.output_features
        # Positions, labels and the ids of a tokenised text are numbers that pass through.
        tokens = {
            name: ids_fingerprint(feature.vocabulary)
            for name, feature in features.items()
            if not isinstance(feature, seqio.ContinuousFeature)
            and (
                name in registry.TEXT_TO_TEXT
                or not isinstance(feature.vocabulary, seqio.PassThroughVocabulary)
            )
        }
        if len(set(tokens.values())) > 1:
            raise ValueError(
                f"task {self.task.name!r}: {' and '.join(tokens)} are in different vocabularies, "
                "but a model here has one vocabulary: give its features the same one"
            )
        return from_seqio(features["targets" if "targets" in features else "inputs"].vocabulary)

    def training_texts(self) -> Iterator[str]:
        """The text of its training split before it is tokenised, to train a vocabulary on."""
        from t5x_like.data.seqio.task_text import texts

        return texts(self.task)

    def fingerprint(self) -> str:
        """A digest of the task, quick to compute."""
        from t5x_like.data.seqio.task_cache import task_fingerprint

        return task_fingerprint(self.task)

    def write(self, directory: Path, vocabulary: Vocabulary, **options: Any) -> None:
        """Writes the cache of the task."""
        from t5x_like.data.seqio.task_cache import write_cache_from_task

        write_cache_from_task(directory, self.task, vocabulary, module=self.module, **options)


def find_tasks(name: str, *, module: str | None = None) -> tuple[Task, ...] | None:
    """The tasks of a registered SeqIO task or mixture; None where SeqIO knows no such name.

    Rates become integers in exact proportion. A task with rate 0 is left out.
    """
    if "seqio" not in sys.modules:
        return None
    import seqio

    from t5x_like.data.seqio.task_steps import describe

    if name in seqio.MixtureRegistry.names():
        mixture = seqio.MixtureRegistry.get(name)
        rates = {task: mixture.get_rate(task) for task in mixture.tasks}
    elif name in seqio.TaskRegistry.names():
        rates = {seqio.TaskRegistry.get(name): 1}
    else:
        return None
    weights = integer_weights({task.name: rate for task, rate in rates.items()})
    tasks = []
    for task in rates:
        if not weights[task.name]:
            continue
        post = describe(task)
        tasks.append(
            Task(
                name=task.name,
                objective=post.objective,
                steps=post.steps,
                eos=post.eos,
                weight=weights[task.name],
                text=SeqioText(task, post.refused, module),
                label=task.name,
            )
        )
    return tuple(tasks)


def registered_names() -> list[str]:
    """The names in SeqIO's registries; empty where SeqIO is not imported."""
    if "seqio" not in sys.modules:
        return []
    import seqio

    return [*seqio.MixtureRegistry.names(), *seqio.TaskRegistry.names()]
