"""`t5x_like sweep`: fine-tunes a model with several settings and seeds in one process."""

from __future__ import annotations

import argparse
import ast
from typing import Any

from t5x_like.cli.common import arguments, finetuning
from t5x_like.cli.common.parsers import CommandParser
from t5x_like.core import exit_status
from t5x_like.training.hosts.leaving import leaving_outside_training

_EPILOG = """\
examples:
  t5x_like sweep runs/mine --train reviews.csv --grid learning_rate=1e-5,2e-5,3e-5
      three rates with three seeds each: nine runs
  t5x_like sweep runs/mine --train reviews.csv --grid batch_size=16,32 --grid WEIGHT_DECAY=0,0.1
      each batch size with each weight decay
  t5x_like sweep runs/mine --train reviews.csv --draw learning_rate=1e-5..1e-3:log --trials 12
      twelve rates, of which logarithms are drawn uniformly
  t5x_like sweep runs/mine --task rte --data_dir data/glue --examples 16,64,256,all --epochs 10
      how good it is by the number of training rows
  t5x_like sweep runs/mine --task glue --data_dir data/glue
      the tasks of GLUE, and the average over them
  t5x_like report runs/mine-reviews-sweep
      a page with the table and its picture

The same command goes on with a sweep. Every run is an ordinary one, in trials/ of the sweep's
folder. docs/sweeps.md says what the numbers mean.
"""


def main(argv: list[str]) -> int:
    """Parses the arguments, trains all runs that have not ended, and prints the table."""
    with leaving_outside_training():
        return _sweep(argv)


def _sweep(argv: list[str]) -> int:
    parser = CommandParser(
        "sweep",
        description="Fine-tunes a pretrained model with several settings and seeds, one run after "
        "another in one process, and prints what they came to. It has all flags of finetune.",
        epilog=_EPILOG,
    )
    finetuning.add(parser, task="the task, or several between commas; glue for those of GLUE")
    group = parser.add_argument_group("the runs")
    group.add_argument(
        "--seeds", type=arguments.positive, default=3, metavar="N", help="of each setting: 3"
    )
    group.add_argument(
        "--grid",
        action="append",
        default=[],
        metavar="NAME=X,Y,...",
        help="a setting of finetune, or one of gin, and its values (may be repeated)",
    )
    group.add_argument(
        "--draw",
        action="append",
        default=[],
        metavar="NAME=LOW..HIGH[:log]",
        help="a setting, and the range from which its values are drawn (may be repeated)",
    )
    group.add_argument("--trials", type=int, metavar="N", help="how often ranges are drawn")
    group.add_argument("--draw_seed", type=int, default=0, metavar="N", help="of the draws: 0")
    group.add_argument(
        "--examples",
        type=lambda text: [finetuning.examples(part) for part in text.split(",")],
        default=[],
        metavar="N,...",
        help="learn from so many training rows, such as 16,64,all; each seed draws its own",
    )
    group.add_argument(
        "--stop_bad",
        action="store_true",
        help="end runs whose best value is worse than the median of finished ones by then",
    )
    args, bindings = arguments.parse(parser, argv)
    return _run(args, bindings)


def _run(args: argparse.Namespace, bindings: list[str]) -> int:
    from t5x_like.api.sweeps import sweep

    given = finetuning.given(args)
    given["task"] = args.task.split(",") if args.task not in (None, "glue") else args.task
    table = sweep(
        args.source,
        **given,
        grid=dict(_grid(text) for text in args.grid),
        draw=dict(_range(text) for text in args.draw),
        trials=args.trials,
        draw_seed=args.draw_seed,
        seeds=args.seeds,
        examples=args.examples,
        stop_bad=args.stop_bad,
        gin=bindings,
    )
    print(table)
    return exit_status.SAVED if table.left else exit_status.DONE


def _grid(text: str) -> tuple[str, list[Any]]:
    """An axis and its values.

    Raises:
      ValueError: it has no values, or they are not Python's where the axis is a setting of gin.
    """
    from t5x_like.sweeps import axes

    name, _, values = text.partition("=")
    parts = values.split(",")
    if not values:
        raise ValueError(f"--grid {text}: name an axis and its values, such as learning_rate=1e-5")
    try:
        if axes.is_macro(name):
            return name, [*ast.literal_eval(f"({values},)")]
        return name, [*map(axes.NUMBERS.get(name, str), parts)]
    except (SyntaxError, ValueError) as error:
        quotes = " Strings have quotes of their own." if axes.is_macro(name) else ""
        raise ValueError(f"--grid {text}: not values of {name}: {error}.{quotes}") from error


def _range(text: str) -> tuple[str, tuple[Any, ...]]:
    """An axis and its range; raises ValueError where it is not one."""
    name, _, ends = text.partition("=")
    ends, _, scale = ends.partition(":")
    low, dots, high = ends.partition("..")
    try:
        if dots and scale in ("", "log"):
            return name, (float(low), float(high), *([scale] if scale else []))
    except ValueError:
        pass
    raise ValueError(f"--draw {text}: a range is such as learning_rate=1e-5..1e-3:log")
