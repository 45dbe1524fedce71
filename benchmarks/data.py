"""Speed from a cache to batches: examples and raw tokens a second per core, for each objective.

    python benchmarks/data.py --corpus 'data/*.jsonl.gz' --vocabulary t5.model
    python benchmarks/data.py stdlib_docs.mlm stdlib_docs.xlnet --length 128

Each objective is a row. Where they are installed, so are the peers that a user would pick: Hugging
Face's `DataCollatorForLanguageModeling` on pre-tokenised rows in memory (transformers, torch), and
SeqIO with T5's own preprocessors on tokenised documents in memory (t5). Every figure is for one
process bound to one core while the other cores do the same: the median of several rounds in which
the rows take turns. Raw tokens are those of the text, before corruption.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from t5x_like import objectives
from t5x_like.data import task
from t5x_like.data.cache.reader import Cache
from t5x_like.data.corpora.user_corpus import user_corpus
from t5x_like.data.dataset import Data
from t5x_like.data.rows.feature_converters import default_converter
from t5x_like.data.streams import mixtures, stream
from t5x_like.data.vocabulary_choice import VocabularyChoice

HUGGING_FACE = "mlm, Hugging Face collator"
T5 = "span corruption, seqio with T5's preprocessors"
ROWS = 64
GROUP = 6


@dataclasses.dataclass(frozen=True)
class Job:
    """One row of the table: an objective's preset, or a peer."""

    name: str
    length: int
    directory: str


def examples(job: Job) -> stream.Examples:
    """An objective's examples; what it plans is kept beside the cache."""
    cache, objective = Cache.open(job.directory), objectives.preset(job.name)
    opened = task.of_cache(cache, objective).with_cache(cache, objective.lengths(job.length))
    converter = default_converter(objective)
    (found,) = mixtures.examples([opened], "train", converter=converter, seed=0, rows=ROWS)
    return found


def ours(job: Job) -> tuple[Iterator, float]:
    """Batches of an objective, and the number of raw tokens in one row."""
    found = examples(job)
    looked_at = np.linspace(0, len(found.samples) - 1, 500).astype(int).tolist()
    raw = np.mean([_tokens(found.samples[n][0]) for n in looked_at])
    batches = stream.train_stream([found], batch_size=ROWS, num_threads=0)
    return batches, float(raw)


def _tokens(sample: dict[str, np.ndarray]) -> int:
    return sum(
        len(value)
        for name, value in sample.items()
        if value.ndim and name not in ("segments", "documents")
    )


def rows_in_memory(directory: str, length: int) -> list[list[int]]:
    """Pre-tokenised rows of about a million tokens."""
    split = Cache.open(directory).split("train")
    documents = [split.record(i)["targets"] for i in range(min(len(split), 4000))]
    tokens = np.concatenate(documents)
    return tokens[: len(tokens) // length * length].reshape(-1, length).tolist()


def hugging_face(job: Job) -> tuple[Iterator, float]:
    """Hugging Face's collator for masked language modelling, on rows in memory."""
    import tempfile

    from tokenizers import Tokenizer, models
    from transformers import DataCollatorForLanguageModeling, PreTrainedTokenizerFast

    size = Cache.open(job.directory).token_ids.vocab_size
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = {name: i for i, name in enumerate(names)}
    vocabulary |= {f"w{i}": i for i in range(len(names), size)}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]")).to_str())
        file.flush()
        special = {f"{name[1:-1].lower()}_token": name for name in names}
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=file.name, **special)
    collate = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)
    rows = [{"input_ids": row} for row in rows_in_memory(job.directory, job.length)]
    order = np.random.default_rng(0)

    def batches() -> Iterator:
        while True:
            yield collate([rows[i] for i in order.integers(len(rows), size=ROWS)])

    return batches(), float(job.length)


def t5(job: Job) -> tuple[Iterator, float]:
    """SeqIO and T5's preprocessors, from tokenised documents in memory to converted batches."""
    from t5x_like.data.extras import require

    tf = require("tensorflow", "data")
    import seqio
    from t5.data import preprocessors

    from t5x_like.objectives.span_corruption import random_spans_lengths

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    cache = Cache.open(job.directory)
    split = cache.split("train")
    raw, targets = random_spans_lengths(job.length)
    lengths = {"inputs": job.length, "targets": targets}
    vocabulary = seqio.PassThroughVocabulary(cache.token_ids.vocab_size, eos_id=1)
    features = {name: seqio.Feature(vocabulary) for name in lengths}
    documents = tf.ragged.constant(
        [split.record(i)["targets"] for i in range(min(len(split), 2000))], dtype=tf.int32
    )
    ds = tf.data.Dataset.from_tensor_slices({"targets": documents})
    ds = ds.map(lambda d: {"inputs": tf.zeros(0, tf.int32), "targets": d["targets"]}).repeat()
    with seqio.utils.map_seed_manager(0):
        ds = preprocessors.span_corruption(ds, lengths, features)
    ds = seqio.preprocessors.append_eos(ds, features)
    ds = seqio.EncDecFeatureConverter(pack=False)(ds, lengths)
    return ds.batch(ROWS).as_numpy_iterator(), float(raw)


