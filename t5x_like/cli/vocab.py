"""`t5x_like vocab`: trains a SentencePiece vocabulary on a corpus or task."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from t5x_like.cli import arguments

if TYPE_CHECKING:
    from t5x_like.data.opening import Data

_EPILOG = """\
examples:
  t5x_like vocab stdlib_docs --size 4000 --output docs.model
  t5x_like vocab --corpus 'data/*.jsonl.gz' --size 32000 --type bpe --output mine.model

Train with it: t5x_like train ... --gin.VOCABULARY="'mine.model'". Sentinels (<extra_id_0> ...) are
added when it is loaded; VOCABULARY='bytes' needs no training at all.
"""


def main(argv: list[str]) -> int:
    """Trains a vocabulary, writes its `.model` file and says how large it is."""
    parser = argparse.ArgumentParser(
        prog="t5x_like vocab",
        description="Trains a SentencePiece vocabulary on a bounded sample of a corpus or task.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    arguments.add_text(parser)
    group = parser.add_argument_group("vocabulary")
    group.add_argument("--output", required=True, metavar="FILE", help="the .model file to write")
    group.add_argument("--size", type=int, default=32000, help="pieces (default: 32000)")
    group.add_argument("--type", default="unigram", choices=["unigram", "bpe"])
    group.add_argument(
        "--max_sentences",
        type=int,
        default=1_000_000,
        metavar="N",
        help="lines to sample, uniformly (default: 1000000)",
    )
    group.add_argument(
        "--character_coverage", type=float, default=0.9995, metavar="F", help="(default: 0.9995)"
    )
    group.add_argument(
        "--byte_fallback", action="store_true", help="spell rare characters as bytes, not <unk>"
    )
    group.add_argument("--seed", type=int, default=0, help="of the sample (default: 0)")
    args = parser.parse_args(argv)

    from t5x_like.vocabularies.loading import load
    from t5x_like.vocabularies.training import train_sentencepiece

    file = train_sentencepiece(
        _texts(arguments.text_data(args)),
        args.output,
        vocab_size=args.size,
        model_type=args.type,
        max_sentences=args.max_sentences,
        seed=args.seed,
        character_coverage=args.character_coverage,
        byte_fallback=args.byte_fallback,
    )
    print(f"{Path(file)}: {args.size} pieces, {load(file).vocab_size} ids with sentinels")
    return 0


def _texts(data: Data) -> Iterator[str]:
    from t5x_like.data import sources
    from t5x_like.data.vocabulary_choice import training_texts

    for source in data.find_sources():
        if isinstance(source, sources.CorpusSource):
            yield from training_texts(source.corpus)
        else:
            from t5x_like.data.seqio_text import texts

            yield from texts(source.task)  # type: ignore[attr-defined]
