"""How long a run waits for BERT's pairs, by how long their text is tokenised; memory is bounded.

    python benchmarks/planning.py --gigabytes 10

The text is generated (`cache_memory.write_text`) and tokenised with SentencePiece, a worker a core.
Then a run's first step waits for the plan of its pairs of 128 tokens, in the first of ten passes
over the text; a run plans each later pass when it reaches it. Prints a line of JSON: seconds of
tokenising, of the first plan and of all, their ratios, rows, and the peak resident memory of this
process and its workers while they plan. Mapped files count where they are in memory, so pages that
the system can drop at any time are in it; `peak_private_megabytes` is without them.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path

from cache_memory import PeakMemory, vocabulary_of, write_text

from t5x_like.data.cache.reader import Cache
from t5x_like.data.cache.workers import default_workers
from t5x_like.data.cache.writer import write_cache
from t5x_like.data.corpora.text_files import TextFiles
from t5x_like.data.samples.samples import make_samples
from t5x_like.objectives.parts.sentence_pairs import SentencePairs

SPECIALS = 3


def main() -> None:
    """Generates, caches, plans, measures, and cleans up."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gigabytes", type=float, default=1.0, help="size of the text (default 1)")
    parser.add_argument("--length", type=int, default=128, help="tokens of a sample (default 128)")
    parser.add_argument("--passes", type=int, default=10, help="copies of the text (default 10)")
    parser.add_argument(
        "--directory", type=Path, default=None, help="where the text and its cache go for a while"
    )
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="planning_", dir=arguments.directory))
    try:
        text = directory / "text.txt"
        write_text(text, int(arguments.gigabytes * 1e9))
        vocabulary = vocabulary_of("sentencepiece", directory)
        start = time.perf_counter()
        write_cache(directory / "cache", TextFiles(text), vocabulary, workers=default_workers())
        tokenising = time.perf_counter() - start
        split = Cache.open(directory / "cache").split("train")
        shape = SentencePairs(arguments.length - SPECIALS, passes=arguments.passes)
        start = time.perf_counter()
        with PeakMemory() as peak:
            samples = make_samples(shape, split, ids=vocabulary.token_ids)
            planning = time.perf_counter() - start
            rows = len(samples)
        all_passes = time.perf_counter() - start
        result = {
            "text_bytes": text.stat().st_size,
            "rows": rows,
            "seconds_tokenising": round(tokenising, 1),
            "seconds_planning": round(planning, 1),
            "seconds_planning_all_passes": round(all_passes, 1),
            "ratio": round(planning / tokenising, 3),
            "ratio_all_passes": round(all_passes / tokenising, 3),
            "peak_resident_megabytes": round(peak.bytes / 1e6),
            "peak_private_megabytes": round(peak.private / 1e6),
        }
        print(json.dumps(result))
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