def _measure(connection: multiprocessing.connection.Connection, job: Job, core: int) -> None:
    """In its own process, answers each request for so many seconds with rows a second."""
    os.sched_setaffinity(0, {core})
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (libraries' log lines)
    try:
        make: Callable = {HUGGING_FACE: hugging_face, T5: t5}.get(job.name, ours)
        batches, raw = make(job)
        for _ in range(3):
            next(batches)
    except ImportError as error:
        connection.send(f"not installed: {error}")
        return
    connection.send(raw)
    while seconds := connection.recv():
        done, start = 0, time.perf_counter()
        while (now := time.perf_counter()) < start + seconds:
            next(batches)
            done += ROWS
        connection.send(done / (now - start))


class Measured:
    """The processes of one job, each bound to one core."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.rates: list[float] = []
        context = multiprocessing.get_context("spawn")
        self._pipes = []
        for core in sorted(os.sched_getaffinity(0)):
            mine, theirs = context.Pipe()
            context.Process(target=_measure, args=(theirs, job, core), daemon=True).start()
            self._pipes.append(mine)
        self.raw, *_ = [pipe.recv() for pipe in self._pipes]

    def round(self, seconds: float) -> None:
        """Measures once, on all cores at the same time."""
        for pipe in self._pipes:
            pipe.send(seconds)
        self.rates += [pipe.recv() for pipe in self._pipes]

    def close(self) -> None:
        """Ends the processes."""
        for pipe in self._pipes:
            pipe.send(0)


def measure(jobs: list[Job], *, rounds: int, seconds: float) -> Iterator[dict]:
    """Rows of the table; rows of one length take turns."""
    measured = []
    for job in jobs:
        made = Measured(job)
        if isinstance(made.raw, str):
            print(f"{job.name}: {made.raw}", flush=True)
        else:
            measured.append(made)
    for _ in range(rounds):
        for one in measured:
            one.round(seconds)
    for one in measured:
        rate = statistics.median(one.rates)
        one.close()
        yield {
            "length": one.job.length,
            "name": one.job.name,
            "examples_per_second_per_core": round(rate),
            "microseconds_per_example": round(1e6 / rate, 1),
            "raw_tokens_per_second_per_core": round(rate * one.raw),
        }


def _beside_peers(name: str) -> int:
    """Sorts objectives that peers have first, so that they take turns with the peers."""
    return name not in ("mlm", "span_corruption")


def main() -> None:
    """Prints the table, and writes it as JSON lines where asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("objectives", nargs="*", help="names of presets (default: all)")
    parser.add_argument("--corpus", help="files of text (default: stdlib_docs)")
    parser.add_argument("--vocabulary", help="that has all special ids (default: one is trained)")
    parser.add_argument("--cache_dir", help="of vocabularies and caches")
    parser.add_argument("--length", type=int, action="append", help="(default: 512 and 128)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a round (default: 1)")
    parser.add_argument("--output", type=Path, help="a file of JSON lines")
    args = parser.parse_args()
    data = Data(
        lengths={},
        corpus=args.corpus,
        mixture_or_task_name=None if args.corpus else "stdlib_docs",
        read_corpus=user_corpus,
        objective=objectives.preset("span_corruption"),
        vocabulary=VocabularyChoice(name=args.vocabulary, size=16_000),
        cache_dir=args.cache_dir,
    )
    (cache,) = data.make_caches()
    names = args.objectives or list(objectives.presets())
    missing = {name: cache.token_ids.missing(objectives.preset(name).needs) for name in names}
    for name in [name for name in names if missing[name]]:
        print(f"{name}: the vocabulary has no {', '.join(missing[name])}")
    names = sorted((name for name in names if not missing[name]), key=_beside_peers)
    for length in args.length or [512, 128]:
        wanted = [*names[:2], HUGGING_FACE, T5, *names[2:]]
        # A few at a time: each keeps a process a core.
        for start in range(0, len(wanted), GROUP):
            jobs = [Job(name, length, str(cache.directory)) for name in wanted[start:][:GROUP]]
            for job in jobs:
                if job.name in names:
                    examples(job)  # what must be planned is, once
            for row in measure(jobs, rounds=args.rounds, seconds=args.seconds):
                print(
                    f"{row['length']:4}  {row['name']:48}"
                    f"{row['examples_per_second_per_core']:>9,} examples/s"
                    f"{row['microseconds_per_example']:>8} us"
                    f"{row['raw_tokens_per_second_per_core'] / 1e6:>8.2f} M raw tokens/s per core",
                    flush=True,
                )
                if args.output:
                    with args.output.open("a") as file:
                        file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
