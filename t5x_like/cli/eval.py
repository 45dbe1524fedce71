"""`t5x_like eval`: prints held-out metrics of a run beside those of baselines."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from t5x_like.cli.common import arguments, opening
from t5x_like.cli.common.parsers import CommandParser
from t5x_like.core import whole_files
from t5x_like.training.logs.shown_values import number

Columns = dict[str, dict[str, float]]

_EPILOG = """\
examples:
  t5x_like eval runs/base
  t5x_like eval runs/sst2 --task sst2 --split test --step best --module my_tasks.py
  t5x_like eval runs/sums --corpus more_sums.tsv
  t5x_like eval runs/mine-mnli --task mnli_mismatched --data_dir data/glue

"untrained" is the same model with newly drawn parameters. "unigram" gives each token its frequency
in the training text (add-one smoothed), each label of sentence pairs its frequency, and each token
of ELECTRA's text the same chance to be replaced ("text" leaves out special tokens, which are never
replaced; a random guess has an AUC of 0.5). Losses are in nats, those of tokens per token; a
perplexity is the exponential of a loss. For encoder-decoders, "content" leaves out sentinels and
end of sequence, which are easy. "blanked" is the trained model with every ordinary encoder token
replaced by padding, while sentinels stay: what it knows without the text around the blanks.
"""
_NAME, _NUMBER = 34, 12


def main(argv: list[str]) -> int:
    """Prints the metrics of every task of the run; writes them as JSON with `--output`."""
    parser = _parser()
    args, bindings = arguments.parse(parser, argv)
    if args.task and args.corpus:
        parser.error("--task and --corpus exclude each other")
    if not (args.task or args.corpus) and args.predictions:
        parser.error("--predictions needs --task or --corpus")
    if args.data_dir and not args.task:
        parser.error("--data_dir needs --task, whose files it holds")
    if args.split and not args.task:
        parser.error("--split needs --task: of files all documents are evaluated")

    model = opening.load(args, bindings, rows=args.batch_size)
    results = model.evaluate(
        task=args.task,
        data_dir=args.data_dir,
        corpus=args.corpus,
        split=args.split or "validation",
        batches=args.batches,
        predictions=args.predictions,
    )
    assert model.run is not None
    print(f"step {model.step}, {model.run.program.parameter_count:,} parameters")
    for name, columns in results.items():
        print("\n".join([f"{name}:", *_table(columns)]))
    if args.output:
        text = json.dumps({"step": model.step, "tasks": _finite(results)}, indent=1)
        with whole_files.output(Path(args.output)) as file:
            file.write(text.encode())
    return 0


def _parser() -> CommandParser:
    parser = CommandParser(
        "eval",
        description="Prints held-out metrics of a run, beside those of an untrained model, a "
        "unigram model and, for encoder-decoders, a blanked encoder; or metrics and predictions "
        "of another task, split or file.",
        epilog=_EPILOG,
    )
    parser.add_argument("model_dir", metavar="RUN", help="the run's MODEL_DIR")
    opening.add_step(parser)
    opening.add_task_head(parser)
    parser.add_argument(
        "--batch_size", type=int, default=32, metavar="B", help="rows of a batch (default: 32)"
    )
    parser.add_argument(
        "--batches",
        type=arguments.positive,
        metavar="N",
        help="the most batches of each task to read (default: 50, or all with --task or --corpus)",
    )
    parser.add_argument("--output", metavar="FILE", help="also write the numbers here as JSON")
    group = parser.add_argument_group("another task, split or file")
    group.add_argument(
        "--task",
        metavar="NAME",
        help="a task or mixture: its author's metrics, or else exact_match, and predictions",
    )
    group.add_argument(
        "--data_dir",
        metavar="DIR",
        help="folder of the files of a task of `t5x_like finetune --tasks` (default: the data set "
        "of `datasets`, or of TensorFlow Datasets)",
    )
    group.add_argument("--split", metavar="S", help="the split of the task (default: validation)")
    group.add_argument(
        "--corpus",
        nargs="+",
        metavar="FILES",
        help="files in place of a task: rows with inputs and targets, or plain text",
    )
    group.add_argument(
        "--predictions",
        metavar="FILE",
        help="a .jsonl file or a folder for predictions beside targets (default: RUN/predictions); "
        "the same command goes on where it was killed",
    )
    opening.add_modules(parser)
    opening.add_allow_paths(parser)
    return parser


def _table(columns: Columns) -> list[str]:
    """Lines of a table: a row for each metric, a column for each model."""
    lines = [" " * _NAME + "".join(f"{who:>{_NUMBER}}" for who in columns)]
    for name in dict.fromkeys(name for metrics in columns.values() for name in metrics):
        values = [
            ""
            if name not in metrics
            else number(metrics[name], metrics.get("loss", math.nan), ".4f")
            for metrics in columns.values()
        ]
        shown = "".join(f"{value:>{_NUMBER}}" for value in values)
        lines.append(f"  {name:{_NAME - 2}}{shown}".rstrip())
    return lines


def _finite(values: Any) -> Any:
    """The values with null in place of nan and infinity, which JSON lacks."""
    if isinstance(values, dict):
        return {name: _finite(value) for name, value in values.items()}
    return values if math.isfinite(values) else None
