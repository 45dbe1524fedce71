"""Writes the cache of a corpus: tokenises its documents once, in parallel processes."""

from __future__ import annotations

import dataclasses
import hashlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tqdm import tqdm

from t5x_like.data import cache_text, corpora
from t5x_like.data.cache import Cache
from t5x_like.data.cache_format import (
    FORMAT_VERSION,
    MANIFEST,
    CacheError,
    Manifest,
    token_dtype,
)
from t5x_like.data.cache_lock import sole_writer
from t5x_like.data.cache_shards import ShardPlan, finalise
from t5x_like.data.cache_text import Document, Record
from t5x_like.data.cache_workers import default_workers, spread
from t5x_like.data.corpora import Corpus, ReadReport
from t5x_like.protocols import Vocabulary

BLOCK_BYTES = 8 << 20


@dataclasses.dataclass(frozen=True)
class _Block:
    """The text of one shard; no documents where an earlier run finished the shard."""

    split: str
    number: int
    content: str
    documents: list[Document] | None
    bytes: int


@dataclasses.dataclass(frozen=True)
class _Tokenise:
    """What a worker does with some blocks; returns the bytes of text."""

    plan: ShardPlan
    vocabulary: Vocabulary

    def __call__(self, blocks: list[_Block]) -> int:
        for block in blocks:
            if block.documents is not None:
                records = self._records(block.documents)
                self.plan.write(block.split, block.number, records=records, content=block.content)
        return sum(block.bytes for block in blocks)

    def _records(self, documents: list[Document]) -> Iterator[Record]:
        features = tuple(self.plan.features)
        if features == corpora.TARGETS:
            return cache_text.plain_records(documents, self.vocabulary)
        return cache_text.text_to_text_records(documents, self.vocabulary, features)


def write_cache(
    directory: Path | str,
    corpus: Corpus,
    vocabulary: Vocabulary,
    *,
    workers: int | None = None,
    progress: bool = True,
    overwrite: bool = False,
) -> Manifest:
    """Writes the cache of `corpus` to `directory`; leaves one that is complete as it is.

    Memory is bounded by `workers` times a block of text, whatever the size of the corpus. A
    writer that was killed goes on where it was: shards whose text has not changed are kept.

    Args:
      directory: made if missing.
      corpus: its documents become records, in order.
      vocabulary: tokenises them; saved in the directory.
      workers: processes that tokenise; None for one a core, 1 for none besides this one.
      progress: whether to show a bar on standard error.
      overwrite: replaces a complete cache, also one of another corpus or vocabulary.

    Raises:
      CacheError: the directory cannot be written, is being written by another process, or holds
        the cache of something else; or the corpus has no tokens to train on.
      CorpusError: the corpus cannot be read.
    """
    directory = Path(directory)
    plain = corpus.features == corpora.TARGETS
    dtype = token_dtype(vocabulary.vocab_size)
    manifest = Manifest(
        corpus=corpus.name,
        corpus_fingerprint=corpus.fingerprint(),
        vocabulary=vocabulary.to_json(),
        vocabulary_fingerprint=vocabulary.fingerprint,
        token_ids=vocabulary.token_ids,
        features=dict.fromkeys(corpus.features, dtype),
        segmentation=cache_text.SEGMENTATION if plain else None,
        piece_tokens=cache_text.PIECE_TOKENS if plain else None,
    )
    with sole_writer(directory):
        if complete := keep_or_clear(directory, manifest, overwrite=overwrite):
            return complete
        plan = shard_plan(directory, manifest)
        shards, skipped = {}, {}
        for splits in corpus.readings:
            blocks = _Blocks(corpus, splits, plan)
            _spread_with_bar(
                _Tokenise(plan, vocabulary),
                blocks,
                workers=workers or default_workers(),
                progress=progress,
            )
            shards |= blocks.shards
            skipped |= dict.fromkeys(splits, blocks.report.skipped)
            if blocks.report.skipped:
                print(f"{blocks.title}: {blocks.report}", file=sys.stderr)
        return finalise(plan, manifest, vocabulary, shards=shards, skipped=skipped)


