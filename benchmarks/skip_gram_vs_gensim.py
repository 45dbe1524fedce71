"""Times skip-gram beside gensim's Word2Vec, on the same words and with the same settings.

    python benchmarks/skip_gram_vs_gensim.py
    python benchmarks/skip_gram_vs_gensim.py --corpus 'data/*.jsonl.gz' --rounds 5

Both read all words of the text once, without leaving out frequent ones, with all cores. Ours makes
its rows in the same process and takes dense steps of Adam; gensim goes on pair by pair, in C. They
take turns. Rates are words a second, and the ratio is that of the medians: ours / theirs. What a
step alone could do, with rows at hand, stands beside it. Needs gensim.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import os
import statistics
import time
from collections.abc import Iterator

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import gensim
import jax
import numpy as np
from tokenising import texts

from t5x_like.cli.common import host_memory
from t5x_like.core.partitioning import make_layout
from t5x_like.core.protocols.data import TokenIds
from t5x_like.data.corpora import registry
from t5x_like.data.corpora.text_files import TextFiles
from t5x_like.data.rows.feature_converters import Encoder
from t5x_like.models import skip_gram
from t5x_like.objectives.skip_gram import WordPairs
from t5x_like.training import step
from t5x_like.training.optimization import optimizers
from t5x_like.vocabularies.learning.subword_training import train_words

OBJECTIVE = WordPairs(sample=0.0)
LENGTH, ROWS = 256, 32
Batch = dict[str, np.ndarray]


def batches(documents: list[np.ndarray], ids: TokenIds) -> Iterator[Batch]:
    """All words in rows; the last batch is left out if it is not full."""
    rng, features = np.random.default_rng(0), OBJECTIVE.features({"inputs": LENGTH})
    pieces = (
        document[start : start + LENGTH]
        for document in documents
        for start in range(0, len(document), LENGTH)
    )
    rows = (
        Encoder().convert([OBJECTIVE({"targets": piece}, rng, ids)], features=features, ids=ids)
        for piece in pieces
    )
    while len(batch := list(itertools.islice(rows, ROWS))) == ROWS:
        yield {name: np.stack([row[name] for row in batch]) for name in batch[0]}


class Ours:
    """A program that trains on batches."""

    def __init__(self, vocab_size: int, width: int) -> None:
        config = skip_gram.Config(vocab_size=vocab_size, d_model=width)
        self._program = step.build(
            functools.partial(skip_gram.SkipGram, config),
            optimizers.adamw(1e-3, weight_decay=0.0),
            make_layout({"data": 1}, devices=jax.devices()[:1]),
            step.StepOptions(batch_size=ROWS),
        )
        self._state = self._program.init(jax.random.key(0))

    def words_a_second(self, rows: Iterator[Batch] | list[Batch]) -> float:
        """Trains on batches; counts from the first one."""
        words, started = 0, time.perf_counter()
        for batch in rows:
            on_device = jax.device_put(batch)
            self._state, _ = self._program.step(self._state, on_device, jax.random.key(1))
            words += int(batch["encoder_attention_mask"].sum())
        jax.block_until_ready(self._state)
        return words / (time.perf_counter() - started)


def theirs(sentences: list[list[str]], width: int) -> float:
    """Words a second of gensim."""
    model = gensim.models.Word2Vec(
        vector_size=width,
        window=OBJECTIVE.window,
        negative=OBJECTIVE.negatives,
        sg=1,
        sample=0,
        min_count=1,
        workers=os.cpu_count() or 1,
    )
    model.build_vocab(sentences)
    words = sum(map(len, sentences))
    started = time.perf_counter()
    model.train(sentences, total_words=words, epochs=1)
    return words / (time.perf_counter() - started)


def main() -> None:
    """Prints the rates of each round, and the ratio."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--corpus", help="text files (default: stdlib_docs)")
    parser.add_argument("--words", type=int, default=1_000_000, help="words of the text to read")
    parser.add_argument("--vocab_size", type=int, default=20_000)
    parser.add_argument("--width", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    host_memory.keep_freed()
    corpus = TextFiles(args.corpus) if args.corpus else registry.get("stdlib_docs")
    some = list(itertools.islice(texts(corpus), 20_000))
    vocabulary = train_words(some, size=args.vocab_size, extra_ids=0, lowercase=True)
    encoded = [np.array(ids, np.int32) for ids in vocabulary.encode_batch(some)]
    unknown = vocabulary.token_ids.unk
    documents = [words[words != unknown] for words in encoded]
    ends = np.cumsum([len(words) for words in documents])
    documents = documents[: int(np.searchsorted(ends, args.words)) + 1]
    counts = np.bincount(np.concatenate(documents), minlength=vocabulary.vocab_size)
    ids = TokenIds(vocab_size=vocabulary.vocab_size, counts=counts)
    sentences = [[*map(str, words)] for words in documents]
    print(f"{counts.sum():,} words, {np.count_nonzero(counts):,} of them different", flush=True)

    ours = Ours(vocabulary.vocab_size, args.width)
    at_hand = list(itertools.islice(batches(documents, ids), 20))
    ours.words_a_second(at_hand[:1])
    rates: dict[str, list[float]] = {"ours": [], "a step alone": [], "gensim": []}
    for _ in range(args.rounds):
        rates["ours"].append(ours.words_a_second(batches(documents, ids)))
        rates["a step alone"].append(ours.words_a_second(at_hand))
        rates["gensim"].append(theirs(sentences, args.width))
        print(", ".join(f"{name} {of[-1]:,.0f}" for name, of in rates.items()), flush=True)
    medians = {name: statistics.median(of) for name, of in rates.items()}
    print(
        f"ratio {medians['ours'] / medians['gensim']:.3f}; a step alone "
        f"{medians['a step alone'] / medians['gensim']:.3f}"
    )


if __name__ == "__main__":
    main()
