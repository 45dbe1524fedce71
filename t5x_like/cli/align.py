"""`t5x_like align`: maps one space of word vectors to another, and says how well."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from t5x_like.cli.common import arguments
from t5x_like.cli.common.parsers import CommandParser

if TYPE_CHECKING:
    from t5x_like.evaluation.spaces.comparison import Comparison

_EPILOG = """\
examples:
  t5x_like align english.vec german.vec --seeds en-de.0-5000.txt --test en-de.5000-6500.txt
      two languages: words of a dictionary make the map, others are asked for
  t5x_like align english.vec german.vec --seeds numerals --self_learning --test en-de.txt
      without a dictionary: numbers in digits are the first pairs, and the map finds the others
  t5x_like align texts-1900.vec texts-2000.vec --moved 20 --plot moved.png
      two periods, or two corpora: words written alike make the map; those that moved are shown

Files are those of word2vec (text, or binary if they end with .bin) and GloVe, and may be compressed
text. `t5x_like export --vectors` writes those of a run.
"""


def main(argv: list[str]) -> int:
    """Prints the share of right translations, and what else is asked for."""
    args = _parser().parse_args(argv)

    from t5x_like.evaluation.spaces import comparison, word_vectors

    source, target = (
        word_vectors.read(Path(path), limit=args.words) for path in (args.source, args.target)
    )
    result = comparison.compare(
        source,
        target,
        seeds=args.seeds,
        test=args.test,
        map=args.map,
        self_learning=args.self_learning,
        csls=args.csls,
        seed=args.seed,
    )
    print("\n".join(_lines(result)))
    for word, cosine in result.moved(args.moved):
        here, there = (", ".join(words) for words in result.neighbours(word))
        print(f"moved: {word} ({cosine:.2f}): from {here} to {there}")
    if args.output:
        word_vectors.write(Path(args.output), result.source)
    if args.plot:
        from t5x_like.reporting import space_drawing

        space_drawing.plot(result, args.plot)
    return 0


def _lines(result: Comparison) -> list[str]:
    from t5x_like.display.tables import aligned
    from t5x_like.evaluation.spaces.comparison import AT

    head = ["", *(f"right among {k}" if k > 1 else "right" for k in AT)]
    rows = [[name, *(f"{shares[k]:.3f}" for k in AT)] for name, shares in result.precision.items()]
    sizes = (len(space.words) for space in (result.source, result.target))
    lines = [
        "{:,} words are mapped to {:,}".format(*sizes)
        + f", by {len(result.seeds.rows):,} pairs; {len(result.asked):,} words are asked for.",
        aligned([head, *rows], right={*range(1, len(head))}),
    ]
    if unknown := result.test.unknown:
        lines.append(f"note: {unknown:,} pairs of the test have a word that one space lacks")
    if unknown := result.seeds.unknown:
        lines.append(f"note: {unknown:,} seeds have a word that one space lacks")
    if rounds := result.similarities:
        lines.append(
            f"note: self-learning took {len(rounds)} rounds; the mean cosine of a word and its "
            f"nearest rose from {rounds[0]:.3f} to {rounds[-1]:.3f}"
        )
    return lines


def _parser() -> CommandParser:
    parser = CommandParser(
        "align",
        description="Maps the word vectors of one language, period or corpus to those of another, "
        "and says how often the nearest word is the right translation.",
        epilog=_EPILOG,
    )
    parser.add_argument("source", metavar="SOURCE", help="the file of vectors that are mapped")
    parser.add_argument("target", metavar="TARGET", help="the file of the other vectors")
    parser.add_argument(
        "--seeds",
        default="identical",
        metavar="PAIRS",
        help="the pairs that make the map: a file with two words a line, numerals, or identical: "
        "words written alike (default)",
    )
    parser.add_argument(
        "--test",
        default="identical",
        metavar="PAIRS",
        help="the pairs that are asked for, alike; seeds are left out (default: identical, a fifth "
        "of which is held out where the seeds are identical words, too)",
    )
    parser.add_argument(
        "--map",
        choices=["orthogonal", "least_squares"],
        default="orthogonal",
        help="a rotation (orthogonal Procrustes; default), or any matrix",
    )
    parser.add_argument(
        "--self_learning",
        action="store_true",
        help="find new pairs with the map, and a better map with these, until none is better",
    )
    parser.add_argument(
        "--words",
        type=arguments.positive,
        default=50_000,
        metavar="N",
        help="read the first N words of each file (default: 50,000)",
    )
    parser.add_argument(
        "--csls",
        type=arguments.positive,
        default=10,
        metavar="N",
        help="the neighbours by which CSLS tells words that are near to many (default: 10)",
    )
    parser.add_argument(
        "--moved",
        type=int,
        default=0,
        metavar="N",
        help="show N words that are in both files and farthest apart, of the first 10,000 of each",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of what is held out")
    parser.add_argument("--output", metavar="FILE", help="write the mapped vectors here")
    parser.add_argument("--plot", metavar="PNG", help="draw asked words and their translations")
    return parser
