"""A writer of a corpus's cache, which tokenises the documents once, in parallel."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from t5x_like.core import progress as bars
from t5x_like.core.buckets import staging
from t5x_like.core.protocols.data import PLAIN_TEXT, Vocabulary, names
from t5x_like.data.cache import blocks, tokenization
from t5x_like.data.cache.blocks import Place
from t5x_like.data.cache.format import (
    ANSWERS,
    FORMAT_VERSION,
    MANIFEST,
    CacheError,
    Manifest,
    token_dtype,
)
from t5x_like.data.cache.lock import sole_writer
from t5x_like.data.cache.reader import Cache
from t5x_like.data.cache.record_codec import FLOAT
from t5x_like.data.cache.shards import Packed, ShardPlan, finalise
from t5x_like.data.cache.workers import default_workers, mapping
from t5x_like.data.corpora.corpus import Corpus, Document, NothingHeldOutError, ReadReport
from t5x_like.data.corpora.sentences import DEFAULT, rule

BLOCK_BYTES = 8 << 20


@dataclasses.dataclass(frozen=True)
class _Block:
    """The text of one shard; `documents` is None where an earlier run finished the shard."""

    split: str
    number: int
    content: str
    documents: list[Document] | None
    bytes: int


@dataclasses.dataclass(frozen=True)
class Tokenise:
    """The function that a worker applies to a batch of documents."""

    plan: ShardPlan
    vocabulary: Vocabulary
    sentences: str

    def __call__(self, documents: list[Document]) -> list[Packed]:
        plan = self.plan
        if plan.columns == PLAIN_TEXT:
            records = tokenization.plain_records(documents, self.vocabulary, self.sentences)
        else:
            records = tokenization.column_records(
                documents, self.vocabulary, plan.columns, plan.labels
            )
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
    """Writes the cache of `corpus` to `directory`, unless the directory has a complete cache of it.

    Memory holds at most two blocks of text, and a batch of text for each worker, for a corpus of
    any size. A killed writer resumes: shards whose text has not changed are kept. If another
    process writes the same cache, this one waits and then keeps that cache.

    Args:
      directory: the directory of the cache, made if missing.
      corpus: the corpus whose documents become records, in order.
      vocabulary: the vocabulary that tokenises them; it is saved in the directory.
      sentences: the segments of plain text: sentences of this language, or "lines".
      workers: the number of threads or, where the vocabulary is Python code, of processes that
        tokenise; None for one on each core, 1 for this thread alone.
      progress: whether to show a bar on standard error.
      overwrite: whether to replace a complete cache, even of another corpus or vocabulary.

    Raises:
      CacheError: the directory cannot be written, or holds the cache of something else; or the
        corpus has no tokens to train on.
      CorpusError: the corpus cannot be read.
    """
    directory = Path(directory)
    manifest = initial_manifest(corpus, vocabulary, sentences)
    with sole_writer(directory):
        if complete := keep_or_clear(directory, manifest, overwrite=overwrite):
            return complete
        manifest = dataclasses.replace(manifest, labels=corpus.label_names)
        plan = shard_plan(directory, manifest)
        tokenise = Tokenise(plan, vocabulary, sentences)
        shards: dict[str, int] = {}
        skipped: dict[str, int] = {}
        for splits in corpus.readings:
            read = _Blocks(corpus, splits, plan)
            _write_with_bar(tokenise, read, workers=workers or default_workers(), progress=progress)
            shards |= read.shards
            skipped |= dict.fromkeys(splits, read.report.skipped)
            warn_of_skipped(corpus, splits, read.report)
        warn_of_unread(corpus)
        written = finalise(plan, manifest, vocabulary, shards=shards, skipped=skipped)
        warn_of_share(corpus, written)
        return written


def initial_manifest(corpus: Corpus, vocabulary: Vocabulary, sentences: str) -> Manifest:
    """The manifest of a cache before its shards and the names of labels are known."""
    plain = corpus.columns == PLAIN_TEXT
    tokens = token_dtype(vocabulary.vocab_size)
    dtypes = {**dict.fromkeys(("text", "words", "passage"), tokens), "numbers": FLOAT}
    lists = {**dict.fromkeys(("tags", "labels", "characters"), (None,)), "spans": (None, 4)}
    shapes: dict[str, tuple[int | None, ...]] = {}
    for column in corpus.columns:
        if dtypes.get(column.holds) != tokens:
            shapes[column.name] = lists.get(column.holds, column.shape)
    return Manifest(
        corpus=corpus.name,
        corpus_fingerprint=corpus.fingerprint(),
        vocabulary=vocabulary.to_json(),
        vocabulary_fingerprint=vocabulary.fingerprint,
        token_ids=vocabulary.token_ids,
        features={column.name: dtypes.get(column.holds, "int32") for column in corpus.columns},
        shapes=shapes,
        words=names(column for column in corpus.columns if column.holds == "words"),
        answers={column.name: column.holds for column in corpus.columns if column.holds in ANSWERS},
        segmentation=rule(sentences) if plain else None,
        piece_tokens=tokenization.PIECE_TOKENS if plain else None,
    )


def warn_of_share(corpus: Corpus, manifest: Manifest) -> None:
    """Warns if the held-out share of tokens is far from the requested share of documents."""
    asked = corpus.held_out
    if not asked:
        return
    train, held = (sum(manifest.splits[name].tokens.values()) for name in corpus.splits)
    share = held / (train + held)
    if not held or asked / 2 <= share <= 2 * asked:
        return
    documents = sum(manifest.splits[name].documents for name in corpus.splits)
    print(
        f"{corpus.name}: validation holds {share:.1%} of the tokens, but you asked for {asked:.1%} "
        f"of the documents: the {documents:,} documents are few or of uneven lengths. Hold out "
        "another share, divide the text into more documents (separator), or name files to hold out",
        file=sys.stderr,
    )


class _Blocks:
    """The blocks of one reading, the same in every run."""

    def __init__(self, corpus: Corpus, splits: Sequence[str], plan: ShardPlan) -> None:
        self.title = title(corpus, splits)
        self.report = ReadReport()
        self._corpus = corpus
        self._plan = plan
        self._places = {split: Place() for split in splits}

    @property
    def shards(self) -> dict[str, int]:
        """The number of shards of each split so far."""
        return {split: place.shards for split, place in self._places.items()}

    def __iter__(self) -> Iterator[_Block]:
        for part in blocks.parts(self._documents(), self._places, block=BLOCK_BYTES):
            content = blocks.content_of(part.documents)
            finished = self._plan.finished(part.split, part.shard, content=content)
            documents = None if finished else part.documents
            yield _Block(part.split, part.shard, content, documents, part.bytes)

    def _documents(self) -> Iterator[tuple[str, Document]]:
        try:
            yield from self._corpus.sorted_documents(tuple(self._places), report=self.report)
        except NothingHeldOutError as error:
            print(continuing(error), file=sys.stderr)


def title(corpus: Corpus, splits: Sequence[str]) -> str:
    """The name of a reading of a corpus, for messages."""
    return f"{corpus.name} ({', '.join(splits)})"


def continuing(error: NothingHeldOutError) -> str:
    """The message that a cache is made without held-out documents."""
    return f"{error}; continuing without"


def warn_of_skipped(corpus: Corpus, splits: Sequence[str], report: ReadReport) -> None:
    """Says how many documents of a reading were left out, if any were."""
    if skipped := str(report):
        print(f"{title(corpus, splits)}: {skipped}", file=sys.stderr)


def warn_of_unread(corpus: Corpus) -> None:
    """Names the fields of a corpus that are not read, if there are any."""
    if unread := ", ".join(corpus.unread):
        print(
            f"{corpus.name}: these columns are not read: {unread}. What a model reads is `text` or "
            "the column that CORPUS_FIELD or --field names, or else what its objective asks for",
            file=sys.stderr,
        )


def _write_with_bar(tokenise: Tokenise, read: _Blocks, *, workers: int, progress: bool) -> None:
    with bars.bar(
        desc=read.title, unit="B", unit_scale=True, shown=progress, mininterval=0.5
    ) as bar:
        for size in _write_blocks(tokenise, iter(read), workers=workers):
            report = read.report
            # The total is known for bytes of files only, because the files may be compressed.
            bar.total = report.bytes_total or None
            bar.update(report.bytes_read - bar.n if report.bytes_total else size)


def _write_blocks(
    tokenise: Tokenise, unwritten: Iterator[_Block], *, workers: int
) -> Iterator[int]:
    """Writes the shards in order and yields the number of bytes of text of each.

    The workers only tokenise. This thread reads and writes at the same time. It holds two blocks,
    so that the workers have one to tokenise while this thread writes the other or reads the next.
    """
    # If encoding releases Python's lock, threads suffice, and they start at once.
    threads = getattr(tokenise.vocabulary, "releases_lock", False)
    if not threads and workers > 1:
        # A text that does not fill a block is tokenised sooner than processes start.
        first = list(itertools.islice(unwritten, 1))
        unwritten = itertools.chain(first, unwritten)
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
        for block in unwritten:
            waiting.append((block, start(tokenization.batches(block.documents or []))))
            if len(waiting) == 2:
                yield write(*waiting.pop(0))
        for block, tokenised in waiting:
            yield write(block, tokenised)


def keep_or_clear(directory: Path, wanted: Manifest, *, overwrite: bool) -> Manifest | None:
    """The manifest of a complete cache that matches `wanted`, or None if the cache must be written.

    With `overwrite`, a complete cache loses its manifest and so becomes incomplete.

    Raises:
      CacheError: the complete cache is of something else, and `overwrite` is False.
    """
    if not Cache.exists(directory):
        return None
    if overwrite:
        # The manifest goes first, so that a kill from here on leaves an incomplete cache.
        (directory / MANIFEST).unlink(missing_ok=True)
        return None
    present = Cache.open(
        directory,
        corpus_fingerprint=wanted.corpus_fingerprint,
        vocabulary_fingerprint=wanted.vocabulary_fingerprint,
    ).manifest
    if cut_by(present) != cut_by(wanted):
        raise CacheError(
            f"{staging.known_as(directory)} holds {wanted.corpus!r} in segments by the rule "
            f"{present.segmentation!r}, not {wanted.segmentation!r}; choose another directory or "
            "overwrite it"
        )
    if present.materialized != wanted.materialized:
        raise CacheError(
            f"{staging.known_as(directory)} holds {wanted.corpus!r} materialized as "
            f"{present.materialized}, not as {wanted.materialized}; choose another directory or "
            "overwrite it"
        )
    return present


def cut_by(manifest: Manifest) -> str:
    """The rule of segments without the library's version; a finished cache may have any version."""
    return (manifest.segmentation or "").partition(",")[0]


def shard_plan(directory: Path, manifest: Manifest, *, source: str = "") -> ShardPlan:
    """The plan for shards of this manifest; `source` identifies text that is not hashed."""
    decisive = [
        FORMAT_VERSION,
        manifest.vocabulary_fingerprint,
        sorted(manifest.features.items()),
        manifest.segmentation,
        manifest.piece_tokens,
        manifest.materialized,
        source,
    ]
    if manifest.shapes:
        decisive += [sorted(manifest.shapes.items()), sorted(manifest.labels.items())]
    if manifest.words:
        decisive.append(manifest.words)
    if manifest.answers:
        decisive.append(sorted(manifest.answers.items()))
    return ShardPlan(
        directory=str(directory),
        features=manifest.features,
        vocab_size=manifest.token_ids.vocab_size,
        recipe=hashlib.sha256(repr(decisive).encode()).hexdigest(),
        columns=manifest.columns,
        labels=manifest.labels,
    )
