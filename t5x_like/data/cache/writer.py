"""Writes the cache of a corpus: tokenises its documents once, in parallel."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from t5x_like.core import progress as bars
from t5x_like.core.protocols import Vocabulary
from t5x_like.data.cache import tokenization
from t5x_like.data.cache.format import (
    FORMAT_VERSION,
    MANIFEST,
    CacheError,
    Manifest,
    token_dtype,
)
from t5x_like.data.cache.lock import sole_writer
from t5x_like.data.cache.reader import Cache
from t5x_like.data.cache.shards import Packed, ShardPlan, finalise
from t5x_like.data.cache.tokenization import Document
from t5x_like.data.cache.workers import default_workers, mapping
from t5x_like.data.corpora import registry, text_pieces
from t5x_like.data.corpora.registry import Corpus, ReadReport
from t5x_like.data.corpora.sentences import DEFAULT, rule

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
    """What a worker does with a batch of documents."""

    plan: ShardPlan
    vocabulary: Vocabulary
    sentences: str

    def __call__(self, documents: list[Document]) -> list[Packed]:
        features = tuple(self.plan.features)
        if features == registry.TARGETS:
            records = tokenization.plain_records(documents, self.vocabulary, self.sentences)
        else:
            records = tokenization.text_to_text_records(documents, self.vocabulary, features)
        return list(self.plan.packed(records))


def write_cache(
    directory: Path | str,
    corpus: Corpus,
    vocabulary: Vocabulary,
    *,
    sentences: str = DEFAULT,
    workers: int | None = None,
    progress: bool = True,
    overwrite: bool = False,
) -> Manifest:
    """Writes the cache of `corpus` to `directory`; leaves one that is complete as it is.

    Memory is bounded by two blocks of text, and a batch of it for each worker, whatever the size
    of the corpus. A writer that was killed resumes where it was: shards whose text has not changed
    are kept. Where another process writes it, this one waits, and keeps what that has made.

    Args:
      directory: made if missing.
      corpus: its documents become records, in order.
      vocabulary: tokenises them; saved in the directory.
      sentences: what segments of plain text are: sentences of this language, or "lines".
      workers: threads or, where the vocabulary is Python code, processes that tokenise; None for
        one a core, 1 for none besides this thread.
      progress: whether to show a bar on standard error.
      overwrite: replaces a complete cache, also one of another corpus or vocabulary.

    Raises:
      CacheError: the directory cannot be written, or holds the cache of something else; or the
        corpus has no tokens to train on.
      CorpusError: the corpus cannot be read.
    """
    directory = Path(directory)
    manifest = _planned(corpus, vocabulary, sentences)
    with sole_writer(directory):
        if complete := keep_or_clear(directory, manifest, overwrite=overwrite):
            return complete
        plan = shard_plan(directory, manifest)
        tokenise = _Tokenise(plan, vocabulary, sentences)
        shards: dict[str, int] = {}
        skipped: dict[str, int] = {}
        for splits in corpus.readings:
            blocks = _Blocks(corpus, splits, plan)
            _write_with_bar(
                tokenise, blocks, workers=workers or default_workers(), progress=progress
            )
            shards |= blocks.shards
            skipped |= dict.fromkeys(splits, blocks.report.skipped)
            if blocks.report.skipped or blocks.report.skipped_pieces:
                print(f"{blocks.title}: {blocks.report}", file=sys.stderr)
        written = finalise(plan, manifest, vocabulary, shards=shards, skipped=skipped)
        _warn_of_share(corpus, written)
        return written


def _planned(corpus: Corpus, vocabulary: Vocabulary, sentences: str) -> Manifest:
    """The manifest of a cache that is to be written."""
    plain = corpus.features == registry.TARGETS
    return Manifest(
        corpus=corpus.name,
        corpus_fingerprint=corpus.fingerprint(),
        vocabulary=vocabulary.to_json(),
        vocabulary_fingerprint=vocabulary.fingerprint,
        token_ids=vocabulary.token_ids,
        features=dict.fromkeys(corpus.features, token_dtype(vocabulary.vocab_size)),
        segmentation=rule(sentences) if plain else None,
        piece_tokens=tokenization.PIECE_TOKENS if plain else None,
    )


def _warn_of_share(corpus: Corpus, manifest: Manifest) -> None:
    """Says it where the tokens held out are far from the share of documents asked for."""
    asked = corpus.held_out
    if not asked:
        return
    train, held = (sum(manifest.splits[name].tokens.values()) for name in corpus.splits)
    share = held / (train + held)
    if not held or asked / 2 <= share <= 2 * asked:
        return
    documents = sum(manifest.splits[name].documents for name in corpus.splits)
    print(
        f"{corpus.name}: validation holds {share:.1%} of the tokens, where {asked:.1%} of the "
        f"documents was asked for: the {documents:,} documents are few or of uneven lengths. Hold "
        "out another share, divide the text into more documents (separator), or name files to hold "
        "out",
        file=sys.stderr,
    )


class _Gathered:
    """The documents of a shard to be, while it is not full."""

    def __init__(self) -> None:
        self.documents: list[Document] = []
        self.bytes = 0
        self._digest = hashlib.sha256()

    def add(self, document: Document) -> None:
        self.documents.append(document)
        if text_pieces.continues(document):
            self._digest.update(b"more of it: ")
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

    What the splits have left in the end are the last blocks, one a split.
    """

    def __init__(self, corpus: Corpus, splits: Sequence[str], plan: ShardPlan) -> None:
        self.title = f"{corpus.name} ({', '.join(splits)})"
        self.corpus = corpus
        self.plan = plan
        self.report = ReadReport()
        self.shards = dict.fromkeys(splits, 0)

    def __iter__(self) -> Iterator[_Block]:
        gathered = {split: _Gathered() for split in self.shards}
        for split, document in self._documents():
            gathered[split].add(document)
            if gathered[split].bytes >= BLOCK_BYTES:
                yield self._block(split, gathered[split])
                gathered[split] = _Gathered()
        for split, rest in gathered.items():
            if rest.documents:
                yield self._block(split, rest)

    def _block(self, split: str, text: _Gathered) -> _Block:
        number = self.shards[split]
        self.shards[split] += 1
        finished = self.plan.finished(split, number, content=text.content)
        documents = None if finished else text.documents
        return _Block(split, number, text.content, documents, text.bytes)

    def _documents(self) -> Iterator[tuple[str, Document]]:
        try:
            yield from self.corpus.sorted_documents(tuple(self.shards), report=self.report)
        except registry.NothingHeldOutError as error:
            print(f"{error}; continuing without", file=sys.stderr)


