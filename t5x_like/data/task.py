"""A task: a text and the steps that make examples of it, before its cache is made and after."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from t5x_like.core.protocols import members
from t5x_like.core.protocols.data import (
    PAIRS,
    PLAIN_TEXT,
    Column,
    FeatureSpec,
    Objective,
    TokenIds,
    Vocabulary,
    names,
)
from t5x_like.data.cache import location, writer
from t5x_like.data.cache.reader import Cache
from t5x_like.data.cache.records.metric_names import MetricNames
from t5x_like.data.corpora.corpus import Corpus
from t5x_like.data.corpora.sentences import DEFAULT
from t5x_like.data.samples import packing
from t5x_like.data.samples.samples import Samples, is_carried, make_samples
from t5x_like.data.samples.token_stream import separator
from t5x_like.objectives.parts.geometry import keeps_records
from t5x_like.objectives.supervised.labelled_rows import LabelledRows


class TokenizedText(Protocol):
    """A text that has its own vocabulary and writes its own cache, such as a SeqIO task's.

    Attributes:
      vocabulary: the vocabulary of its tokens.
      refused: a step that training from a cache cannot run, and why; None if there is none.
      needs_lengths: whether its cache is for certain feature lengths.
    """

    @property
    def vocabulary(self) -> Vocabulary: ...

    @property
    def refused(self) -> str | None: ...

    @property
    def needs_lengths(self) -> bool: ...

    def with_lengths(self, lengths: Mapping[str, int]) -> TokenizedText: ...

    def fingerprint(self) -> str: ...

    def training_texts(self) -> Iterator[str]: ...

    def write(self, directory: Path, vocabulary: Vocabulary, **options: Any) -> None: ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """A text, the steps that make examples of it, and its share of a mixture.

    Attributes:
      name: the task's name, from which (with the seed) its order and noise are derived.
      objective: runs on each sample.
      steps: names in `late_steps.STEPS`, run after the objective.
      eos: the id to append to each feature that takes one; None until its vocabulary is known.
      weight: its share of a mixture, an integer relative to those of the other tasks.
      text: the text of its cache; None where only the cache is read.
      label: the name of the text in the cache's name; tasks of one text share a cache.
      sentences: the segments of plain text, as for `writer.write_cache`; None for other texts.
      directory: the directory of its cache, relative to the cache root; "" until it is made.
      cache: its tokens; None until `with_cache`.
      lengths: the maximum number of tokens of each feature; empty until `with_cache`.
      metrics: the names of its author's metrics; None where it has none.
      measures: the names of this package's metrics of its cached examples; SeqIO's authors choose.
    """

    name: str
    objective: Objective
    steps: tuple[str, ...] = ()
    eos: Mapping[str, int] | None = None
    weight: int = 1
    text: Corpus | TokenizedText | None = None
    label: str = ""
    sentences: str | None = None
    directory: str = ""
    cache: Cache | None = None
    lengths: Mapping[str, int] = dataclasses.field(default_factory=dict)
    metrics: MetricNames | None = None
    measures: tuple[str, ...] = ()

    @property
    def corpus(self) -> Corpus | None:
        """The text, where it is a corpus, which any vocabulary can tokenise; None otherwise."""
        return self.text if isinstance(self.text, Corpus) else None

    @property
    def tokenized(self) -> TokenizedText | None:
        """The text, where it has a vocabulary of its own; None otherwise."""
        return None if isinstance(self.text, Corpus) else self.text

    def for_lengths(self, lengths: Mapping[str, int]) -> Task:
        """The task with its text for these feature lengths, where the text depends on them.

        Raises:
          ValueError: the text has other lengths.
        """
        if self.tokenized is None:
            return self
        text = self.tokenized.with_lengths(lengths)
        if not text.needs_lengths:
            return dataclasses.replace(self, text=text)
        label = location.label_for_lengths(f"{self.label}-late", lengths)
        return dataclasses.replace(self, text=text, label=label)

    def check_trainable(self, lengths: Mapping[str, int] | None = None) -> None:
        """Raises ValueError where the task cannot be trained on, or not with these lengths."""
        if lengths is not None:
            self.objective.geometry(lengths)
        if self.tokenized is not None and self.tokenized.refused:
            raise ValueError(
                f"task {self.name!r} has a step that training from a cache cannot run: "
                f"{self.tokenized.refused}. Run `t5x_like cache {self.name} --materialize "
                "--lengths ... --epochs N`, which keeps the examples of N epochs"
            )

    def with_directory(self, vocabulary: Vocabulary) -> Task:
        """The task with the directory of its cache, and with the ids to append."""
        directory = location.cache_directory(self.label, vocabulary, sentences=self.sentences)
        eos = appended_eos(self.steps, vocabulary.token_ids) if self.eos is None else self.eos
        return dataclasses.replace(self, directory=directory, eos=eos)

    def write_cache(self, directory: Path, vocabulary: Vocabulary, **options: Any) -> None:
        """Tokenises the text, with the options of `writer.write_cache`."""
        if self.tokenized is not None:
            self.tokenized.write(directory, vocabulary, **options)
            return
        assert self.corpus is not None
        if self.sentences is not None:
            options["sentences"] = self.sentences
        writer.write_cache(directory, self.corpus, vocabulary, **options)

    def with_cache(self, cache: Cache, lengths: Mapping[str, int]) -> Task:
        """The task with its cache and without its text.

        Raises:
          ValueError: final examples were cached for other lengths, or the vocabulary lacks an id.
        """
        materialized = cache.manifest.materialized
        if materialized is not None and materialized["lengths"] != dict(lengths):
            raise ValueError(
                f"task {self.name!r} was cached for lengths {materialized['lengths']}, not "
                f"{dict(lengths)}: set TASK_FEATURE_LENGTHS to those, or cache it again with the "
                f"new ones (`t5x_like cache {self.name} --lengths ...`, with the module that "
                "registers it, and with --materialize if it was materialized)"
            )
        self.check_vocabulary(cache.token_ids)
        return dataclasses.replace(self, text=None, cache=cache, lengths=dict(lengths))

    def check_vocabulary(self, ids: TokenIds, *, counted: bool = True) -> None:
        """Raises ValueError where a vocabulary lacks what the objective needs.

        Args:
          ids: the ids of the vocabulary.
          counted: whether `ids` are those of a cache, which has counted them.
        """
        needs = self.objective.needs
        missing = [name for name in ids.missing(needs) if counted or name != "counts"]
        if missing:
            raise ValueError(
                f"task {self.name!r} ({type(self.objective).__name__}) needs a vocabulary with "
                f"{', '.join(missing)}, and this one has none; train such a vocabulary with "
                "`t5x_like vocab`, or name one (VOCABULARY or --vocabulary), and cache the text "
                "again with it"
            )

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of its cache."""
        return self._cache.vocabulary

    @property
    def token_ids(self) -> TokenIds:
        """The ids of its cache."""
        return self._cache.token_ids

    @property
    def label_names(self) -> Mapping[str, Sequence[str]]:
        """{column: the names of its classes}, in the order of their numbers."""
        return self._cache.manifest.labels

    @property
    def _cache(self) -> Cache:
        if self.cache is None:
            raise ValueError(f"task {self.name!r} is not opened: it has no cache yet")
        return self.cache

    @property
    def features(self) -> Mapping[str, FeatureSpec]:
        """The features of an example after the last step, with their maximum lengths."""
        return self.objective.features(self.lengths)

    @property
    def rows_multiple(self) -> int:
        """The number whose multiples its rows of a batch are; 0 where no rows are carried."""
        shape = self.objective.geometry(self.lengths)
        return getattr(shape, "rows_multiple", 1) if is_carried(shape) else 0

    def has(self, split: str) -> bool:
        """Whether a split has records."""
        info = self._cache.manifest.splits.get(split)
        return info is not None and info.records > 0

    def tokens(self, split: str = "train") -> int:
        """The number of tokens in a split of its text, over all features that hold tokens."""
        manifest = self._cache.manifest
        sizes = manifest.splits[split].tokens
        return sum(size for name, size in sizes.items() if name not in manifest.shapes)

    def documents(self, split: str = "train") -> int:
        """The number of documents (or examples) in a split of its text."""
        return self._cache.manifest.splits[split].documents

    def samples(
        self, split: str, *, pack: bool = False, rows: int | None = None, later: bool = False
    ) -> Samples:
        """The samples of a split, cut for `lengths`. Samples that need a plan are planned.

        Args:
          split: a split that the task `has`.
          pack: whether to put several samples into a row.
          rows: the rows of a batch, where rows are carried from batch to batch.
          later: whether they are read only later, as for `make_samples`.

        Raises:
          ValueError: the task cannot be packed, or a batch has too few rows for a plan.
        """
        records, shape = self._cache.split(split), self.objective.geometry(self.lengths)
        ids = self.token_ids
        if pack and keeps_records(shape):
            return packing.packed_records(
                records, self.lengths, late_steps=self.steps, eos=self.eos or {}
            )
        if pack and isinstance(self.objective, LabelledRows) and self.objective.packs:
            length = self.objective.packed_tokens(self.lengths)
            return packing.packed_texts(records, shape, length=length)
        if pack:
            return packing.packed_documents(records, self.objective, self.lengths, ids=ids)
        return make_samples(
            shape, records, separator=separator(ids), rows=rows, ids=ids, later=later
        )


