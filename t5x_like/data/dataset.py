"""From what a configuration names to cached tasks that training reads; makes what is missing."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from t5x_like.core.protocols import Vocabulary
from t5x_like.data import sources, user_modules
from t5x_like.data.cache import location, task_records
from t5x_like.data.cache.reader import Cache
from t5x_like.data.cache.task_records import TaskRecord
from t5x_like.data.cached_tasks import CachedTasks, check_materialized, check_vocabulary
from t5x_like.data.corpora import languages
from t5x_like.data.dataset_names import DataNames
from t5x_like.data.seqio import task_source
from t5x_like.data.vocabulary_choice import (
    Check,
    Once,
    TrainingText,
    alone,
    no_check,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Data(DataNames):
    """What a run reads; opens it."""

    def open(self, *, once: Once = alone, check: Check = no_check) -> CachedTasks:
        """Opens the caches, having made those that are missing, and the vocabulary.

        Args:
          once: has one process make a thing while the others wait.
          check: of the vocabulary, before text is tokenised with it; of finished caches, of theirs.

        Raises:
          ValueError, OSError: something named does not exist, or does not fit the rest.
        """
        if self.lengths is None:
            return self.with_lengths().open(once=once, check=check)
        if self.mixture_or_task_module:
            user_modules.import_module(self.mixture_or_task_module)
        if self.is_cache():
            return _checked(self._open_cache(Path(str(self.corpus))), check)
        found = self.named_sources()
        if found is None or self._is_materialized(found):
            return _checked(self._opened(self.recorded(), None, ()), check)
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

    def _tempered(self, records: Sequence[TaskRecord]) -> list[TaskRecord]:
        """The records of a mixture of corpora, each with its weight."""
        opened = {one.name: Cache.open(self.root / one.directory) for one in records}
        documents = {name: one.manifest.splits["train"].documents for name, one in opened.items()}
        weights = languages.tempered(documents, self.corpus_exponent)
        return [dataclasses.replace(one, weight=weights[one.name]) for one in records]

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
            if not isinstance(source, task_source.SeqioSource):
                raise ValueError(
                    f"{source.name!r} is no SeqIO task: it trains from its cache as it is"
                )
        from t5x_like.data.seqio.task_cache import ToTheEnd

        vocabulary = self.open_vocabulary(found)
        lengths = dict(self.lengths or {})
        whole = ToTheEnd(lengths, seed, epochs)
        records = []
        for source in found:
            label = f"{source.name}-" + "-".join(f"{n}{v}" for n, v in lengths.items())
            relative = location.cache_directory(label, vocabulary)
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
        if not all(isinstance(source, task_source.SeqioSource) for source in found):
            return
        assert self.mixture_or_task_name is not None
        file = location.record_file(self.root, self.mixture_or_task_name)
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
        relative = location.cache_directory(source.text, vocabulary, sentences=source.sentences)
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
        refused = any(isinstance(s, task_source.SeqioSource) and s.refused for s in found)
        name = self.mixture_or_task_name
        return refused and location.record_file(self.root, name or "").is_file()

    def _open_cache(self, directory: Path) -> CachedTasks:
        """A cache by its directory, under `objective`; the text need not be there."""
        cache = Cache.open(directory)
        if cache.manifest.seqio_task:
            raise ValueError(
                f"{directory} is the cache of SeqIO task {cache.manifest.corpus!r}, whose later "
                "steps are recorded beside it: set CACHE_DIR to the folder that holds tokens/ and "
                f"tasks/, and MIXTURE_OR_TASK_NAME to '{cache.manifest.corpus}' or its mixture"
            )
        objective = self.objective_for(cache)
        steps = sources.steps_of(objective)
        eos = sources.appended_eos(steps, cache.manifest.token_ids)
        record = TaskRecord(cache.manifest.corpus, str(directory.absolute()), objective, steps, eos)
        return self._opened([record], None, ())

    def _opened(
        self,
        records: Sequence[TaskRecord],
        vocabulary: Vocabulary | None,
        found: Sequence[sources.Source],
    ) -> CachedTasks:
        lengths = dict(self.lengths or {})
        caches = []
        for i, record in enumerate(records):
            cache = Cache.open(
                self.root / record.directory,
                corpus_fingerprint=found[i].fingerprint() if found else None,
                vocabulary_fingerprint=vocabulary.fingerprint if vocabulary else None,
            )
            vocabulary = vocabulary or cache.vocabulary()
            check_materialized(record, cache, lengths)
            check_vocabulary(record.name, record.objective, cache.token_ids)
            caches.append(cache)
        assert vocabulary is not None
        return CachedTasks(tuple(records), tuple(caches), vocabulary, lengths)


def _checked(opened: CachedTasks, check: Check) -> CachedTasks:
    check(opened.vocabulary.vocab_size, opened.vocabulary)
    return opened
