"""Times text files to a finished cache, beside only the batch encoding of the same text.

    python benchmarks/tokenising.py
    python benchmarks/tokenising.py --corpus 'data/*.jsonl.gz' --vocabulary t5.model

Each vocabulary is a row. `write_cache` runs with a worker a core, from reading the files to the
manifest. The library alone (SentencePiece, tokenizers) encodes the same segments in batches, in
memory, in its own threads, one a core. They take turns in several rounds; figures are medians,
and the ratio is that of the medians. Without --corpus the text is stdlib_docs, repeated; without
--vocabulary one of each kind is trained on it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from t5x_like.core.protocols.data import Vocabulary
from t5x_like.data.cache.tokenization import split_segments
from t5x_like.data.cache.writer import write_cache
from t5x_like.data.corpora import registry
from t5x_like.data.corpora.corpus import Corpus, ReadReport
from t5x_like.data.corpora.sentences import DEFAULT
from t5x_like.data.corpora.text_files import TextFiles
from t5x_like.data.corpora.user_corpus import user_corpus
from t5x_like.vocabularies import files, loading
from t5x_like.vocabularies.learning import vocabulary_recipe

KINDS = ("unigram", "wordpiece", "byte_bpe")
BATCH = 10_000


def written_docs(directory: Path, megabytes: float) -> Corpus:
    """stdlib_docs as a file of JSON lines, repeated up to a size."""
    documents = list(registry.get("stdlib_docs").documents("train"))
    lines = [json.dumps({"text": document["targets"]}) + "\n" for document in documents]
    path = directory / "stdlib_docs.jsonl"
    with path.open("w", encoding="utf-8") as file:
        written = 0
        for line in itertools.cycle(lines):
            if written >= megabytes * 1e6:
                break
            written += file.write(line)
    return TextFiles(path)


def texts(corpus: Corpus) -> Iterator[str]:
    """All documents, of all splits."""
    for splits in corpus.readings:
        for _, document in corpus.sorted_documents(splits, report=ReadReport()):
            yield document["targets"]


def bare_encoder(saved: Path, cores: int) -> Callable[[list[str]], object]:
    """The library's own batch encoding with a saved vocabulary, in `cores` threads."""
    if (saved / files.MODEL).exists():
        import sentencepiece

        processor = sentencepiece.SentencePieceProcessor(model_file=str(saved / files.MODEL))
        return lambda batch: processor.encode(batch, num_threads=cores)
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(str(saved / files.TOKENIZER))
    tokenizer.encode_special_tokens = True
    return lambda batch: tokenizer.encode_batch_fast(batch, add_special_tokens=False)


def _encode(
    connection: multiprocessing.connection.Connection, corpus: Corpus, saved: Path, cores: int
) -> None:
    """Runs in its own process: encodes the text at each request."""
    segments = [segment for text in texts(corpus) for segment in split_segments(text, DEFAULT)]
    batches = [segments[i : i + BATCH] for i in range(0, len(segments), BATCH)]
    encode = bare_encoder(saved, cores)
    connection.send(sum(map(len, segments)))
    while connection.recv():
        start = time.perf_counter()
        for batch in batches:
            encode(batch)
        connection.send(time.perf_counter() - start)


def measure(corpus: Corpus, vocabulary: Vocabulary, directory: Path, rounds: int) -> dict:
    """Characters a second for both, and their ratio."""
    saved, cache = directory / "vocabulary", directory / "cache"
    vocabulary.save(saved)
    vocabulary.token_ids  # noqa: B018 (computed once, whatever the size of the text)
    context = multiprocessing.get_context("spawn")
    cores = len(os.sched_getaffinity(0))
    pipe, theirs = context.Pipe()
    context.Process(target=_encode, args=(theirs, corpus, saved, cores), daemon=True).start()
    characters = pipe.recv()
    bare, cached = [], []
    for _ in range(rounds):
        pipe.send(True)
        bare.append(pipe.recv())
        start = time.perf_counter()
        write_cache(cache, corpus, vocabulary, workers=cores, progress=False, overwrite=True)
        cached.append(time.perf_counter() - start)
    pipe.send(False)
    rates = [characters / statistics.median(times) for times in (bare, cached)]
    return {
        "vocabulary": repr(vocabulary),
        "characters": characters,
        "cores": cores,
        "bare_characters_per_second": round(rates[0]),
        "cache_characters_per_second": round(rates[1]),
        "ratio": round(rates[1] / rates[0], 3),
    }


def train_vocabulary(corpus: Corpus, directory: Path, kind: str) -> Vocabulary:
    """A vocabulary of 8,000 ids, trained on the first megabytes of the text."""
    sample = itertools.islice(texts(corpus), 2000)
    recipe = vocabulary_recipe.Recipe(kind=kind, size=8_000)
    return loading.load(vocabulary_recipe.train(sample, directory / kind, recipe, progress=False))


def main() -> None:
    """Prints the table, and writes it as JSON lines where asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--corpus", help="files of text (default: stdlib_docs)")
    parser.add_argument("--vocabulary", action="append", help="(default: one of each kind)")
    parser.add_argument("--megabytes", type=float, default=64, help="of stdlib_docs (default: 64)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, help="a file of JSON lines")
    args = parser.parse_args()
    directory = Path(tempfile.mkdtemp())
    try:
        corpus = (
            user_corpus(args.corpus) if args.corpus else written_docs(directory, args.megabytes)
        )
        for named in args.vocabulary or KINDS:
            place = directory / named.replace("/", "_")
            place.mkdir()
            vocabulary = (
                loading.load(named) if args.vocabulary else train_vocabulary(corpus, place, named)
            )
            row = measure(corpus, vocabulary, place, args.rounds)
            shutil.rmtree(place)
            print(
                f"{row['vocabulary']:64}"
                f"{row['bare_characters_per_second'] / 1e6:7.2f} M characters/s "
                f"bare{row['cache_characters_per_second'] / 1e6:7.2f} M to a cache"
                f"   ratio {row['ratio']:.2f}",
                flush=True,
            )
            if args.output:
                with args.output.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
