"""Peak memory and speed of caching a generated text file; memory must not grow with its size.

    python benchmarks/cache_memory.py --gigabytes 2 --vocabulary sentencepiece

Prints one line of JSON: bytes of text, seconds, MB/s, and the peak resident memory of this
process and its workers, added up every 50 ms.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from t5x_like.core.protocols.data import Vocabulary
from t5x_like.data.cache.workers import default_workers
from t5x_like.data.cache.writer import write_cache
from t5x_like.data.corpora.text_files import TextFiles
from t5x_like.vocabularies.byte import ByteVocabulary
from t5x_like.vocabularies.learning.sentencepiece_training import train_sentencepiece
from t5x_like.vocabularies.sentencepiece import SentencePieceVocabulary

_POOL_LINES = 40_000
_PAGE = 4096


def text_pool(seed: int = 0) -> list[str]:
    """Lines of 12 made-up words on average, with word frequencies from Zipf's law."""
    rng = np.random.default_rng(seed)
    letters = np.array(list("etaoinshrdlucmfwypvbgk"))
    words = ["".join(rng.choice(letters, rng.integers(1, 10))) for _ in range(20_000)]
    picks = np.minimum(rng.zipf(1.2, [_POOL_LINES, 24]), len(words)) - 1
    lengths = rng.integers(1, 24, _POOL_LINES).tolist()
    return [
        " ".join(words[i] for i in row[:length]) + ".\n"
        for row, length in zip(picks.tolist(), lengths, strict=True)
    ]


def write_text(path: Path, size: int) -> None:
    """Documents of 1 to 40 lines with a blank line between them, `size` bytes or a little more."""
    pool = text_pool()
    rng = np.random.default_rng(1)
    written = 0
    with path.open("w", encoding="utf-8") as file:
        while written < size:
            order = rng.permutation(len(pool)).tolist()
            ends = rng.random(len(pool)) < 0.05
            chunk = "".join(
                pool[i] + "\n" * end for i, end in zip(order, ends.tolist(), strict=True)
            )
            written += file.write(chunk)


def resident(process: int) -> tuple[int, int]:
    """Bytes in memory of a process and all its descendants, and those of no file.

    0 once it is gone.
    """
    try:
        statm = Path(f"/proc/{process}/statm").read_text().split()
        pages, of_files = int(statm[1]), int(statm[2])
        threads = list(Path(f"/proc/{process}/task").iterdir())
        children = [
            int(child) for thread in threads for child in (thread / "children").read_text().split()
        ]
    except (FileNotFoundError, ProcessLookupError):
        return 0, 0
    others = [resident(child) for child in children]
    return (
        pages * _PAGE + sum(whole for whole, _ in others),
        (pages - of_files) * _PAGE + sum(private for _, private in others),
    )


class PeakMemory:
    """Watches this process and its children while it is entered; keeps the highest sums.

    `bytes` are resident; `private` are those that are not pages of files.
    """

    def __init__(self) -> None:
        self.bytes = self.private = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        own = int(Path("/proc/self").resolve().name)
        while not self._done.wait(0.05):
            whole, private = resident(own)
            self.bytes, self.private = max(self.bytes, whole), max(self.private, private)


def vocabulary_of(kind: str, directory: Path) -> Vocabulary:
    """Bytes, or a SentencePiece vocabulary trained on a part of the text."""
    if kind == "bytes":
        return ByteVocabulary()

    def lines() -> Iterator[str]:
        yield from text_pool()[:5000]

    path = directory / "benchmark.model"
    return SentencePieceVocabulary(
        train_sentencepiece(lines(), path, vocab_size=2000, progress=False)
    )


def main() -> None:
    """Generates, caches, measures, and cleans up."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gigabytes", type=float, default=2.0, help="size of the text (default 2)")
    parser.add_argument("--vocabulary", choices=["bytes", "sentencepiece"], default="sentencepiece")
    parser.add_argument("--workers", type=int, default=default_workers(), help="default: cores")
    parser.add_argument(
        "--directory", type=Path, default=None, help="where the text and its cache go for a while"
    )
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="cache_memory_", dir=arguments.directory))
    try:
        text = directory / "text.txt"
        write_text(text, int(arguments.gigabytes * 1e9))
        vocabulary = vocabulary_of(arguments.vocabulary, directory)
        start = time.perf_counter()
        with PeakMemory() as peak:
            manifest = write_cache(
                directory / "cache", TextFiles(text), vocabulary, workers=arguments.workers
            )
        seconds = time.perf_counter() - start
        size = text.stat().st_size
        result = {
            "text_bytes": size,
            "tokens": sum(info.tokens["targets"] for info in manifest.splits.values()),
            "cache_bytes": sum(path.stat().st_size for path in (directory / "cache").iterdir()),
            "workers": arguments.workers,
            "vocabulary": arguments.vocabulary,
            "seconds": round(seconds, 1),
            "megabytes_per_second": round(size / seconds / 1e6, 1),
            "peak_resident_megabytes": round(peak.bytes / 1e6),
        }
        print(json.dumps(result))
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
