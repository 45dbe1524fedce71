"""A writer of a corpus's cache by workers on many machines, who share only a folder.

They survey all files; then this process knows which documents make which shard; then they read the
files again, tokenise and write the shards; and this process completes the cache.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

from t5x_like.core.buckets import staging, storage
from t5x_like.core.protocols.data import Vocabulary
from t5x_like.data.cache import writer
from t5x_like.data.cache.beam import survey
from t5x_like.data.cache.beam.shared_folder import WORK, SharedFolder
from t5x_like.data.cache.beam.steps import (
    ERRORS,
    VOCABULARY,
    Read,
    ReadFile,
    Shards,
    SurveyFile,
    Write,
    WriteShard,
    survey_name,
)
from t5x_like.data.cache.beam.survey import Division, Survey
from t5x_like.data.cache.format import MANIFEST, CacheError, Manifest, shard_name
from t5x_like.data.cache.lock import sole_writer
from t5x_like.data.cache.shards import SIDECARS, ShardPlan, finalise
from t5x_like.data.corpora import matching_files
from t5x_like.data.corpora.corpus import Corpus, NothingHeldOutError
from t5x_like.data.corpora.sentences import DEFAULT
from t5x_like.data.corpora.text_files import TextFiles

_AT_ONCE = 16
"""The number of small files to read or remove at once."""


class Workers(Protocol):
    """Workers that do steps on several machines (Beam). A step may be done several times."""

    @property
    def name(self) -> str:
        """Its name, for messages."""

    def each(self, title: str, elements: Sequence[Any], step: Callable[[Any], None]) -> None:
        """Does a step for each element.

        Raises:
          CacheError: a step failed.
        """

    def grouped(self, title: str, elements: Sequence[Any], *, read: Read, write: Write) -> None:
        """Reads each element, groups the results by their keys, and writes each group.

        Raises:
          CacheError: a step failed.
        """


def files_of(corpus: Corpus | None, name: str) -> TextFiles:
    """The corpus, which must be one of files.

    Raises:
      ValueError: it is not, so that it cannot be divided among machines.
    """
    # A subclass may read its files in another way.
    if isinstance(corpus, TextFiles) and type(corpus).read is TextFiles.read:
        return corpus
    raise ValueError(
        f"{name!r} is not text in files, which --beam divides among its workers: cache it without "
        "--beam, or write its text to files and name them with --corpus. SeqIO's own "
        "`seqio_cache_tasks` caches a SeqIO task on Beam, and `t5x_like cache` reads such a cache"
    )


def write_cache(
    directory: Path | str,
    corpus: TextFiles,
    vocabulary: Vocabulary,
    *,
    workers: Workers,
    sentences: str = DEFAULT,
    overwrite: bool = False,
) -> Manifest:
    """Writes the cache that `writer.write_cache` writes, byte by byte, on many machines.

    A killed writer resumes: shards whose text has not changed are kept.

    Args:
      directory: the directory of the cache, which the machines share; or the local place of one in
        a bucket (`core.buckets.staging`).
      corpus: files that all machines can read.
      vocabulary: the vocabulary that tokenises them.
      workers: what spreads the work.
      sentences: as for `writer.write_cache`.
      overwrite: as for `writer.write_cache`.

    Raises:
      CacheError: as for `writer.write_cache`; or the workers failed, or do not share the directory.
      CorpusError: a file cannot be read.
    """
    directory = Path(directory).absolute()
    manifest = writer.initial_manifest(corpus, vocabulary, sentences)
    with sole_writer(directory):
        if complete := writer.keep_or_clear(directory, manifest, overwrite=overwrite):
            return complete
        folder = SharedFolder(staging.address(directory) or str(directory))
        folder.remove(MANIFEST)
        folder.remove(WORK)
        manifest = dataclasses.replace(manifest, labels=corpus.label_names)
        plan = writer.shard_plan(directory, manifest)
        launch = _Launch(folder, corpus, workers)
        division = launch.survey()
        launch.write(division, plan, vocabulary, sentences=sentences)
        skipped = {
            split: report.skipped
            for splits, report in zip(corpus.readings, division.reports, strict=True)
            for split in splits
        }
        with _finishing(folder, plan, shards=division.shards) as here:
            written = finalise(here, manifest, vocabulary, shards=division.shards, skipped=skipped)
        writer.warn_of_share(corpus, written)
        return written


class _Launch:
    """The work on a corpus that is left to workers."""

    def __init__(self, folder: SharedFolder, corpus: TextFiles, workers: Workers) -> None:
        self._folder = folder
        self._corpus = corpus
        self._workers = workers
        self._readings = tuple(survey.readings(corpus, block=writer.BLOCK_BYTES))

    def survey(self) -> Division:
        """The division of the corpus into shards."""
        files = survey.sources(self._corpus)
        size = sum(matching_files.size(source.file) for source in files)
        self._say(f"reading {len(files):,} files, {size / 1e6:,.1f} MB, to divide them into shards")
        step = SurveyFile(self._folder, self._readings)
        self._workers.each("survey", files, step)
        division = survey.divide(files, self._surveys(len(files)), self._readings)
        for splits, report in zip(self._corpus.readings, division.reports, strict=True):
            nonempty = [split for split in splits if division.shards[split]]
            try:
                self._corpus.check_found(nonempty, splits, report=report)
            except NothingHeldOutError as error:
                print(writer.continuing(error), file=sys.stderr)
            writer.warn_of_skipped(self._corpus, splits, report)
        writer.warn_of_unread(self._corpus)
        return division

    def _surveys(self, count: int) -> Iterator[Survey]:
        for number in range(count):
            try:
                data = self._folder.read(survey_name(number))
            except FileNotFoundError:
                raise CacheError(
                    f"the workers of {self._workers.name} wrote nothing to {self._folder.place} "
                    "that this machine sees: name a folder on a disk that all of them share, or in "
                    "a bucket, with --cache_dir"
                ) from None
            yield Survey.from_bytes(data)

    def write(
        self, division: Division, plan: ShardPlan, vocabulary: Vocabulary, *, sentences: str
    ) -> None:
        """Writes all shards that are not finished."""
        documents = sum(report.documents for report in division.reports)
        earlier = sum(name.endswith(f".arrayrecord{SIDECARS[-1]}") for name in self._folder.names())
        note = f"; {earlier:,} are there, and are kept if their text is the same" if earlier else ""
        self._say(
            f"writing {documents:,} documents to {sum(division.shards.values()):,} shards{note}"
        )
        self._send(vocabulary)
        shards = Shards(self._folder, plan, division.ends, writer.BLOCK_BYTES)
        self._workers.grouped(
            "shards",
            division.stretches,
            read=ReadFile(shards, self._readings),
            write=WriteShard(shards, vocabulary.fingerprint, sentences),
        )
        for name in self._folder.names(ERRORS):
            raise CacheError(self._folder.read(f"{ERRORS}/{name}").decode())
        wanted = {(split, i) for split, count in division.shards.items() for i in range(count)}
        if missing := sorted(wanted - shards.done()):
            raise CacheError(
                f"{self._workers.name} ended without an error, but {len(missing):,} of the "
                f"{len(wanted):,} shards are not done, such as {shard_name(*missing[0])}. The "
                "others are kept: run the same command again"
            )

    def _send(self, vocabulary: Vocabulary) -> None:
        with tempfile.TemporaryDirectory() as folder:
            vocabulary.save(Path(folder))
            for file in sorted(Path(folder).iterdir()):
                name = f"{VOCABULARY}-{vocabulary.fingerprint}/{file.name}"
                self._folder.write(name, file.read_bytes())

    def _say(self, what: str) -> None:
        print(f"{self._workers.name}: {what}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _finishing(
    folder: SharedFolder, plan: ShardPlan, *, shards: Mapping[str, int]
) -> Iterator[ShardPlan]:
    """The plan of the finished shards on this machine; what the block makes of them is shared."""
    if not storage.is_url(folder.place):
        yield plan
        folder.remove(WORK)
        return
    names = [shard_name(split, i) for split, count in shards.items() for i in range(count)]
    sidecars = [name + suffix for name in names for suffix in SIDECARS]
    with tempfile.TemporaryDirectory() as directory, ThreadPoolExecutor(_AT_ONCE) as pool:
        here = Path(directory)
        for name, data in zip(sidecars, pool.map(folder.read, sidecars), strict=True):
            (here / name).write_bytes(data)
        yield dataclasses.replace(plan, directory=directory)
        made_here = {path.name for path in here.iterdir()}
        for name in [*sorted(made_here - {MANIFEST}), MANIFEST]:
            storage.upload(f"{folder.place}/{name}", here / name)
        list(pool.map(folder.remove, set(folder.names()) - made_here - set(names)))
