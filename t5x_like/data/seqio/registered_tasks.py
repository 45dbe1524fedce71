"""Tasks registered with SeqIO, as tasks for training."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t5x_like.core.protocols.data import PAIRS, Vocabulary, names
from t5x_like.data.corpora.rates import integer_weights
from t5x_like.data.task import Task

if TYPE_CHECKING:
    import seqio

    from t5x_like.data.seqio.task_steps import PostCache


@dataclasses.dataclass(frozen=True)
class SeqioText:
    """The `TokenizedText` of a task in SeqIO's registry.

    Attributes:
      task: the registered `seqio.Task`, unchanged.
      steps: what its steps are here.
      module: the module that a worker process imports to find the task; None uses one process.
      lengths: the feature lengths, where a step that runs for the cache depends on them.
    """

    task: seqio.Task
    steps: PostCache
    module: str | None = None
    lengths: Mapping[str, int] | None = None

    @property
    def needs_lengths(self) -> bool:
        """Whether its cache is for certain feature lengths."""
        return self.steps.needs_lengths

    def with_lengths(self, lengths: Mapping[str, int]) -> SeqioText:
        """The same for these feature lengths.

        Raises:
          ValueError: gin gives one of its steps another length of inputs.
        """
        bound = self.steps.inputs_length
        if bound not in (None, lengths.get("inputs")):
            raise ValueError(
                f"task {self.task.name!r}: gin binds random_spans_helper.inputs_length={bound}, "
                f"but the feature lengths are {dict(lengths)}: give both the same length of inputs"
            )
        return dataclasses.replace(self, lengths=lengths) if self.needs_lengths else self

    @functools.cached_property
    def refused(self) -> str | None:
        """The first step that training from a cache cannot run, and why; None if there is none.

        A step that needs lengths is judged once they are known.
        """
        from t5x_like.data.seqio import task_cache, task_steps

        unknown = not self.steps.late or (self.needs_lengths and self.lengths is None)
        if self.steps.refused or unknown:
            return self.steps.refused
        drawing = task_cache.drawing_step(self.task, self.lengths)
        return drawing and f"{drawing}, {task_steps.DRAWS}"

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of its tokens.

        Raises:
          ValueError: its features have different vocabularies.
        """
        import seqio

        from t5x_like.data.seqio.task_cache import ids_fingerprint
        from t5x_like.data.seqio.vocabularies import from_seqio

        features, texts = self.task.output_features, names(PAIRS)
        # Positions, labels and the ids of a tokenised text are numbers that pass through.
        tokens = {
            name: ids_fingerprint(feature.vocabulary)
            for name, feature in features.items()
            if not isinstance(feature, seqio.ContinuousFeature)
            and (name in texts or not isinstance(feature.vocabulary, seqio.PassThroughVocabulary))
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

        return task_fingerprint(self.task, self.lengths)

    def write(self, directory: Path, vocabulary: Vocabulary, **options: Any) -> None:
        """Writes the cache of the task, and says which of its later steps run for it."""
        from t5x_like.data.seqio.task_cache import write_cache_from_task

        if "materialize" not in options and (self.lengths or self.task.supports_caching):
            self._say_late_steps()
        write_cache_from_task(
            directory,
            self.task,
            vocabulary,
            module=self.module,
            lengths=self.lengths,
            **options,
        )

    def _say_late_steps(self) -> None:
        from t5x_like.data.seqio.random_steps import DRAW_ONCE

        for step in self.steps.late:
            lengths = f", for lengths {dict(self.lengths)}" if self.lengths else ""
            once = ", with the same draws in every epoch" if step in DRAW_ONCE else ""
            print(f"  step {step} runs now{lengths}{once}", flush=True)


def find_tasks(name: str, *, module: str | None = None) -> tuple[Task, ...] | None:
    """The tasks of a registered SeqIO task or mixture; None where SeqIO knows no such name.

    Rates become integers in exact proportion. A task with rate 0 is left out of a mixture, and so
    is one with neither of the splits 'train' and 'validation'.
    """
    if "seqio" not in sys.modules:
        return None
    import seqio

    from t5x_like.data.seqio import task_metrics
    from t5x_like.data.seqio.task_steps import describe

    if name in seqio.MixtureRegistry.names():
        mixture = seqio.MixtureRegistry.get(name)
        read = [task for task in mixture.tasks if {"train", "validation"} & {*task.splits}]
        # SeqIO asks for no rate of a task that is only evaluated; it may have none.
        rates = {
            task: mixture.get_rate(task) if "train" in task.splits else 1
            for task in read or mixture.tasks
        }
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
                text=SeqioText(task, post, module),
                label=task.name,
                metrics=task_metrics.names(task),
            )
        )
    return tuple(tasks)


def registered_task(name: str) -> seqio.Task | None:
    """The task with this name in SeqIO's registry; None where there is none."""
    if "seqio" not in sys.modules:
        return None
    import seqio

    return seqio.TaskRegistry.get(name) if name in seqio.TaskRegistry.names() else None


def registered_names() -> list[str]:
    """The names in SeqIO's registries; empty where SeqIO is not imported."""
    if "seqio" not in sys.modules:
        return []
    import seqio

    return [*seqio.MixtureRegistry.names(), *seqio.TaskRegistry.names()]
