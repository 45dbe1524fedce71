"""`t5x_like plot`: draws loss curves of one or several runs as a PNG."""

from __future__ import annotations

import argparse

from etils import epath


def main(argv: list[str]) -> int:
    """Draws the curves and prints the path of the picture."""
    parser = argparse.ArgumentParser(
        prog="t5x_like plot",
        description="Draws training and held-out loss of one or several runs to a PNG.",
        epilog="example: t5x_like plot runs/local runs/mine --output compared.png",
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a run's MODEL_DIR")
    parser.add_argument(
        "--output", metavar="FILE", help="the PNG (default: loss.png in the first run)"
    )
    args = parser.parse_args(argv)

    from t5x_like.training.logs import curves

    output = epath.Path(args.output) if args.output else epath.Path(args.runs[0]) / "loss.png"
    curves.plot(args.runs, output)
    print(output)
    return 0
