"""`t5x_like show`: prints examples of a task or mixture as people read them."""

from __future__ import annotations

import argparse
import dataclasses
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from t5x_like.cli.common import arguments
from t5x_like.cli.common.parsers import CommandParser
from t5x_like.core import whole_files
from t5x_like.core.buckets import sending

if TYPE_CHECKING:
    from t5x_like.data.streams.stream import Examples
    from t5x_like.data.task import Task
    from t5x_like.display.example_view import ExampleView

_EPILOG = """\
examples:
  t5x_like show stdlib_docs.span_corruption --start 100
  t5x_like show stdlib_docs.mlm_nsp -n 5 --length 64
  t5x_like show --corpus 'data/*.txt' --objective bart --vocabulary mine.model --html bart.html
  t5x_like show my_mixture --module my_tasks.py --lengths inputs=128,targets=32 --pack
  t5x_like show runs/mine/bad_batches/step_1234.npz    the batch of a step whose numbers were bad

The first call tokenises the text into a cache, which training with the same vocabulary reads too.
Examples come in the order of the cache, with the noise of the first epoch.
"""


def main(argv: list[str]) -> int:
    """Prints examples of the named tasks, or writes them as a page."""
    args = _parser().parse_args(argv)

    from t5x_like.display import example_html, example_text

    groups: dict[str, dict[str, ExampleView]] = {}
    summaries = {}
    if args.task and args.task.endswith(".npz"):
        groups[args.task], summaries[args.task] = _batch(args)
    else:
        for examples in _examples(_tasks(args), args):
            groups[examples.task.name] = dict(_views(examples, args))
            summaries[examples.task.name] = _summary(examples)
    if args.html:
        title = args.task or ", ".join(args.corpus)
        headings = {f"{name}: {summaries[name]}": group for name, group in groups.items()}
        page = example_html.page(title, headings)
        with sending.written(args.html) as path, whole_files.output(path) as file:
            file.write(page.encode())
        print(f"wrote {args.html}")
        return 0
    colour = _colour(args.color)
    width = min(shutil.get_terminal_size().columns, 120)
    for name, group in groups.items():
        print(f"{name}: {summaries[name]}")
        for place, example in group.items():
            print(f"\n{place}")
            print(example_text.render(example, colour=colour, width=width))
    if not colour:
        print(f"\nmarks: {example_text.LEGEND}")
    return 0


def _parser() -> CommandParser:
    parser = CommandParser(
        "show",
        description="Prints examples of a task or mixture: inputs over targets, what is masked, "
        "replaced or kept, lengths, padding and loss weights.",
        epilog=_EPILOG,
    )
    arguments.add_text(parser)
    parser.add_argument(
        "--objective",
        metavar="O",
        help=f"the objective, if TASK names none (default: {arguments.OBJECTIVE})",
    )
    arguments.add_vocabulary(parser, size=8000)
    group = parser.add_argument_group("examples")
    group.add_argument(
        "-n", type=arguments.positive, default=3, metavar="N", help="how many rows (default: 3)"
    )
    group.add_argument(
        "--start",
        type=arguments.natural,
        default=0,
        metavar="R",
        help="the first row (default: 0)",
    )
    group.add_argument(
        "--split",
        default="train",
        choices=["train", "validation"],
        help="trained or held-out text (default: train)",
    )
    group.add_argument(
        "--length",
        type=arguments.positive,
        default=128,
        metavar="L",
        help="tokens of a row (default: 128)",
    )
    group.add_argument(
        "--lengths",
        type=arguments.feature_lengths,
        metavar="F=N,F=N",
        help="task feature lengths, in place of the objective's for --length",
    )
    group.add_argument("--pack", action="store_true", help="put several short examples in a row")
    group.add_argument("--seed", type=int, default=0, help="seed of the noise (default: 0)")
    group = parser.add_argument_group("output")
    group.add_argument(
        "--color",
        default="auto",
        choices=["auto", "always", "never"],
        help="colours in place of marks (default: auto, in terminals)",
    )
    group.add_argument("--html", metavar="FILE", help="write an HTML page instead")
    return parser


def _batch(args: argparse.Namespace) -> tuple[dict[str, ExampleView], str]:
    """Rows of the batch of a bad step, and what it is."""
    from t5x_like.core.buckets import storage
    from t5x_like.display.example_view import batch_view
    from t5x_like.runs import run_directory
    from t5x_like.training.health import bad_batches

    path = storage.path(args.task)
    batch = bad_batches.read(path)
    vocabulary = run_directory.read_vocabulary(path.parent.parent)
    (rows,) = {len(values) for values in batch.values()}
    shown = range(args.start, min(args.start + args.n, rows))
    if not shown:
        raise ValueError(f"--start {args.start}: there are {rows} rows in {path}, from 0 on")
    views = {
        f"row {n}": batch_view({name: values[n] for name, values in batch.items()}, vocabulary)
        for n in shown
    }
    return views, f"the batch of step {bad_batches.step_of(path)}, {rows} rows"


