"""`t5x_like plot`: draws curves of one or several runs as a PNG."""

from __future__ import annotations

from etils import epath

from t5x_like.cli.common import opening
from t5x_like.cli.common.parsers import CommandParser

_EPILOG = """\
examples:
  t5x_like plot runs/local runs/mine --output compared.png
  t5x_like plot runs/mine --metrics 'train/loss,eval/*accuracy'

Each kind of metric has a panel. Evaluations are dashed, with dots. A dashed horizontal line is what
the frequencies of tokens and labels alone give, a dotted vertical one the begin of a phase.
"""


def main(argv: list[str]) -> int:
    """Draws the curves and prints the path of the picture."""
    parser = CommandParser(
        "plot",
        description="Draws training and held-out loss of one or several runs to a PNG, or other "
        "metrics.",
        epilog=_EPILOG,
    )
    opening.add_runs(parser, output="the PNG (default: loss.png in the first run)")
    parser.add_argument(
        "--metrics",
        metavar="NAMES",
        help="metrics of metrics.jsonl in place of losses: names or patterns, between commas",
    )
    args = parser.parse_args(argv)

    from t5x_like.reporting import drawing

    output = epath.Path(opening.output_of(args, "loss.png"))
    drawing.plot(args.runs, output, metrics=args.metrics)
    print(output)
    return 0
