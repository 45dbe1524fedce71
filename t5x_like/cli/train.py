"""`t5x_like train`: starts, resumes or extends a pretraining run."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from t5x_like.cli.common import arguments, processes
from t5x_like.cli.common.parsers import CommandParser
from t5x_like.core import exit_status
from t5x_like.training.hosts.leaving import leaving_outside_training

if TYPE_CHECKING:
    from t5x_like.runs.run import Run

_EPILOG = """\
examples:
  t5x_like train
      a small T5 on the documentation inside this Python, on all devices
  t5x_like train --recipe bert_base --corpus 'data/*.jsonl.gz'
      a published pretraining run on your own text, vocabulary included; bert-mini is small
  t5x_like train --gin_file=t5_1_1_small --gin_file=runs/pretrain.gin \\
      --model_dir runs/mine --corpus 'data/*.jsonl.gz'
      a published size on your own text; the same command resumes it
  t5x_like train ... --train_steps 200000
      extends a finished run

The run's resolved configuration is saved as MODEL_DIR/config.gin.
"""


def main(argv: list[str]) -> int:
    """Parses the arguments, joins the other processes if there are any, and trains."""
    with leaving_outside_training():
        return _train(argv)


def _train(argv: list[str]) -> int:
    parser = CommandParser(
        "train",
        description="Starts, resumes or extends a pretraining run.",
        epilog=_EPILOG,
    )
    processes.add_run(parser)
    parser.add_argument(
        "--allow_change",
        default="",
        metavar="NAMES",
        help="comma-separated settings that a resumed run may change: seed, batch_size, data",
    )
    parser.add_argument(
        "--tracker",
        action="append",
        default=[],
        choices=("wandb", "mlflow"),
        help="also log to Weights & Biases or MLflow, which take their own settings from the "
        "environment, such as WANDB_PROJECT (may be repeated)",
    )
    args, bindings = arguments.parse(parser, argv)
    allowed = frozenset(filter(None, args.allow_change.split(",")))
    if unknown := allowed - {"seed", "batch_size", "data"}:
        parser.error(f"--allow_change: {', '.join(sorted(unknown))}? seed, batch_size or data")
    arguments.use_seqio_flags(args)
    with processes.joined(args):
        return _run(args, bindings, allowed)


def _run(args: argparse.Namespace, bindings: list[str], allowed: frozenset[str]) -> int:
    from t5x_like.api.pretraining import from_gin
    from t5x_like.api.trackers import TRACKERS

    told = [TRACKERS[name]() for name in args.tracker]
    run = from_gin(*arguments.gin_of(args, bindings), callbacks=told)
    outcome = run.train(allow_change=sorted(allowed))
    if not outcome.left and processes.is_first():
        print(_next(run.run), file=sys.stderr)
    return exit_status.SAVED if outcome.left else exit_status.DONE


def _next(run: Run) -> str:
    """A line about what to do with a run that has ended."""
    from t5x_like.interop.hugging_face import families

    ways = [f"`t5x_like eval {run.model_dir}` for held-out metrics beside baselines"]
    if families.exports(run.abstract_model):
        ways.append(f"`t5x_like export --from {run.model_dir} --to DIR` for transformers")
    return f"Next: {', '.join(ways)}, --train_steps to extend the run."
