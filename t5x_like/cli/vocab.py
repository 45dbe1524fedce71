"""`t5x_like vocab`: trains a vocabulary of any kind on a corpus or task, or changes one."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from t5x_like.cli.common import arguments
from t5x_like.cli.common.parsers import CommandParser
from t5x_like.core.buckets import sending

if TYPE_CHECKING:
    from t5x_like.data.dataset import Data

_SIZE = 32_000
_EPILOG = """\
examples:
  t5x_like vocab stdlib_docs --size 4000 --output docs.model
  t5x_like vocab --corpus 'data/*.jsonl.gz' --size 32000 --type bpe --output mine.model
  t5x_like vocab stdlib_docs --size 8000 --type wordpiece --lowercase --output uncased
  t5x_like vocab --corpus 'laws/*.txt' --extend imported/bert/vocabulary --size 32000 --output legal
  t5x_like vocab --corpus 'german/*.txt' --trim imported/mt5/vocabulary --output german

Train with it: t5x_like train ... --vocabulary mine.model. The types unigram and bpe (SentencePiece)
make a .model file, which gets its sentinels (<extra_id_0> ...) when it is loaded; the other types
make a directory. Each has the special tokens of every objective. --vocabulary bytes needs no
training.
"""


def main(argv: list[str]) -> int:
    """Trains, extends or trims a vocabulary, writes it and prints its size."""
    parser = CommandParser(
        "vocab",
        description="Trains a vocabulary on a bounded sample of a corpus or task, or changes one.",
        epilog=_EPILOG,
    )
    arguments.add_text(parser)
    _add_vocabulary(parser)
    args = parser.parse_args(argv)

    if args.extend is not None or args.trim is not None:
        lower = args.lowercase or args.keep_accents
        if args.type or lower or args.byte_fallback or args.extra_ids or args.pattern:
            flag = "--trim" if args.extend is None else "--extend"
            parser.error(f"{flag}: the kind and all else are those of the vocabulary it names")
        if args.trim is None:
            return _extend(args)
        if args.size is not None:
            parser.error("--trim: all pieces that the text uses are kept: leave --size out")
        return _trim(args)

    if args.keep_accents and not args.lowercase:
        parser.error("--keep_accents needs --lowercase: otherwise nothing takes them away")

    from t5x_like.vocabularies.learning.vocabulary_recipe import Recipe, train
    from t5x_like.vocabularies.loading import load

    recipe = Recipe(
        kind=args.type or "unigram",
        size=_SIZE if args.size is None else args.size,
        max_sentences=args.max_sentences,
        seed=args.seed,
        character_coverage=args.character_coverage,
        byte_fallback=args.byte_fallback,
        lowercase=args.lowercase,
        strip_accents=False if args.keep_accents else None,
        **({} if args.pattern is None else {"pattern": args.pattern}),
        **({} if args.extra_ids is None else {"extra_ids": args.extra_ids}),
    )
    if recipe.makes_file and args.extra_ids is not None:
        parser.error(f"--extra_ids: a model of type {recipe.kind} gets them when it is loaded")
    with sending.written(args.output) as path:
        file = train(_texts(arguments.text_data(args)), path, recipe)
    vocabulary = load(file)
    pieces = vocabulary.vocab_size - recipe.extra_ids
    print(f"{args.output}: {pieces} pieces, {vocabulary.vocab_size} ids with sentinels")
    return 0


def _extend(args: argparse.Namespace) -> int:
    from t5x_like.vocabularies.learning.vocabulary_recipe import extend
    from t5x_like.vocabularies.loading import load

    base = load(args.extend)
    with sending.written(args.output) as path:
        file = extend(
            _texts(arguments.text_data(args)),
            path,
            base,
            size=_SIZE if args.size is None else args.size,
            max_sentences=args.max_sentences,
            seed=args.seed,
        )
    size = load(file).vocab_size
    print(f"{args.output}: {size} ids, {size - base.vocab_size} more than {args.extend}")
    return 0


def _trim(args: argparse.Namespace) -> int:
    from t5x_like.vocabularies.learning.vocabulary_recipe import trim
    from t5x_like.vocabularies.loading import load

    base = load(args.trim)
    with sending.written(args.output) as path:
        file = trim(
            _texts(arguments.text_data(args)),
            path,
            base,
            max_sentences=args.max_sentences,
            seed=args.seed,
        )
    print(f"{args.output}: {load(file).vocab_size} of {base.vocab_size} ids of {args.trim}")
    return 0


def _add_vocabulary(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("vocabulary")
    group.add_argument(
        "--output",
        required=True,
        metavar="PATH",
        help="the .model file to write (unigram, bpe), or the new directory (the others)",
    )
    group.add_argument("--size", type=int, help=f"pieces (default: {_SIZE})")
    group.add_argument(
        "--type", choices=arguments.VOCAB_TYPES, help="kind of vocabulary (default: unigram)"
    )
    _add_changes(group.add_mutually_exclusive_group())
    group.add_argument(
        "--lowercase",
        action="store_true",
        help="wordpiece, words: no capitals and, as in BERT, no accents",
    )
    group.add_argument(
        "--keep_accents",
        action="store_true",
        help="wordpiece, words: with --lowercase, keep accents, umlauts, vowel signs and tones",
    )
    group.add_argument(
        "--pattern",
        choices=["gpt2", "gpt4o"],
        help="byte_bpe: how text is divided before it is cut in pieces; gpt2 (RoBERTa, BART) cuts "
        "words of scripts with combining marks (default: gpt4o)",
    )
    group.add_argument(
        "--extra_ids",
        type=int,
        metavar="N",
        help="sentinels of a vocabulary that is a directory (default: 100)",
    )
    group.add_argument(
        "--max_sentences",
        type=int,
        default=1_000_000,
        metavar="N",
        help="lines to sample, uniformly (default: 1000000)",
    )
    group.add_argument(
        "--character_coverage",
        type=float,
        default=0.9995,
        metavar="F",
        help="share of the text whose characters the vocabulary has (default: 0.9995)",
    )
    group.add_argument(
        "--byte_fallback", action="store_true", help="unigram, bpe: spell rare characters as bytes"
    )
    group.add_argument("--seed", type=int, default=0, help="seed of the sample (default: 0)")


def _add_changes(group: Any) -> None:
    group.add_argument(
        "--extend",
        metavar="V",
        help="a WordPiece vocabulary to extend in place of training one: its ids stay, and words "
        "that it splits are added up to --size ids",
    )
    group.add_argument(
        "--trim",
        metavar="V",
        help="a vocabulary to make smaller in place of training one: only the pieces that the "
        "sample uses are left; take it with --init_from and --exchange_vocabulary",
    )


def _texts(data: Data) -> Iterator[str]:
    for task in data.find_tasks():
        assert task.text is not None
        yield from task.text.training_texts()