def _write_with_bar(tokenise: _Tokenise, blocks: _Blocks, *, workers: int, progress: bool) -> None:
    with bars.bar(
        desc=blocks.title, unit="B", unit_scale=True, shown=progress, mininterval=0.5
    ) as bar:
        for size in _written(tokenise, iter(blocks), workers=workers):
            report = blocks.report
            # Files may be compressed: then only what is read of them has a known total.
            bar.total = report.bytes_total or None
            bar.update(report.bytes_read - bar.n if report.bytes_total else size)


def _written(tokenise: _Tokenise, blocks: Iterator[_Block], *, workers: int) -> Iterator[int]:
    """Writes the shards in order and gives the bytes of text of each.

    The workers tokenise; all else is done here, meanwhile: with two blocks in hand, there is work
    for them while one is written and the next one read.
    """
    # Where encoding lets go of Python's lock threads do, which start at once.
    threads = getattr(tokenise.vocabulary, "releases_lock", False)
    if not threads and workers > 1:
        # A text that does not fill a block is not worth processes.
        first = list(itertools.islice(blocks, 1))
        blocks = itertools.chain(first, blocks)
        workers = workers if first and first[0].bytes >= BLOCK_BYTES else 1

    def write(block: _Block, tokenised: Iterator[list[Packed]]) -> int:
        if block.documents is not None:
            parts = itertools.chain.from_iterable(tokenised)
            tokenise.plan.write_packed(
                block.split, block.number, parts=parts, content=block.content
            )
        return block.bytes

    with mapping(tokenise, workers=workers, threads=threads) as start:
        waiting: list[tuple[_Block, Iterator[list[Packed]]]] = []
        for block in blocks:
            waiting.append((block, start(tokenization.batches(block.documents or []))))
            if len(waiting) == 2:
                yield write(*waiting.pop(0))
        for block, tokenised in waiting:
            yield write(block, tokenised)


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
    if cut_by(found) != cut_by(wanted):
        raise CacheError(
            f"{directory} holds {wanted.corpus!r} in segments by the rule {found.segmentation!r}, "
            f"not {wanted.segmentation!r}; choose another directory or overwrite it"
        )
    if found.materialized != wanted.materialized:
        raise CacheError(
            f"{directory} holds {wanted.corpus!r} materialized as {found.materialized}, not as "
            f"{wanted.materialized}; choose another directory or overwrite it"
        )
    return found


def cut_by(manifest: Manifest) -> str:
    """The rule of segments without the library's release, of which a finished cache may be any."""
    return (manifest.segmentation or "").partition(",")[0]


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
