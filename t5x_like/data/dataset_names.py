"""The names of a configuration's data, resolved to texts, tasks and objectives."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

from t5x_like import objectives
from t5x_like.core.buckets import staging, storage
from t5x_like.core.protocols.data import PLAIN_TEXT, Column, Objective, names
from t5x_like.core.spelling import alike
from t5x_like.data import task, user_modules
from t5x_like.data.cache import location
from t5x_like.data.cache.reader import Cache
from t5x_like.data.corpora import registry, sentences
from t5x_like.data.corpora.corpus import Corpus
from t5x_like.data.corpora.user_corpus import TFDS, user_corpus
from t5x_like.data.seqio import registered_tasks
from t5x_like.data.task import Task
from t5x_like.data.task_files import task_records
from t5x_like.data.vocabulary_choice import KnownVocabulary, VocabularyChoice

Files = str | Sequence[str]
ROW = 512
"""The default number of tokens in a row."""


class CorpusMaker(Protocol):
    """A function from the value of CORPUS to a corpus, such as `user_corpus`."""

    def __call__(self, named: Any) -> Corpus: ...


@dataclasses.dataclass(frozen=True)
class Withheld:
    """In place of the names of a corpus: why it may not be read."""

    reason: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataNames:
    """The names of a run's data in its configuration, and methods that resolve them.

    Attributes:
      lengths: the length of each task feature in tokens, end of sequence included; None for the
        objective's own lengths in rows of `ROW` tokens, which `with_lengths` fills in.
      mixture_or_task_name: `<corpus>.<objective>`, a corpus (to be read with `objective`), any task
        or mixture of SeqIO's registry, or a task or mixture that `t5x_like cache` recorded.
      mixture_or_task_module: the module or `.py` file that registers the task or mixture.
      corpus: files (a path or glob, or several), `tfds:<name>`, or one directory that holds a
        cache; where set, it replaces `mixture_or_task_name`. A dict {name: files} is a mixture, of
        which a text may also be a dict of its `files` and of what `read_corpus` takes besides.
        Text that is `Withheld` is an error where it is looked for.
      corpus_exponent: the exponent of the numbers of documents in such a mixture
        (`languages.temper`).
      corpus_shares: {name: share} of the rows of each text of a mixture, numbers above 0 in any
        unit, in place of what the numbers of documents and the exponent give; None for these.
      read_corpus: makes a corpus from `corpus`.
      objective: the objective for a corpus that is named without one: a preset's name, or an
        objective; or {name: objective} of the texts of a mixture.
      find_objective: returns the objective of a preset's name.
      sentences: the language by whose rules plain text is cut into sentences, which are the
        segments at which objectives cut; or "lines". For a mixture also {name: language}.
      vocabulary: the vocabulary of tasks that have none of their own.
      cache_dir: the directory of vocabularies and caches, on a disk or in a bucket.
      workers: the number of processes that tokenise; None for one on each core.
    """

    lengths: Mapping[str, int] | None = None
    mixture_or_task_name: str | None = None
    mixture_or_task_module: str | None = None
    corpus: Files | Mapping[str, Files | Mapping[str, Any]] | Withheld | None = None
    corpus_exponent: float = 1.0
    corpus_shares: Mapping[str, float] | None = None
    read_corpus: CorpusMaker = user_corpus
    objective: Objective | str | Mapping[str, Objective] | None = None
    find_objective: Callable[[str], Objective] = objectives.preset
    sentences: str | Mapping[str, str] = sentences.DEFAULT
    vocabulary: VocabularyChoice | KnownVocabulary = dataclasses.field(
        default_factory=VocabularyChoice
    )
    cache_dir: str | None = None
    workers: int | None = None

    def _check_shares(self, texts: Mapping[str, Any]) -> None:
        shares = self.corpus_shares
        if shares is None or not texts:
            return
        if (
            not isinstance(shares, Mapping)
            or not {*shares} >= {*texts}
            or not all(isinstance(x, int | float) and 0 < x < math.inf for x in shares.values())
        ):
            raise ValueError(
                f"CORPUS_SHARES gives each text of CORPUS ({', '.join(texts)}) a number above 0, "
                f"not {shares!r}"
            )

    def __post_init__(self) -> None:
        lengths = {} if self.lengths is None else self.lengths
        if not isinstance(lengths, Mapping) or not all(
            isinstance(length, int) and length > 0 for length in lengths.values()
        ):
            raise ValueError(
                "TASK_FEATURE_LENGTHS must give a whole number of tokens for each feature, such as "
                f"{{'inputs': 512, 'targets': 114}}, not {lengths!r}"
            )
        sentences.check(self.sentences, self.corpus)
        texts = self.corpus if isinstance(self.corpus, Mapping) else {}
        self._check_shares(texts)
        objectives = self.objective if isinstance(self.objective, Mapping) else {}
        if objectives and {*objectives} != {*texts} and not isinstance(self.corpus, Withheld):
            raise ValueError(
                f"OBJECTIVE names objectives of {', '.join(objectives)}, but CORPUS is a "
                f"mixture of {', '.join(texts) or 'nothing'}: give one to each, or one for all"
            )
        for name, named in texts.items():
            if isinstance(named, Mapping) and "files" not in named:
                raise ValueError(f"CORPUS: the text {name!r} has no 'files', only {[*named]}")

    def of_text(self, name: str) -> Self:
        """The names of one text of a mixture, without the others; it keeps its name."""
        objective, corpus = self.objective, self.corpus
        read: Any = self.read_corpus
        if isinstance(objective, Mapping):
            objective = objective[name]
        if isinstance(corpus, Mapping):
            named, corpus = corpus[name], {name: self._files_of_texts()[name]}
            settings = {**named} if isinstance(named, Mapping) else {}
            settings.pop("files", None)
            read = functools.partial(read, **settings)
        return dataclasses.replace(self, corpus=corpus, objective=objective, read_corpus=read)

    @property
    def files(self) -> Files | Mapping[str, Files] | None:
        """The files of `corpus`, or of each text of a mixture; None where none may be read."""
        if not isinstance(self.corpus, Mapping):
            return None if isinstance(self.corpus, Withheld) else self.corpus
        held_out = {
            name: named.get("validation_files") or []
            for name, named in self.corpus.items()
            if isinstance(named, Mapping)
        }
        return {
            name: [*_listed(files), *_listed(held_out.get(name, []))]
            for name, files in self._files_of_texts().items()
        }

    def _files_of_texts(self) -> dict[str, Files]:
        """The files of each text of a mixture, without those that are held out."""
        assert isinstance(self.corpus, Mapping)
        return {
            name: named["files"] if isinstance(named, Mapping) else named
            for name, named in self.corpus.items()
        }

    @property
    def chosen_objective(self) -> Objective | None:
        """`objective` as an object; None where each text of a mixture has its own.

        Raises:
          ValueError: no preset has this name.
        """
        named = self.objective
        if isinstance(named, Mapping):
            return None
        return self.find_objective(named) if isinstance(named, str) else named

    def reads_objective(self) -> bool:
        """Whether `objective` makes the examples; False where the named task has its own objective.

        Raises:
          ValueError: nothing has this name.
        """
        if isinstance(self.objective, Mapping):
            return True
        if self.is_cache():
            cache = Cache.open(str(self.corpus))
            return self.chosen_objective == self.objective_for(cache)
        if self.mixture_or_task_module:
            user_modules.import_module(self.mixture_or_task_module)
        preset = not self.corpus and "." in (self.mixture_or_task_name or "")
        return not preset and any(
            named_task.corpus is not None and named_task.objective == self.chosen_objective
            for named_task in self.named_tasks() or ()
        )

    def with_lengths(self) -> Self:
        """A copy with feature lengths; missing ones are the objective's, in rows of `ROW` tokens.

        Raises:
          ValueError: nothing has this name.
        """
        if self.lengths is not None:
            return self
        return dataclasses.replace(self, lengths=self.usual_lengths(ROW))

    def is_cache(self) -> bool:
        """Whether `corpus` is the directory of a finished cache."""
        return isinstance(self.corpus, str) and Cache.exists(self.corpus)

    @property
    def root(self) -> Path:
        """The folder of vocabularies and caches; for a bucket, that of their copies."""
        return location.cache_root(self.cache_dir)

    def named_tasks(self) -> tuple[Task, ...] | None:
        """The tasks that the names stand for; None where only a recorded cache can have this name.

        Raises:
          ValueError: nothing is named, or files do not exist.
        """
        if isinstance(self.corpus, Withheld):
            raise ValueError(self.corpus.reason)
        if isinstance(self.corpus, Mapping):
            return tuple(
                dataclasses.replace(self.of_text(name)._files(files, name), name=name)
                for name, files in self._files_of_texts().items()
            )
        if self.corpus:
            return (self._files(self.corpus),)
        name, module = self.mixture_or_task_name, self.mixture_or_task_module
        if not name:
            raise ValueError(
                "nothing to read: set CORPUS (such as 'data/*.txt') or MIXTURE_OR_TASK_NAME (such "
                "as 'stdlib_docs')"
            )
        if registered := registered_tasks.find_tasks(name, module=module):
            return registered
        corpus_name, _, preset = name.partition(".")
        if corpus_name in registry.names():
            corpus = registry.get(corpus_name)
            if preset:
                objective = self.find_objective(preset)
                corpus = corpus.with_columns(objective.reads) or corpus
            else:
                corpus, objective = self._with_objective(corpus)
            language = sentences.language(self.sentences, None)
            named_task = task.of_corpus(corpus, objective, sentences=language)
            return (dataclasses.replace(named_task, name=name),)
        return None

    def _files(self, named: Files, name: str | None = None) -> Task:
        corpus, objective = self._with_objective(self.read_corpus(named))
        known_by: list[Any] = absolute_names(named)
        if any(column.holds != "text" for column in corpus.columns):
            known_by = [known_by, corpus.reading]  # the same files may hold several labels
        if corpus.held_out_names:  # without them, part of these files is held out
            known_by = [known_by, absolute_names(corpus.held_out_names)]
        digest = hashlib.sha256(json.dumps(known_by).encode()).hexdigest()[:8]
        language = sentences.language(self.sentences, name)
        label = f"{corpus.name}-{digest}"
        return task.of_corpus(corpus, objective, label=label, sentences=language)

    def _with_objective(self, corpus: Corpus) -> tuple[Corpus, Objective]:
        """A corpus with the columns that the objective reads, and the objective for its columns."""
        where, chosen = f"corpus {corpus.name!r}", self.chosen_objective
        if chosen is not None and chosen.reads != PLAIN_TEXT:
            other = corpus.with_columns(chosen.reads)
            if other is None and corpus.present:
                needed = ", ".join(f"'{name}': '...'" for name in names(chosen.reads))
                raise ValueError(
                    f"{where} has the columns {', '.join(corpus.present)}, but "
                    f"{type(chosen).__name__} reads {' and '.join(names(chosen.reads))}: say which "
                    f"columns these are with CORPUS_FIELD={{{needed}}}"
                )
            corpus = other or corpus
        advice = f"MIXTURE_OR_TASK_NAME='{corpus.name}.span_corruption' or OBJECTIVE"
        return corpus, self._reading(corpus.columns, where, advice)

    def _reading(self, columns: Sequence[Column], where: str, advice: str) -> Objective:
        """`objective` if it reads these columns; else the supervised one that does."""
        chosen = self.chosen_objective
        if chosen is not None and {*chosen.reads} == {*columns}:
            return chosen
        for name, preset in objectives.presets().items():
            if preset.reads != PLAIN_TEXT and {*preset.reads} <= {*columns}:
                return self.find_objective(name)
        if chosen is None:
            raise ValueError(
                f"{where} is {task.in_words(columns)}: name an objective, as in {advice}"
            )
        task.check_columns(chosen, columns, where)
        return chosen

    def find_tasks(self) -> tuple[Task, ...]:
        """The tasks that the names stand for.

        Raises:
          ValueError: nothing has this name.
        """
        if self.mixture_or_task_module:
            user_modules.import_module(self.mixture_or_task_module)
        tasks = self.named_tasks()
        if tasks is None:
            raise ValueError(self._no_such_name(self.mixture_or_task_name or ""))
        return tasks

    def task_objectives(self) -> list[Objective]:
        """The objective of each named task, found without a cache.

        Raises:
          ValueError: nothing has this name.
        """
        if self.is_cache():
            return [self.objective_for(Cache.open(str(self.corpus)))]
        if self.mixture_or_task_module:
            user_modules.import_module(self.mixture_or_task_module)
        return [named_task.objective for named_task in self.named_tasks() or self.recorded()]

    def usual_lengths(self, tokens: int) -> dict[str, int]:
        """The objective's feature lengths for rows of `tokens` tokens.

        Raises:
          ValueError: nothing has this name.
        """
        return self.task_objectives()[0].lengths(tokens)

    def recorded(self) -> Sequence[Task]:
        """The tasks that `t5x_like cache` recorded under this name."""
        name = self.mixture_or_task_name
        assert name is not None
        file = location.record_file(self.root, name)
        staging.fetch(file)
        if not file.is_file():
            raise ValueError(self._no_such_name(name))
        return task_records.load(file)

    def objective_for(self, cache: Cache) -> Objective:
        """The objective for a cache that is named by its directory."""
        return self._reading(cache.manifest.columns, f"the text of {cache.directory}", "OBJECTIVE")

    def _no_such_name(self, name: str) -> str:
        presets = objectives.presets()
        known = [f"{corpus}.{p}" for corpus in registry.names() for p in presets]
        staging.fetch(self.root / "tasks")
        known += [file.stem for file in (self.root / "tasks").glob("*.json")]
        known += registered_tasks.registered_names()
        # The name of an objective alone most likely lacks its corpus.
        near = [known_name for known_name in known if known_name.partition(".")[2] == name]
        near = near or alike(name, known)
        if not near:
            corpus, dot, preset = name.partition(".")
            meant = alike(preset if dot else corpus, presets, at_most=2)
            near = [
                f"{corpus_name}.{preset}" for corpus_name in registry.names() for preset in meant
            ]
        advice = (
            f"; nearest: {', '.join(near)}" if near else f"; known: {', '.join(known[:10])}, ..."
        )
        return (
            f"no task or mixture {name!r}{advice}. If a module of yours registers it, name it with "
            "--module (MIXTURE_OR_TASK_MODULE)"
        )


def _listed(files: Files) -> list[str]:
    return [files] if isinstance(files, str) else [*files]


def absolute_names(corpus: str | Sequence[str]) -> list[str]:
    """The names of a corpus with absolute paths, so that they mean the same in every folder."""
    return [p if p.startswith(TFDS) else storage.absolute(p) for p in _listed(corpus)]