def _tasks(args: argparse.Namespace) -> Sequence[Task]:
    data = arguments.text_data(
        args,
        objective=args.objective or arguments.OBJECTIVE,
        vocabulary=arguments.vocabulary_choice(args),
    )
    if args.objective and any(objective != data.objective for objective in data.task_objectives()):
        raise ValueError(
            f"--objective {args.objective} is for plain text that is named without an objective: "
            "leave it out here"
        )
    usual = data.usual_lengths(args.length)
    if args.lengths and args.lengths.keys() != usual.keys():
        raise ValueError(f"--lengths: {_other_names(args.lengths, usual)}")
    return dataclasses.replace(data, lengths=args.lengths or usual).open()


def _other_names(lengths: Mapping[str, int], wanted: Mapping[str, int]) -> str:
    """The part of an error about features without length and lengths without feature."""
    parts = []
    if missing := wanted.keys() - lengths.keys():
        parts.append(f"lacks {', '.join(sorted(missing))}")
    if unknown := lengths.keys() - wanted.keys():
        parts.append(f"has {', '.join(sorted(unknown))}, which the examples lack")
    return f"{'; '.join(parts)}; give the lengths of {' and '.join(wanted)}"


def _examples(tasks: Sequence[Task], args: argparse.Namespace) -> list[Examples]:
    from t5x_like.data.rows.feature_converters import default_converter
    from t5x_like.data.streams import mixtures

    rows = 2  # for objectives with carried rows, some of which need an even number
    shown = [
        examples
        for task in tasks
        for examples in mixtures.examples(
            [task],
            args.split,
            converter=default_converter(task.objective, pack=args.pack),
            seed=args.seed,
            rows=rows,
        )
    ]
    if not shown:
        raise ValueError(f"no task has examples in split {args.split!r}")
    return shown


def _views(examples: Examples, args: argparse.Namespace) -> Iterator[tuple[str, ExampleView]]:
    """The place of each example and its view."""
    from t5x_like.display.example_view import view

    task = examples.task
    end = args.start + args.n
    if end > _epoch_rows(examples):  # to count the rows of all epochs may take long
        end = min(end, len(examples))
    if args.start >= end:
        raise ValueError(
            f"--start {args.start}: there are {len(examples)} rows of {task.name}, from 0 on"
        )
    for n in range(args.start, end):
        for k, features in enumerate(examples.features(n)):
            place = f"row {n}, example {k}" if args.pack else f"row {n}"
            yield place, view(features, task.features, task.vocabulary)


_LOOKED_AT = 100


def _summary(examples: Examples) -> str:
    """How many rows there are, and how full the first hundred are."""
    from t5x_like.data.samples.packing import PackedSamples

    looked_at = min(_epoch_rows(examples), _LOOKED_AT)
    filled: dict[str, list[float]] = {}
    for n in range(looked_at):
        for name, share in _shares(examples[n]).items():
            filled.setdefault(name, []).append(share)
    shares = ", ".join(f"{name} {sum(values) / looked_at:.1%}" for name, values in filled.items())
    parts = [f"{_epoch_rows(examples):,} rows an epoch"]
    if isinstance(examples.samples, PackedSamples):
        full = examples.samples.efficiency
        parts.append("packed " + ", ".join(f"{name} {share:.1%}" for name, share in full.items()))
    if looked_at:
        parts.append(f"of the first {looked_at}: {shares}")
    return "; ".join(parts)


def _epoch_rows(examples: Examples) -> int:
    """The rows of the first epoch; 0 if there are none."""
    return examples.epochs.epoch_of(0).size if examples.samples else 0


def _shares(row: Mapping) -> dict[str, float]:
    """The shares of a row's places that hold tokens or have loss weight."""
    shares = {}
    if "encoder_attention_mask" in row:
        shares["tokens in inputs"] = float(row["encoder_attention_mask"].mean())
    if "masked_loss_weights" in row:
        shares["predictions used"] = float(row["masked_loss_weights"].mean())
    if "decoder_loss_weights" in row:
        shares["targets scored"] = float((row["decoder_loss_weights"] > 0).mean())
    return shares


def _colour(wanted: str) -> bool:
    if wanted == "auto":
        return sys.stdout.isatty() and "NO_COLOR" not in os.environ
    return wanted == "always"
