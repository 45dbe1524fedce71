"""What can be trained on, before it has a cache: a corpus, or tasks registered with SeqIO."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from t5x_like.core.protocols import Objective, TokenIds, Vocabulary
from t5x_like.data.cache import writer
from t5x_like.data.corpora import registry
from t5x_like.data.corpora.registry import Corpus
from t5x_like.data.corpora.sentences import DEFAULT
from t5x_like.data.seqio.task_source import SeqioSource


@dataclasses.dataclass(frozen=True)
class CorpusSource:
    """A corpus under one of our objectives, or a text-to-text corpus, which needs none.

    Attributes:
      name: of the task.
      text: names the text in the cache's directory: sources of one text share a cache.
      corpus: the documents.
      objective: None for text-to-text.
      weight: its share of a mixture.
      sentences: what its segments are, as for `writer.write_cache`; None of text-to-text.
      steps: names in `late_steps.STEPS`.
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
        """A digest of the text and how it is read; cheap."""
        return self.corpus.fingerprint()

    def write(self, directory: Path, vocabulary: Vocabulary, **options: Any) -> None:
        """Makes the cache."""
        if self.sentences is not None:
            options["sentences"] = self.sentences
        writer.write_cache(directory, self.corpus, vocabulary, **options)


def steps_of(objective: Objective | None) -> tuple[str, ...]:
    """What runs on an objective's features, or on text-to-text ones (None)."""
    return ("append_eos_after_trim",) if objective is None else objective.steps


def appended_eos(steps: Sequence[str], ids: TokenIds) -> dict[str, int]:
    """The id that `steps` append to each feature; none where they append nothing."""
    if ids.eos is None or not any(step.startswith("append_eos") for step in steps):
        return {}
    return dict.fromkeys(registry.TEXT_TO_TEXT, ids.eos)


def from_corpus(
    corpus: Corpus, objective: Objective | None, *, text: str = "", sentences: str = DEFAULT
) -> CorpusSource:
    """The source that reads `corpus`; `objective` is for plain text alone.

    Args:
      corpus: the documents.
      objective: makes examples of plain text.
      text: names it in cache directories; the corpus's name by default.
      sentences: what segments of plain text are, as for `writer.write_cache`.

    Raises:
      ValueError: plain text without an objective.
    """
    plain = corpus.features == registry.TARGETS
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


Source = CorpusSource | SeqioSource


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
