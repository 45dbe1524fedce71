"""`t5x_like finetune`: trains a pretrained model on labelled files, or on a task by its name."""

from __future__ import annotations

import argparse
import sys

from t5x_like.cli.common import arguments, finetuning, processes
from t5x_like.cli.common.parsers import CommandParser
from t5x_like.core import exit_status
from t5x_like.training.hosts.leaving import leaving_outside_training

_EPILOG = """\
examples:
  t5x_like finetune runs/mine --train reviews.csv
      classes, numbers or tags, as the file has them; a tenth of the rows is held out
  t5x_like finetune runs/mine --train train.tsv --dev dev.tsv --text sentence --label polarity
      says which columns are the text and the label
  t5x_like finetune runs/t5-mini --train pairs.tsv
      writes the column targets for the column inputs
  t5x_like finetune runs/mine --task sst2 --data_dir data/glue
      a task by its name, from the files of its authors (--tasks lists the names)
  t5x_like finetune runs/mine --task sst2,mrpc,stsb --data_dir data/glue
      several tasks at once, with one body and a head for each
  t5x_like finetune google-bert/bert-base-uncased --train news.conll --epochs 4
      tags of words, from a model of Hugging Face
  t5x_like finetune runs/mine --train train-v2.0.json --dev dev-v2.0.json
      answers to questions as spans of texts, as in SQuAD
  t5x_like finetune runs/mine --train reviews.csv --method lora --rank 4
      trains small new matrices alone, in place of all parameters
  t5x_like predict runs/mine-reviews "a fine film"
      asks the model

The same command resumes a run. Settings that are not given are those of the family's paper.
"""


def main(argv: list[str]) -> int:
    """Parses the arguments, joins the other processes if there are any, and trains."""
    with leaving_outside_training():
        return _finetune(argv)


def _finetune(argv: list[str]) -> int:
    parser = CommandParser(
        "finetune",
        description="Trains a pretrained model on labelled files (classes, numbers, tags, choices, "
        "answers, texts to write), or on a task by its name.",
        epilog=_EPILOG,
    )
    finetuning.add(
        parser,
        task="the task; several, with commas between them, or a .toml file that names files of "
        "each, get one body and a head each",
    )
    run = parser.add_argument_group("draws")
    run.add_argument("--seed", type=int, metavar="N", help="seed of the head, order and dropout")
    run.add_argument(
        "--examples",
        type=finetuning.examples,
        metavar="N",
        help="learn from so many training rows, drawn by the seed, and evaluate at the end alone",
    )
    processes.add_distributed(parser)
    args, bindings = arguments.parse(parser, argv)
    with processes.joined(args):
        return _run(args, bindings)


def _run(args: argparse.Namespace, bindings: list[str]) -> int:
    from t5x_like.api.finetuning import finetune

    given = finetuning.given(args) | {"seed": args.seed, "examples": args.examples}
    if args.task is not None and "," in args.task:
        given["task"] = args.task.split(",")
    run = finetune(args.source, **given, gin=bindings)
    outcome = run.train()
    if not outcome.left and processes.is_first():
        where = run.run.model_dir
        head = f" --task_head {tasks[0]}" if (tasks := run.tasks) else ""
        print(
            f'Next: `t5x_like predict {where}{head} "a text"`, '
            f"`t5x_like export --from {where}{head} --to DIR` for transformers.",
            file=sys.stderr,
        )
    return exit_status.SAVED if outcome.left else exit_status.DONE
