"""`t5x_like doctor`: looks at a run, its hosts and its disks, and says what is wrong."""

from __future__ import annotations

import argparse
import dataclasses
import json

from t5x_like.cli.common import arguments, processes
from t5x_like.cli.common.parsers import CommandParser

_EPILOG = """\
examples:
  t5x_like doctor --recipe bert_base --corpus 'data/*.jsonl.gz'
  srun t5x_like doctor --distributed --recipe bert_base --model_dir /share/bert

The arguments are those of `t5x_like train`. No text is tokenised and nothing is trained; MODEL_DIR
is made if it is missing. The status is 1 if the run cannot work.
"""
_MARKS = {"good": "ok", "note": "note", "bad": "WRONG"}


def main(argv: list[str]) -> int:
    """Prints the findings as they come."""
    parser = CommandParser(
        "doctor",
        description="Looks at a run, its hosts and its disks before it starts: devices, versions "
        "and clocks of all hosts, same settings and code, mesh, data, directory, room.",
        epilog=_EPILOG,
    )
    processes.add_run(parser)
    parser.add_argument("--json", action="store_true", help="as JSON")
    args, bindings = arguments.parse(parser, argv)
    arguments.use_seqio_flags(args)
    with processes.joined(args):
        return _examine(args, bindings)


def _examine(args: argparse.Namespace, bindings: list[str]) -> int:
    from t5x_like.api import doctor
    from t5x_like.api.pretraining import from_gin

    loaded = from_gin(*arguments.gin_of(args, bindings))
    findings = []
    for finding in doctor.examine(loaded.run, loaded.config or ""):
        findings.append(finding)
        if processes.is_first() and not args.json:
            print(f"{_MARKS[finding.state]:5}  {finding}", flush=True)
    if processes.is_first() and args.json:
        print(json.dumps([dataclasses.asdict(each_finding) for each_finding in findings], indent=1))
    return int(any(each_finding.state == "bad" for each_finding in findings))
