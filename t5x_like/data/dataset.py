"""The cached tasks that a configuration names; missing vocabularies and caches are made."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from t5x_like.core.buckets import sending, staging
from t5x_like.core.protocols.data import Vocabulary
from t5x_like.data import task, user_modules
from t5x_like.data.cache import location
from t5x_like.data.cache.format import MANIFEST
from t5x_like.data.cache.reader import Cache
from t5x_like.data.corpora import languages
from t5x_like.data.corpora.rates import integer_weights
from t5x_like.data.dataset_names import DataNames
from t5x_like.data.seqio import registered_tasks
from t5x_like.data.task import Task
from t5x_like.data.task_files import evaluation_files, task_records
from t5x_like.data.vocabulary_choice import (
    Check,
    Once,
    TrainingText,
    alone,
    no_check,
)
from t5x_like.objectives.supervised.text_to_text import TextToText


@dataclasses.dataclass(frozen=True, kw_only=True)
class Data(DataNames):
    """The names of a run's data, and methods that open the data."""

    def open(self, *, once: Once = alone, check: Check = no_check) -> tuple[Task, ...]:
        """The tasks of a run, each with its cache. A missing vocabulary or cache is made.

        Args:
          once: lets one process make a file while the others wait.
          check: checks the vocabulary before text is tokenised with it, or the vocabulary of a
            finished cache.

        Raises:
          ValueError, OSError: a named thing does not exist, or does not fit the rest.
        """
        if self.lengths is None:
            return self.with_lengths().open(once=once, check=check)
        if self.mixture_or_task_module:
            user_modules.import_module(self.mixture_or_task_module)
        if self.is_cache():
            return self._open_tasks([self._named_cache()], check=check)
        named = self.named_tasks()
        texts = self.corpus if isinstance(self.corpus, Mapping) else {}
        if more := {*(self.corpus_shares or ())} - {*texts}:
            raise ValueError(f"CORPUS_SHARES has {', '.join(sorted(more))}, and CORPUS does not")
        sized = named and [unsized.for_lengths(self.lengths) for unsized in named]
        if sized is None or self._is_materialized(sized):
            return self._open_tasks(self.recorded(), check=check)
        for named_task in sized:
            named_task.check_trainable(self.lengths)
        vocabulary = self.open_vocabulary(sized, once=once, check=check)
        check(vocabulary.vocab_size, vocabulary)
        for named_task in sized:
            named_task.check_vocabulary(vocabulary.token_ids, counted=False)
        tasks = [self.make_cache(uncached, vocabulary, once=once) for uncached in sized]
        if isinstance(self.corpus, Mapping):
            tasks = self._with_weights(tasks)
        self._record(tasks, once=once)
        return self._open_tasks(tasks, vocabulary)

    def _with_weights(self, tasks: Sequence[Task]) -> list[Task]:
        """The tasks of a mixture of corpora, each with its weight."""
        opened = {
            opened_task.name: Cache.open(self.root / opened_task.directory) for opened_task in tasks
        }
        documents = {
            name: cache.manifest.splits["train"].documents for name, cache in opened.items()
        }
        weights = (
            languages.temper(documents, self.corpus_exponent)
            if self.corpus_shares is None
            else integer_weights({name: self.corpus_shares[name] for name in documents})
        )
        return [
            dataclasses.replace(opened_task, weight=weights[opened_task.name])
            for opened_task in tasks
        ]

    def make_caches(self, *, overwrite: bool = False) -> list[Cache]:
        """Makes the caches of all named tasks, and records the tasks for training without SeqIO.

        Raises:
          ValueError: a task cannot be cached in this way, or not without `lengths`; or its text has
            changed since its cache was completed.
        """
        task_sequence = self.find_tasks()
        if self.lengths:
            task_sequence = tuple(unsized.for_lengths(self.lengths) for unsized in task_sequence)
        for named in task_sequence:
            named.check_trainable()
            if named.tokenized is not None and named.tokenized.needs_lengths and not self.lengths:
                raise ValueError(
                    f"task {named.name!r} has a step after its cache point that depends on feature "
                    "lengths, so its cache is for certain lengths: add them, as in --lengths "
                    "inputs=512,targets=114, or let `t5x_like train` make the cache"
                )
        vocabulary = self.open_vocabulary(task_sequence)
        tasks = [
            self.make_cache(uncached, vocabulary, overwrite=overwrite) for uncached in task_sequence
        ]
        caches = [self._cache(cached, vocabulary) for cached in tasks]
        self._record(tasks)
        return caches

    def materialize(self, *, seed: int, epochs: int, overwrite: bool = False) -> list[Cache]:
        """Caches the final examples of tasks, after their last step, for `lengths`.

        Raises:
          ValueError: a task is not SeqIO's.
        """
        named = self.find_tasks()
        for named_task in named:
            if named_task.tokenized is None:
                raise ValueError(
                    f"{named_task.name!r} is not a SeqIO task: it trains from its cache as it is"
                )
        from t5x_like.data.seqio.task_cache import ToTheEnd

        vocabulary = self.open_vocabulary(named)
        lengths = dict(self.lengths or {})
        options = {"overwrite": overwrite, "materialize": ToTheEnd(lengths, seed, epochs)}
        tasks = []
        for named_task in named:
            label = location.label_for_lengths(named_task.name, lengths)
            whole = dataclasses.replace(
                named_task, objective=TextToText(), steps=(), eos={}, label=label
            )
            tasks.append(whole.with_directory(vocabulary))
            directory = self.root / tasks[-1].directory
            self._write(whole, directory, vocabulary, **options)
        self._record(tasks)
        return [Cache.open(self.root / cached.directory) for cached in tasks]

    def _record(self, tasks: Sequence[Task], *, once: Once = alone) -> None:
        """Records SeqIO tasks, so that they train by name where SeqIO is not installed."""
        if any(cached.tokenized is None for cached in tasks):
            return
        assert self.mixture_or_task_name is not None
        file = location.record_file(self.root, self.mixture_or_task_name)
        location.check_place(self.root, file)

        def exists() -> bool:
            staging.fetch(file)
            return task_records.holds(file, tasks)

        def make() -> None:
            with sending.to_bucket(file):
                task_records.save(file, tasks)

        once(f"record of {self.mixture_or_task_name}", file, exists, make)

    def write_evaluation_files(self) -> list[Path]:
        """The files of evaluation examples of all held-out splits of named tasks with metrics.

        With them, the metrics are computed where SeqIO is not installed.
        """
        named = self.find_tasks()
        vocabulary = self.open_vocabulary(named)
        files = []
        for named_task in named:
            registered = registered_tasks.registered_task(named_task.name)
            if named_task.metrics is not None and registered is not None:
                splits = [split for split in registered.splits if split != "train"]
                files += [
                    self.evaluation_file(named_task.name, split, vocabulary=vocabulary)
                    for split in splits
                ]
        return files

    def evaluation_file(
        self, name: str, split: str, *, vocabulary: Vocabulary, once: Once = alone
    ) -> Path:
        """The file of a SeqIO task's evaluation examples for `lengths`.

        Where SeqIO has the task, the file is made, unless there is one of the same task.

        Raises:
          ValueError: the task has no such split.
          NoExamplesError: there is no file, and SeqIO does not have the task.
        """
        lengths = self.lengths or {}
        file = location.evaluation_file(
            self.root, name, vocabulary=vocabulary.fingerprint, split=split, lengths=lengths
        )
        registered = registered_tasks.registered_task(name)
        if registered is not None:
            from t5x_like.data.seqio import evaluation_examples

            digest = evaluation_examples.fingerprint(registered, split)

            def exists() -> bool:
                staging.fetch(file)
                return evaluation_files.fingerprint_of(file) == digest

            def make() -> None:
                location.check_place(self.root, file)
                with sending.to_bucket(file):
                    evaluation_examples.write(file, registered, split=split, lengths=lengths)

            once(f"evaluation examples of {name} {split}", file, exists, make)
        staging.fetch(file)
        if registered is None and not file.is_file():
            sizes = ",".join(f"{feature}={length}" for feature, length in lengths.items())
            raise evaluation_files.NoExamplesError(
                f"there are no evaluation examples of task {name!r}, split {split!r}, for lengths "
                f"{dict(lengths)}: {file} is missing. Where SeqIO is installed, `t5x_like cache "
                f"{name} --module M --lengths {sizes}` makes it; or name the module of the task "
                "with --module"
            )
        return file

    def open_vocabulary(
        self, found: Sequence[Task], *, once: Once = alone, check: Check = no_check
    ) -> Vocabulary:
        """The vocabulary that all tasks share.

        Raises:
          ValueError: the tasks have different vocabularies.
        """
        named = {
            named_task.name: named_task.tokenized.vocabulary
            for named_task in found
            if named_task.tokenized is not None
        }
        fingerprints = {vocabulary.fingerprint: vocabulary for vocabulary in named.values()}
        if len(fingerprints) > 1:
            raise ValueError(f"the tasks {', '.join(named)} have different vocabularies")
        if fingerprints:
            return next(iter(fingerprints.values()))
        corpora = [named_task.corpus for named_task in found if named_task.corpus is not None]
        text: TrainingText | None = next(iter(corpora), None)
        if len(corpora) > 1:
            text = languages.Together(corpora, self.corpus_exponent)
        return self.vocabulary.open(text, self.root, once=once, check=check)

    def make_cache(
        self, one: Task, vocabulary: Vocabulary, *, once: Once = alone, overwrite: bool = False
    ) -> Task:
        """The task with its cache, which is made unless it is complete."""
        one = one.with_directory(vocabulary)
        directory = self.root / one.directory

        def write() -> None:
            print(f"caching {one.name} in {staging.known_as(directory)}", flush=True)
            self._write(one, directory, vocabulary, overwrite=overwrite)

        exists = lambda: Cache.exists(directory) and not overwrite  # noqa: E731
        once(f"cache of {one.name}", directory, exists, write)
        return one

    def _write(
        self, named_task: Task, directory: Path, vocabulary: Vocabulary, **options: Any
    ) -> None:
        """Writes a cache; one in a bucket goes on with the shards that are there."""
        location.check_place(self.root, directory)
        if not options.get("overwrite"):
            staging.fetch(directory)
        with sending.to_bucket(directory, last=[MANIFEST]):
            named_task.write_cache(directory, vocabulary, workers=self.workers, **options)

    def _is_materialized(self, named: Sequence[Task]) -> bool:
        """Whether the tasks were materialised, because training cannot run one of their steps."""
        record = location.record_file(self.root, self.mixture_or_task_name or "")
        staging.fetch(record)
        return record.is_file() and any(
            named_task.tokenized is not None and named_task.tokenized.refused is not None
            for named_task in named
        )

    def _named_cache(self) -> Task:
        """The task that reads a cache, named by its directory, with `objective`."""
        cache = Cache.open(str(self.corpus))
        if cache.manifest.seqio_task:
            raise ValueError(
                f"{cache.directory} is the cache of the SeqIO task {cache.manifest.corpus!r}, "
                "whose later steps are recorded beside it: set CACHE_DIR to the folder that holds "
                f"tokens/ and tasks/, and MIXTURE_OR_TASK_NAME to '{cache.manifest.corpus}' or its "
                "mixture"
            )
        return task.of_cache(cache, self.objective_for(cache))

    def _cache(self, cached: Task, vocabulary: Vocabulary | None) -> Cache:
        # Plans are written into it.
        directory = self.root / cached.directory
        if not Path(cached.directory).is_absolute():
            location.check_place(self.root, directory)
        return Cache.open(
            directory,
            corpus_fingerprint=None if cached.text is None else cached.text.fingerprint(),
            vocabulary_fingerprint=None if vocabulary is None else vocabulary.fingerprint,
        )

    def _open_tasks(
        self,
        tasks: Sequence[Task],
        vocabulary: Vocabulary | None = None,
        *,
        check: Check = no_check,
    ) -> tuple[Task, ...]:
        opened = []
        for cached in tasks:
            cache = self._cache(cached, vocabulary)
            vocabulary = vocabulary or cache.vocabulary
            opened.append(cached.with_cache(cache, self.lengths or {}))
        assert vocabulary is not None
        check(vocabulary.vocab_size, vocabulary)
        return tuple(opened)