class _Gathered:
    """The documents of a shard to be, while it is not full."""

    def __init__(self) -> None:
        self.documents: list[Document] = []
        self.bytes = 0
        self._digest = hashlib.sha256()

    def add(self, document: Document) -> None:
        self.documents.append(document)
        for feature, text in document.items():
            data = text.encode()
            self._digest.update(f"{feature} {len(data)} ".encode())
            self._digest.update(data)
            self.bytes += len(data)

    @property
    def content(self) -> str:
        return self._digest.hexdigest()


class _Blocks:
    """The documents of one reading in blocks of about `BLOCK_BYTES`, the same in every run.

    What the splits have left in the end comes all at once: a small corpus is a single job.
    """

    def __init__(self, corpus: Corpus, splits: Sequence[str], plan: ShardPlan) -> None:
        self.title = f"{corpus.name} ({', '.join(splits)})"
        self.corpus = corpus
        self.plan = plan
        self.report = ReadReport()
        self.shards = dict.fromkeys(splits, 0)

    def __iter__(self) -> Iterator[list[_Block]]:
        gathered = {split: _Gathered() for split in self.shards}
        for split, document in self._documents():
            gathered[split].add(document)
            if gathered[split].bytes >= BLOCK_BYTES:
                yield [self._block(split, gathered[split])]
                gathered[split] = _Gathered()
        yield [self._block(split, rest) for split, rest in gathered.items() if rest.documents]

    def _block(self, split: str, text: _Gathered) -> _Block:
        number = self.shards[split]
        self.shards[split] += 1
        finished = self.plan.finished(split, number, content=text.content)
        documents = None if finished else text.documents
        return _Block(split, number, text.content, documents, text.bytes)

    def _documents(self) -> Iterator[tuple[str, Document]]:
        try:
            yield from self.corpus.sorted_documents(tuple(self.shards), report=self.report)
        except corpora.NothingHeldOutError as error:
            print(f"{error}; going on without", file=sys.stderr)


def _spread_with_bar(work: _Tokenise, blocks: _Blocks, *, workers: int, progress: bool) -> None:
    with tqdm(
        desc=blocks.title, unit="B", unit_scale=True, disable=not progress, mininterval=0.5
    ) as bar:
        for size in spread(work, iter(blocks), workers=workers):
            report = blocks.report
            # Files may be compressed: then only what is read of them has a known total.
            bar.total = report.bytes_total or None
            bar.update(report.bytes_read - bar.n if report.bytes_total else size)


def keep_or_clear(directory: Path, wanted: Manifest, *, overwrite: bool) -> Manifest | None:
    """The manifest of a complete cache that is as wanted, or None and an incomplete cache.

    Raises:
      CacheError: the complete cache there is of something else, and `overwrite` is not set.
    """
    if not Cache.exists(directory):
        return None
    if overwrite:
        # First of all, so that a kill from here on leaves an incomplete cache.
        (directory / MANIFEST).unlink()
        return None
    found = Cache.open(
        directory,
        corpus_fingerprint=wanted.corpus_fingerprint,
        vocabulary_fingerprint=wanted.vocabulary_fingerprint,
    ).manifest
    if found.materialized != wanted.materialized:
        raise CacheError(
            f"{directory} holds {wanted.corpus!r} materialized as {found.materialized}, not as "
            f"{wanted.materialized}; choose another directory or overwrite it"
        )
    return found


def shard_plan(directory: Path, manifest: Manifest, *, source: str = "") -> ShardPlan:
    """How shards of this manifest are written; `source` stands for text that is not hashed."""
    decisive = [
        FORMAT_VERSION,
        manifest.vocabulary_fingerprint,
        sorted(manifest.features.items()),
        manifest.segmentation,
        manifest.piece_tokens,
        manifest.materialized,
        source,
    ]
    recipe = hashlib.sha256(repr(decisive).encode()).hexdigest()
    return ShardPlan(str(directory), manifest.features, manifest.token_ids.vocab_size, recipe)
