"""What can be trained on, before it has a cache: a corpus, or tasks registered with SeqIO."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import gcd, lcm
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t5x_like.data import cache_writer, corpora
from t5x_like.data.corpora import Corpus
from t5x_like.data.sentences import DEFAULT
from t5x_like.protocols import Objective, TokenIds, Vocabulary

if TYPE_CHECKING:
    import seqio


@dataclasses.dataclass(frozen=True)
class CorpusSource:
    """A corpus under one of our objectives, or a text-to-text corpus, which needs none.

    Attributes:
      name: of the task.
      text: names the text in the cache's directory: sources of one text share a cache.
      corpus: the documents.
      objective: None for text-to-text.
      weight: its share of a mixture.
      sentences: what its segments are, as for `cache_writer.write_cache`; None of text-to-text.
      steps: names in `post_cache.STEPS`.
      vocabulary: its own; None, as the run chooses.
    """

    name: str
    text: str
    corpus: Corpus
    objective: Objective | None
    weight: int = 1
    sentences: str | None = DEFAULT

    vocabulary = None

    @property
    def steps(self) -> tuple[str, ...]:
        return steps_of(self.objective)

    def eos(self, vocabulary: Vocabulary) -> Mapping[str, int]:
        """The id to append to each feature that takes one."""
        return appended_eos(self.steps, vocabulary.token_ids)

    def fingerprint(self) -> str:
        """Of the text and how it is read; cheap."""
        return self.corpus.fingerprint()

    def write(self, directory: Path, vocabulary: Vocabulary, **options: Any) -> None:
        """Makes the cache."""
        if self.sentences is not None:
            options["sentences"] = self.sentences
        cache_writer.write_cache(directory, self.corpus, vocabulary, **options)


def steps_of(objective: Objective | None) -> tuple[str, ...]:
    """What runs on an objective's features, or on text-to-text ones (None)."""
    return ("append_eos_after_trim",) if objective is None else objective.steps


def appended_eos(steps: Sequence[str], ids: TokenIds) -> dict[str, int]:
    """The id that `steps` append to each feature; none where they append nothing."""
    if ids.eos is None or not any(step.startswith("append_eos") for step in steps):
        return {}
    return dict.fromkeys(corpora.TEXT_TO_TEXT, ids.eos)


def from_corpus(
    corpus: Corpus, objective: Objective | None, *, text: str = "", sentences: str = DEFAULT
) -> CorpusSource:
    """The source that reads `corpus`; `objective` is for plain text alone.

    Args:
      corpus: the documents.
      objective: makes examples of plain text.
      text: names it in cache directories; the corpus's name by default.
      sentences: what segments of plain text are, as for `cache_writer.write_cache`.

    Raises:
      ValueError: plain text without an objective.
    """
    plain = corpus.features == corpora.TARGETS
    if plain and objective is None:
        raise ValueError(
            f"corpus {corpus.name!r} is plain text: name an objective, as in "
            f"MIXTURE_OR_TASK_NAME='{corpus.name}.span_corruption' or OBJECTIVE"
        )
    return CorpusSource(
        corpus.name,
        text or corpus.name,
        corpus,
        objective if plain else None,
        sentences=sentences if plain else None,
    )


@dataclasses.dataclass(frozen=True)
class SeqioSource:
    """A task of SeqIO's registry, unchanged.

    Attributes:
      task: the registered `seqio.Task`.
      refused: the first step after its cache that training from a cache cannot run.
      module: what to import in a worker process to find it again; None keeps to one process.
    """

    task: seqio.Task
    weight: int
    objective: Objective | None
    steps: tuple[str, ...]
    eos_ids: Mapping[str, int]
    refused: str | None
    module: str | None = None

    sentences = None

    # As of a CorpusSource.
    @property
    def name(self) -> str:
        return self.task.name

    @property
    def text(self) -> str:
        return self.task.name

    @property
    def vocabulary(self) -> Vocabulary:
        """Of its tokens.

        Raises:
          ValueError: not all of them are in the same one.
        """
        import seqio

        from t5x_like.data.cache_tasks import ids_fingerprint
        from t5x_like.data.seqio_vocabulary import from_seqio

        features = self.task.output_features
        # Positions and labels are numbers that pass through; so are the ids of a tokenised text.
        tokens = {
            name: ids_fingerprint(feature.vocabulary)
            for name, feature in features.items()
            if not isinstance(feature, seqio.ContinuousFeature)
            and (
                name in corpora.TEXT_TO_TEXT
                or not isinstance(feature.vocabulary, seqio.PassThroughVocabulary)
            )
        }
        if len(set(tokens.values())) > 1:
            raise ValueError(
                f"task {self.name!r}: {' and '.join(tokens)} are in different vocabularies, and a "
                "model here reads all of its ids in one: give the task's features the same one"
            )
        return from_seqio(features["targets" if "targets" in features else "inputs"].vocabulary)

    def eos(self, vocabulary: Vocabulary) -> Mapping[str, int]:
        del vocabulary
        return self.eos_ids

    def fingerprint(self) -> str:
        from t5x_like.data.cache_tasks import task_fingerprint

        return task_fingerprint(self.task)

    def write(self, directory: Path, vocabulary: Vocabulary, **options: Any) -> None:
        from t5x_like.data.cache_tasks import write_cache_from_task

        write_cache_from_task(directory, self.task, vocabulary, module=self.module, **options)