def of_corpus(
    corpus: Corpus, objective: Objective, *, label: str = "", sentences: str = DEFAULT
) -> Task:
    """The task that makes examples of `corpus` with `objective`.

    Args:
      corpus: the documents.
      objective: makes examples of the columns that the corpus has.
      label: the name of the text in cache directories; the corpus's name by default.
      sentences: the segments of plain text, as for `writer.write_cache`.

    Raises:
      ValueError: the objective reads other columns.
    """
    check_columns(objective, corpus.columns, f"corpus {corpus.name!r}")
    return Task(
        name=corpus.name,
        objective=objective,
        steps=objective.steps,
        measures=objective.measures,
        text=corpus,
        label=label or corpus.name,
        sentences=sentences if corpus.columns == PLAIN_TEXT else None,
    )


def of_cache(cache: Cache, objective: Objective) -> Task:
    """The task that reads a cache by its directory, without the text."""
    return Task(
        name=cache.manifest.corpus,
        objective=objective,
        steps=objective.steps,
        measures=objective.measures,
        eos=appended_eos(objective.steps, cache.manifest.token_ids),
        directory=str(cache.directory.absolute()),
    )


def check_columns(objective: Objective, columns: Sequence[Column], where: str) -> None:
    """Raises ValueError if an objective does not read the columns of the text in `where`."""
    members.check(objective, Objective)
    if {*objective.reads} != {*columns}:
        raise ValueError(
            f"{where} is {in_words(columns)}, but {type(objective).__name__} reads "
            f"{in_words(objective.reads)}"
        )


def in_words(columns: Sequence[Column]) -> str:
    """The columns of a text in words."""
    if tuple(columns) == PLAIN_TEXT:
        return "plain text"
    return f"rows with {' and '.join(names(columns))}"


def appended_eos(steps: Sequence[str], ids: TokenIds) -> dict[str, int]:
    """The id that `steps` append to each feature; empty where they append nothing."""
    if ids.eos is None or not any(step.startswith("append_eos") for step in steps):
        return {}
    return dict.fromkeys(names(PAIRS), ids.eos)
