"""`t5x_like report`: writes a page about one or several runs."""

from __future__ import annotations

import argparse
import contextlib
import math

from t5x_like.cli.common import arguments, opening
from t5x_like.cli.common.parsers import CommandParser
from t5x_like.core import whole_files
from t5x_like.core.buckets import sending

_EPILOG = """\
examples:
  t5x_like report runs/mine
  t5x_like report runs/mine runs/other --output compared.html
  t5x_like report runs/mine --pue 1.1 --kg_co2e_per_kwh 0.05 --watts_per_device 250
  t5x_like report runs/mine --samples 0

The page needs no network and no other file. It has what the run's directory says, and names what is
missing there. Samples need the run's text, its cache and a checkpoint, which is loaded on the
devices of this machine: leave them out while a run trains there. docs/reports.md says what the
numbers mean.
"""


def main(argv: list[str]) -> int:
    """Writes the page and prints its path."""
    parser = CommandParser(
        "report",
        description="Writes a page about one or several runs: curves beside baselines, time by "
        "kind, restarts, samples with the model's answers, checkpoints, energy, versions, "
        "configuration.",
        epilog=_EPILOG,
    )
    opening.add_runs(parser, output="the page (default: report.html in the first RUN)")
    parser.add_argument(
        "--samples",
        type=arguments.natural,
        default=3,
        metavar="N",
        help="held-out rows of each phase that are shown with the model's answers (default: 3); 0 "
        "reads no checkpoint and uses no device",
    )
    opening.add_modules(parser)
    opening.add_allow_paths(parser)
    group = parser.add_argument_group("energy")
    for name, (metavar, what) in _GIVEN.items():
        group.add_argument(f"--{name}", type=_amount, metavar=metavar, help=what)
    args = parser.parse_args(argv)
    if args.pue is not None and args.pue < 1:
        parser.error("--pue is what a data centre takes for each watt of its machines: at least 1")

    from t5x_like.reporting.report import report
    from t5x_like.training.logs.energy import Assumptions

    amounts = {
        "pue": args.pue,
        "kg_per_kwh": args.kg_co2e_per_kwh,
        "watts_per_device": args.watts_per_device,
    }
    known = {name: value for name, value in amounts.items() if value is not None}
    output = opening.output_of(args, "report.html")
    page = report(
        args.runs,
        Assumptions(**known),
        samples=args.samples,
        modules=args.module,
        allow_paths=args.allow_paths,
    )
    with sending.written(output) as path:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_files.output(path) as file:
            file.write(page.encode())
    print(f"wrote {output}")
    return 0


_GIVEN = {
    "pue": ("PUE", "power usage effectiveness of the data centre (default: 1.58)"),
    "kg_co2e_per_kwh": ("KG", "emissions of the site's electricity (default: 0.4327)"),
    "watts_per_device": (
        "W",
        "power of a device with its share of the host, in place of what was measured or assumed",
    ),
}


def _amount(text: str) -> float:
    value = math.nan
    with contextlib.suppress(ValueError):
        value = float(text)
    if not 0 <= value < 1e9:
        raise argparse.ArgumentTypeError(f"not a number of at least 0: {text!r}")
    return value
