"""`t5x_like merge`: one model of a run and its adapters, of several runs, or of several steps."""

from __future__ import annotations

from t5x_like.cli.common import opening
from t5x_like.cli.common.parsers import CommandParser

_EPILOG = """\
examples:
  t5x_like merge runs/mine-lora --to merged/mine
      a model whose matrices have the changes of the adapters: it may be fine-tuned again
  t5x_like merge runs/seed-0 runs/seed-1 runs/seed-2 --to merged/soup
      the mean of their parameters, a soup, which often answers better than each of them
  t5x_like merge runs/mine-reviews-sweep --to merged/soup --how greedy
      the mean of those runs of a sweep that make it no worse on held-out rows
  t5x_like merge runs/german runs/french --to merged/both --how ties --density 0.3
      what two runs from one base have learned, where they agree
  t5x_like merge runs/mine --last 5 --to merged/mean
      the mean of the last five checkpoints of a run, which often is better than the last one

The new directory is like that of an import: predict, finetune and export open it.
"""


def main(argv: list[str]) -> int:
    """Reads the runs, and writes one model."""
    parser = CommandParser(
        "merge",
        description="Merges the adapters of a run into its base, or several runs (or several steps "
        "of one) into one model.",
        epilog=_EPILOG,
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a run, an import, or a sweep")
    parser.add_argument(
        "--to", dest="target", required=True, metavar="DIR", help="a new or empty directory"
    )
    parser.add_argument(
        "--how",
        metavar="WAY",
        help="mean of the parameters (default), greedy (of the runs that make it no worse on "
        "held-out rows) or ties, of several runs",
    )
    parser.add_argument(
        "--weights",
        metavar="W,...",
        type=lambda text: [float(weight) for weight in text.split(",")],
        help="of a mean: how much each run counts (default: alike)",
    )
    parser.add_argument(
        "--density", type=float, metavar="D", help="of ties: share that is kept (default: 0.2)"
    )
    parser.add_argument(
        "--scale", type=float, metavar="S", help="of ties: factor of what is added (default: 1)"
    )
    parser.add_argument(
        "--steps",
        metavar="N,...",
        type=lambda text: [int(step) for step in text.split(",")],
        help="the mean of these checkpoints of one run",
    )
    parser.add_argument(
        "--last", type=int, metavar="N", help="the mean of the newest N checkpoints of one run"
    )
    opening.add_step(parser)
    args = parser.parse_args(argv)

    from t5x_like.runs.trained.merging.merged_runs import merge
    from t5x_like.sweeps.table import runs

    line = merge(
        [run for directory in args.runs for run in runs(directory)],
        args.target,
        how=args.how,
        weights=args.weights,
        density=args.density,
        scale=args.scale,
        step=args.step,
        steps=args.steps,
        last=args.last,
    )
    print(line)
    return 0
