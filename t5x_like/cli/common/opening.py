"""Arguments of commands that open the directories of runs, and what they open."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from t5x_like.api.loaded_model import LoadedModel


def add_runs(parser: argparse.ArgumentParser, *, output: str) -> None:
    """Adds the directories of one or several runs, and `--output` with this help."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a run's MODEL_DIR")
    parser.add_argument("--output", metavar="FILE", help=output)


def output_of(args: argparse.Namespace, name: str) -> str:
    """The file that is to be written; by default `name` in the first run.

    Raises:
      LinkError: this would be outside of the run.
    """
    from t5x_like.core import whole_files

    if args.output:
        return str(args.output)
    output = f"{args.runs[0].rstrip('/')}/{name}"
    whole_files.check_no_link(output, inside=args.runs[0])
    return output


def add_modules(parser: argparse.ArgumentParser) -> None:
    """Adds `--module` to commands that open a directory, which may not name modules to run."""
    parser.add_argument(
        "--module",
        action="append",
        default=[],
        metavar="M",
        help="a module or .py file that the directory's configuration names and that you trust; no "
        "other code than that of t5x_like runs (may be repeated)",
    )


def add_allow_paths(parser: argparse.ArgumentParser) -> None:
    """Adds `--allow_paths` to commands that read the text of a run that they open."""
    parser.add_argument(
        "--allow_paths",
        action="store_true",
        help="read text and a teacher that the run's configuration names outside of its directory, "
        "although this account has not trained with them",
    )


def add_task_head(parser: argparse.ArgumentParser) -> None:
    """Adds `--task_head` to commands that open a directory."""
    parser.add_argument(
        "--task_head",
        metavar="TASK",
        help="the task whose head is used, of a run of several (`finetune --task a,b`)",
    )


def add_step(parser: argparse.ArgumentParser) -> None:
    """Adds `--step` to commands that open a directory."""
    parser.add_argument(
        "--step",
        type=_step,
        metavar="N",
        help="the checkpoint's step, or best: the one that BEST_METRIC ranks first (default: the "
        "newest)",
    )


def _step(text: str) -> int | str:
    if text != "best" and not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number of steps nor best")
    return text if text == "best" else int(text)


def load(
    args: argparse.Namespace, gin_bindings: Sequence[str], *, rows: int | None = None
) -> LoadedModel:
    """The model of the directory that the arguments name, with the head that they name."""
    from t5x_like.api import loading

    model = loading.load(
        args.model_dir,
        step=args.step,
        gin=gin_bindings,
        modules=args.module,
        rows=rows,
        allow_paths=args.allow_paths,
    )
    return headed(model, args)


def headed(model: LoadedModel, args: argparse.Namespace) -> LoadedModel:
    """The model of the task that `--task_head` names, of a run of several; else the model."""
    return model.head(args.task_head) if args.task_head else model
