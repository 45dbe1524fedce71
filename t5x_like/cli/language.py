"""`t5x_like language`: what a model knows of language, beside chance and simple floors."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t5x_like.cli.common import arguments, opening
from t5x_like.cli.common.parsers import CommandParser
from t5x_like.core import whole_files

if TYPE_CHECKING:
    from t5x_like.evaluation.language.results import Results

_EPILOG = """\
examples:
  t5x_like language runs/bert pairs data/blimp/*.jsonl --examples 2000
  t5x_like language runs/gpt2 lambada data/lambada_test.jsonl
  t5x_like language runs/gpt2 choices data/copa.jsonl
  t5x_like language runs/bert similarity stsb-en-test.csv --train stsb-en-train.csv
  t5x_like language runs/bert analogies questions-words.txt
  t5x_like language runs/bert probe en_ewt-ud-dev.conllu --train en_ewt-ud-train.conllu

pairs       which of two sentences is likelier: JSON lines with sentence_good and sentence_bad,
            a table of two columns, or lines True<tab>sentence followed by False<tab>sentence
lambada     the last word of each line, or of the field text
choices     the likeliest choice: files as those of `t5x_like finetune --kind choices`
similarity  cosines of mean states and ratings: two sentences and a number
analogies   lines of four words, by the vectors of tokens
probe       a linear classifier of each layer: .conll, .conllu, or texts with a class; --train
"""
_NAME, _NUMBER = 54, 12
_DIGITS = 4


def main(argv: list[str]) -> int:
    """Prints the table of an evaluation; writes it as JSON with `--output`."""
    parser = _parser()
    args, bindings = arguments.parse(parser, argv)
    names = ("train", "examples", "seed", "layer", "within_word", "batch_size")
    settings = {name: getattr(args, name) for name in names}
    settings = {name: value for name, value in settings.items() if value is not None}

    from t5x_like.runs.trained import language

    model = opening.load(args, bindings)
    results = language.evaluate(model, args.evaluation, args.files, **settings)
    print("\n".join(_table(results)))
    if args.output:
        text = json.dumps({"evaluation": args.evaluation, "step": model.step, **_json(results)})
        with whole_files.output(Path(args.output)) as file:
            file.write(text.encode())
    return 0


def _parser() -> CommandParser:
    parser = CommandParser(
        "language",
        description="Evaluates what a model knows of language without training it on a task: "
        "minimal pairs, last words, multiple choice, similarity, analogies, linear probes.",
        epilog=_EPILOG,
    )
    parser.add_argument("model_dir", metavar="RUN", help="the run's MODEL_DIR, or imported weights")
    parser.add_argument(
        "evaluation", metavar="EVALUATION", help="what is evaluated: one of those below"
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="the files to evaluate on")
    parser.add_argument(
        "--train",
        nargs="+",
        metavar="FILE",
        help="files that a probe learns from, or whose sentences TF-IDF counts",
    )
    parser.add_argument(
        "--examples",
        type=arguments.positive,
        metavar="N",
        help="read N examples, drawn with --seed (default: all; a probe: 10,000 words or texts)",
    )
    parser.add_argument("--seed", type=int, metavar="N", help="of the draw (default: 0)")
    parser.add_argument(
        "--layer",
        type=int,
        metavar="N",
        help="the layer whose states are read: 0 is the first one's input, -1 the last (default: "
        "the last; a probe: each)",
    )
    parser.add_argument(
        "--within_word",
        action="store_true",
        default=None,
        help="mask the later pieces of a word with each of its pieces (masked models)",
    )
    parser.add_argument(
        "--batch_size", type=arguments.positive, metavar="B", help="rows at once (default: 32)"
    )
    parser.add_argument("--output", metavar="FILE", help="also write the numbers here as JSON")
    opening.add_step(parser)
    opening.add_task_head(parser)
    opening.add_modules(parser)
    opening.add_allow_paths(parser)
    return parser


def _table(results: Results) -> list[str]:
    """Lines of a table: a row for each group of examples, a column for each model or floor."""
    columns = [*dict.fromkeys(column for row in results.rows for column in row.values)]
    widths = [max(_NUMBER, len(column) + 2) for column in columns]
    heads = "".join(f"{c:>{width}}" for c, width in zip(columns, widths, strict=True))
    lines = [f"{'':{_NAME}}{results.unit:>{_NUMBER}}{heads}"]
    for row in results.rows:
        values = "".join(
            f"{_number(row.values.get(c)):>{width}}"
            for c, width in zip(columns, widths, strict=True)
        )
        *above, name = row.name.split("/")
        lines.append(f"{'  ' * len(above) + name:{_NAME}}{row.size:>{_NUMBER},}{values}".rstrip())
    return [*lines, *(f"note: {note}" for note in results.notes)]


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.{_DIGITS}g}" if abs(value) >= 10 else f"{value:.3f}"


def _json(results: Results) -> dict[str, Any]:
    """The results as JSON, with null in place of nan and infinity, which it lacks."""
    rows = [
        {
            "name": row.name,
            "count": row.size,
            **{name: x if math.isfinite(x) else None for name, x in row.values.items()},
        }
        for row in results.rows
    ]
    return {"unit": results.unit, "rows": rows, "notes": [*results.notes]}