Source = CorpusSource | SeqioSource


def import_module(module: str) -> str:
    """Imports a module by dotted name, or a `.py` file by path, for what it registers.

    Returns:
      The name by which Python knows it.

    Raises:
      ValueError: there is none.
    """
    path = Path(module)
    if path.suffix != ".py":
        # A console script's path begins with its own folder, where the user's modules are not.
        if (here := str(Path.cwd())) not in sys.path:
            sys.path.insert(0, here)
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            raise ValueError(
                f"MIXTURE_OR_TASK_MODULE={module!r}: {error} (looked in this folder and on "
                "PYTHONPATH; a file's path, ending in .py, works too)"
            ) from error
        return module
    if not path.is_file():
        raise ValueError(f"MIXTURE_OR_TASK_MODULE={module!r}: no such file in {Path.cwd()}")
    if (imported := sys.modules.get(path.stem)) is not None:
        if Path(getattr(imported, "__file__", None) or "").resolve() != path.resolve():
            raise ValueError(
                f"MIXTURE_OR_TASK_MODULE={module!r}: Python has a module {path.stem!r} already; "
                "give the file another name"
            )
        return path.stem
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(sys.modules[path.stem])
    except BaseException:
        del sys.modules[path.stem]
        raise
    return path.stem


def from_seqio(name: str, *, module: str | None = None) -> tuple[SeqioSource, ...] | None:
    """The tasks of a registered SeqIO task or mixture; None where SeqIO knows no such name.

    Rates become integers in exactly their proportion; a task of rate 0 is left out.
    """
    if "seqio" not in sys.modules:
        return None
    import seqio

    from t5x_like.data.seqio_steps import describe

    if name in seqio.MixtureRegistry.names():
        mixture = seqio.MixtureRegistry.get(name)
        rates = {task: mixture.get_rate(task) for task in mixture.tasks}
    elif name in seqio.TaskRegistry.names():
        rates = {seqio.TaskRegistry.get(name): 1}
    else:
        return None
    weights = integer_weights({task.name: rate for task, rate in rates.items()})
    sources = []
    for task in rates:
        if not weights[task.name]:
            continue
        post = describe(task)
        sources.append(
            SeqioSource(
                task,
                weights[task.name],
                post.objective,
                post.steps,
                eos_ids=post.eos,
                refused=post.refused,
                module=module,
            )
        )
    return tuple(sources)


def check_trainable(source: Source, lengths: Mapping[str, int] | None = None) -> None:
    """Raises ValueError where a task cannot be trained on, at all or with these lengths."""
    if lengths is not None and source.objective is not None:
        source.objective.geometry(lengths)
    if isinstance(source, SeqioSource) and source.refused:
        raise ValueError(
            f"task {source.name!r} has a step after its cache that training from a cache cannot "
            f"run: {source.refused}. Put it before seqio.CacheDatasetPlaceholder(), or run "
            f"`t5x_like cache {source.name} --materialize --lengths ...`, which keeps its result"
        )


def seqio_names() -> list[str]:
    """Names in SeqIO's registries, where it is imported."""
    if "seqio" not in sys.modules:
        return []
    import seqio

    return [*seqio.MixtureRegistry.names(), *seqio.TaskRegistry.names()]


def integer_weights(rates: Mapping[str, float]) -> dict[str, int]:
    """The smallest integers in the proportion of `rates`, which are taken to nine digits.

    Raises:
      ValueError: a rate is negative, or all are zero.
    """
    exact = {name: Fraction(rate).limit_denominator(10**9) for name, rate in rates.items()}
    if any(rate < 0 for rate in exact.values()) or not any(exact.values()):
        raise ValueError(f"mixture rates must be positive: {dict(rates)}")
    scale = lcm(*(rate.denominator for rate in exact.values()))
    whole = {name: int(rate * scale) for name, rate in exact.items()}
    divisor = gcd(*whole.values())
    return {name: weight // divisor for name, weight in whole.items()}
