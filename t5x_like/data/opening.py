"""From what a configuration names to cached tasks that training reads; makes what is missing."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from t5x_like import objectives
from t5x_like.data import cache_location, corpora, languages, sources, task_records
from t5x_like.data.cache import Cache
from t5x_like.data.corpora import Corpus
from t5x_like.data.opened import Opened, check_materialized, check_vocabulary
from t5x_like.data.task_records import TaskRecord
from t5x_like.data.user_corpus import TFDS, user_corpus
from t5x_like.data.vocabulary_choice import (
    Check,
    Given,
    Once,
    TrainingText,
    VocabularyChoice,
    alone,
    no_check,
)
from t5x_like.protocols import Objective, Vocabulary


class CorpusMaker(Protocol):
    """Makes a corpus of what CORPUS names, such as `user_corpus`."""

    def __call__(self, named: Any) -> Corpus: ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Data:
    """What a run reads, as its configuration names it.

    Attributes:
      lengths: tokens of each task feature in an example, end of sequence included.
      mixture_or_task_name: `<corpus>.<objective>`, a corpus (under `objective`), any task or
        mixture of SeqIO's registry, or one that `t5x_like cache` recorded.
      mixture_or_task_module: module or `.py` file that registers it.
      corpus: files (a path or glob, or several), `tfds:<name>`, or one directory that holds a
        cache; where set, it is read and not `mixture_or_task_name`. A dict {name: files} is a
        mixture.
      corpus_exponent: such a mixture's, of numbers of documents (`languages.tempered`).
      read_corpus: makes a corpus of `corpus`.
      objective: for a corpus that is named without one.
      vocabulary: of tasks that have none of their own.
      cache_dir: where vocabularies and caches are kept.
      workers: processes that tokenise; None takes one a core.
    """

    lengths: Mapping[str, int]
    mixture_or_task_name: str | None = None
    mixture_or_task_module: str | None = None
    corpus: str | Sequence[str] | Mapping[str, str | Sequence[str]] | None = None
    corpus_exponent: float = 1.0
    read_corpus: CorpusMaker = user_corpus
    objective: Objective | None = None
    vocabulary: VocabularyChoice | Given = dataclasses.field(default_factory=VocabularyChoice)
    cache_dir: str | None = None
    workers: int | None = None

    def __post_init__(self) -> None:
        lengths = self.lengths
        if not isinstance(lengths, Mapping) or not all(
            isinstance(length, int) and length > 0 for length in lengths.values()
        ):
            raise ValueError(
                "TASK_FEATURE_LENGTHS must give a whole number of tokens for each feature, such as "
                f"{{'inputs': 512, 'targets': 114}}, not {lengths!r}"
            )

    @property
    def root(self) -> Path:
        return cache_location.cache_root(self.cache_dir)

    def open(self, *, once: Once = alone, check: Check = no_check) -> Opened:
        """Opens the caches, having made those that are missing, and the vocabulary.

        Args:
          once: has one process make a thing while the others wait.
          check: of the vocabulary, before text is tokenised with it; of finished caches, of theirs.

        Raises:
          ValueError, OSError: something named does not exist, or does not fit the rest.
        """
        if not (self.mixture_or_task_name or self.corpus):
            raise ValueError(
                "nothing to read: set CORPUS (such as 'data/*.txt') or MIXTURE_OR_TASK_NAME (such "
                "as 'stdlib_docs.span_corruption')"
            )
        if self.mixture_or_task_module:
            sources.import_module(self.mixture_or_task_module)
        if isinstance(self.corpus, str) and Cache.exists(Path(self.corpus)):
            return _checked(self._open_cache(Path(self.corpus)), check)
        found = self._named()
        if found is None or self._is_materialized(found):
            return _checked(self._opened(self._recorded(), None, ()), check)
        for source in found:
            sources.check_trainable(source, self.lengths)
        vocabulary = self.open_vocabulary(found, once=once, check=check)
        check(vocabulary.vocab_size, vocabulary)
        for source in found:
            check_vocabulary(source.name, source.objective, vocabulary.token_ids, counted=False)
        records = [self.make_cache(source, vocabulary, once=once) for source in found]
        if isinstance(self.corpus, Mapping):
            records = self._tempered(records)
        self._record(found, records, once=once)
        return self._opened(records, vocabulary, found)

    def _named(self) -> tuple[sources.Source, ...] | None:
        """What the names stand for; None where only a recorded cache can have this name."""
        if isinstance(self.corpus, Mapping):
            return tuple(
                dataclasses.replace(self._files(files), name=name)
                for name, files in self.corpus.items()
            )
        if self.corpus:
            return (self._files(self.corpus),)
        name = self.mixture_or_task_name
        assert name is not None
        module = self.mixture_or_task_module
        if registered := sources.from_seqio(name, module=module):
            return registered
        corpus_name, _, preset = name.partition(".")
        if corpus_name in corpora.names():
            objective = objectives.preset(preset) if preset else self.objective
            return (
                dataclasses.replace(
                    sources.from_corpus(corpora.get(corpus_name), objective), name=name
                ),
            )
        return None

    def _files(self, named: str | Sequence[str]) -> sources.CorpusSource:
        corpus = self.read_corpus(named)
        digest = hashlib.sha256(json.dumps(_whereabouts(named)).encode()).hexdigest()[:8]
        return sources.from_corpus(corpus, self.objective, text=f"{corpus.name}-{digest}")

    def _tempered(self, records: Sequence[TaskRecord]) -> list[TaskRecord]:
        """The records of a mixture of corpora, each with its weight."""
        opened = {one.name: Cache.open(self.root / one.directory) for one in records}
        documents = {name: one.manifest.splits["train"].documents for name, one in opened.items()}
        weights = languages.tempered(documents, self.corpus_exponent)
        return [dataclasses.replace(one, weight=weights[one.name]) for one in records]

    def find_sources(self) -> tuple[sources.Source, ...]:
        """What the names stand for.

        Raises:
          ValueError: nothing has this name.
        """
        if self.mixture_or_task_module:
            sources.import_module(self.mixture_or_task_module)
        found = self._named()
        if found is None:
            raise ValueError(self._no_such_name(self.mixture_or_task_name or ""))
        return found

    def task_objectives(self) -> list[Objective | None]:
        """The objective of each task named, before anything is made; None for finished features.

        Raises:
          ValueError: nothing has this name.
        """
        if isinstance(self.corpus, str) and Cache.exists(Path(self.corpus)):
            return [self._objective_for(Cache.open(Path(self.corpus)))]
        if self.mixture_or_task_module:
            sources.import_module(self.mixture_or_task_module)
        return [one.objective for one in self._named() or self._recorded()]

    def usual_lengths(self, tokens: int) -> dict[str, int]:
        """Feature lengths that go together in rows of `tokens` tokens: those of the objective.

        Raises:
          ValueError: nothing has this name.
        """
        objective = self.task_objectives()[0]
        if objective is None:
            return dict.fromkeys(corpora.TEXT_TO_TEXT, tokens)
        return objective.lengths(tokens)

    def make_caches(self, *, overwrite: bool = False) -> list[Cache]:
        """Makes the caches of all tasks named, and records the tasks for training without SeqIO.

        Raises:
          ValueError: a task cannot be cached like this, or a complete cache is of another text
            than the task has now.
        """
        found = self.find_sources()
        for source in found:
            sources.check_trainable(source)
        vocabulary = self.open_vocabulary(found)
        records = [self.make_cache(s, vocabulary, overwrite=overwrite) for s in found]
        caches = [
            Cache.open(
                self.root / record.directory,
                corpus_fingerprint=source.fingerprint(),
                vocabulary_fingerprint=vocabulary.fingerprint,
            )
            for record, source in zip(records, found, strict=True)
        ]
        self._record(found, records)
        return caches

    def materialize(self, *, seed: int, epochs: int, overwrite: bool = False) -> list[Cache]:
        """Caches whole tasks, to their very last step, for `lengths`.

        Raises:
          ValueError: not all of the sources are SeqIO's.
        """
        found = self.find_sources()
        for source in found:
            if not isinstance(source, sources.SeqioSource):
                raise ValueError(
                    f"{source.name!r} is no SeqIO task: it trains from its cache as it is"
                )
        from t5x_like.data.cache_tasks import ToTheEnd

        vocabulary = self.open_vocabulary(found)
        whole = ToTheEnd(dict(self.lengths), seed, epochs)
        records = []
        for source in found:
            label = f"{source.name}-" + "-".join(f"{n}{v}" for n, v in self.lengths.items())
            relative = cache_location.cache_directory(label, vocabulary)
            source.write(
                self.root / relative,
                vocabulary,
                workers=self.workers,
                overwrite=overwrite,
                materialize=whole,
            )
            records.append(TaskRecord(source.name, relative, None, (), {}, source.weight))
        self._record(found, records)
        return [Cache.open(self.root / record.directory) for record in records]

    def _record(
        self,
        found: Sequence[sources.Source],
        records: Sequence[TaskRecord],
        *,
        once: Once = alone,
    ) -> None:
        """Lets tasks of SeqIO's train by name where it is not installed."""
        if not all(isinstance(source, sources.SeqioSource) for source in found):
            return
        assert self.mixture_or_task_name is not None
        file = cache_location.record_file(self.root, self.mixture_or_task_name)
        once(
            f"record of {self.mixture_or_task_name}",
            file,
            lambda: task_records.holds(file, records),
            lambda: task_records.save(file, records),
        )

    def open_vocabulary(
        self,
        found: Sequence[sources.Source],
        *,
        once: Once = alone,
        check: Check = no_check,
    ) -> Vocabulary:
        """The one vocabulary of all sources.

        Raises:
          ValueError: they have different ones.
        """
        own = {s.vocabulary.fingerprint: s for s in found if s.vocabulary is not None}
        if len(own) > 1:
            raise ValueError(
                f"the tasks {', '.join(s.name for s in own.values())} have different vocabularies"
            )
        if own:
            (source,) = own.values()
            assert source.vocabulary is not None
            return source.vocabulary
        several = [s.corpus for s in found if isinstance(s, sources.CorpusSource)]
        corpus: TrainingText | None = next(iter(several), None)
        if len(several) > 1:
            corpus = languages.Together(several, self.corpus_exponent)
        return self.vocabulary.open(corpus, self.root, once=once, check=check)

    def make_cache(
        self,
        source: sources.Source,
        vocabulary: Vocabulary,
        *,
        once: Once = alone,
        overwrite: bool = False,
    ) -> TaskRecord:
        """The record of a source whose cache exists afterwards; keeps a complete one."""
        relative = cache_location.cache_directory(source.text, vocabulary)
        directory = self.root / relative

        def write() -> None:
            print(f"caching {source.name} in {directory}", flush=True)
            source.write(directory, vocabulary, workers=self.workers, overwrite=overwrite)

        exists = lambda: Cache.exists(directory) and not overwrite  # noqa: E731
        once(f"cache of {source.name}", directory, exists, write)
        eos = source.eos(vocabulary)
        return TaskRecord(source.name, relative, source.objective, source.steps, eos, source.weight)

    def _is_materialized(self, found: Sequence[sources.Source]) -> bool:
        """A task that cannot be cached as others are was cached whole."""
        refused = any(isinstance(s, sources.SeqioSource) and s.refused for s in found)
        name = self.mixture_or_task_name
        return refused and cache_location.record_file(self.root, name or "").is_file()

    def _recorded(self) -> Sequence[TaskRecord]:
        """A task or mixture known only by what `t5x_like cache` recorded of it."""
        name = self.mixture_or_task_name
        assert name is not None
        file = cache_location.record_file(self.root, name)
        if not file.is_file():
            raise ValueError(self._no_such_name(name))
        return task_records.load(file)

    def _open_cache(self, directory: Path) -> Opened:
        """A cache by its directory, under `objective`; the text need not be there."""
        cache = Cache.open(directory)
        if cache.manifest.seqio_task:
            raise ValueError(
                f"{directory} is the cache of SeqIO task {cache.manifest.corpus!r}, whose later "
                "steps are recorded beside it: set CACHE_DIR to the folder that holds tokens/ and "
                f"tasks/, and MIXTURE_OR_TASK_NAME to '{cache.manifest.corpus}' or its mixture"
            )
        objective = self._objective_for(cache)
        steps = sources.steps_of(objective)
        eos = sources.appended_eos(steps, cache.manifest.token_ids)
        record = TaskRecord(cache.manifest.corpus, str(directory.absolute()), objective, steps, eos)
        return self._opened([record], None, ())

    def _objective_for(self, cache: Cache) -> Objective | None:
        """What makes examples of a cache that is read by its directory."""
        if tuple(cache.manifest.features) != corpora.TARGETS:
            return None
        if self.objective is None:
            raise ValueError(f"{cache.directory} holds plain text: name an objective (OBJECTIVE)")
        return self.objective

    def _opened(
        self,
        records: Sequence[TaskRecord],
        vocabulary: Vocabulary | None,
        found: Sequence[sources.Source],
    ) -> Opened:
        caches = []
        for i, record in enumerate(records):
            cache = Cache.open(
                self.root / record.directory,
                corpus_fingerprint=found[i].fingerprint() if found else None,
                vocabulary_fingerprint=vocabulary.fingerprint if vocabulary else None,
            )
            vocabulary = vocabulary or cache.vocabulary()
            check_materialized(record, cache, self.lengths)
            check_vocabulary(record.name, record.objective, cache.token_ids)
            caches.append(cache)
        assert vocabulary is not None
        return Opened(tuple(records), tuple(caches), vocabulary, dict(self.lengths))

    def _no_such_name(self, name: str) -> str:
        presets = objectives.presets()
        known = [f"{corpus}.{p}" for corpus in corpora.names() for p in presets]
        known += [file.stem for file in (self.root / "tasks").glob("*.json")]
        known += sources.seqio_names()
        near = difflib.get_close_matches(name, known, n=4) or known[:10]
        return (
            f"no task or mixture {name!r}; nearest: {', '.join(near)}. If a module of yours "
            "registers it, name that in MIXTURE_OR_TASK_MODULE"
        )


def _checked(opened: Opened, check: Check) -> Opened:
    check(opened.vocabulary.vocab_size, opened.vocabulary)
    return opened


def _whereabouts(corpus: str | Sequence[str]) -> list[str]:
    """Names of a corpus that mean the same in every folder."""
    several = [corpus] if isinstance(corpus, str) else corpus
    return [p if p.startswith(TFDS) else str(Path(p).expanduser().absolute()) for p in several]
