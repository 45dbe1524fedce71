"""The flags of what is fine-tuned, on which labels and how, for a run and for a sweep."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from t5x_like.cli.common import parsers
from t5x_like.cli.common.parsers import CommandParser


def add(parser: CommandParser, *, task: str) -> None:
    """Adds the source and all flags that a run and a sweep share; `task` is the help of --task."""
    parser.add_argument(
        "source", help="a run, an import, or a model of Hugging Face (a directory or a name)"
    )
    _add_files(parser)
    _add_task(parser, task)
    _add_rows(parser)
    _add_method(parser)
    _add_teacher(parser)
    _add_run(parser)


def given(args: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `t5x_like.finetune` that the flags name, the source aside."""
    from t5x_like.runs.settings.finetuning.distilling import Distilling
    from t5x_like.runs.settings.finetuning.methods import Method

    names = (
        *("task", "data_dir", "train", "dev", "kind", "text", "second", "label", "weight"),
        *("columns", "head", "search", "length", "stride", "pieces", "pack"),
        *("model_dir", "cache_dir", "epochs", "batch_size", "learning_rate"),
        *("class_weights", "label_smoothing", "focal_gamma"),
        *("reinit_layers", "r_drop", "average_last"),
    )
    method = Method(args.method, **{name: getattr(args, name) for name in Method._fields[1:]})
    teacher = Distilling(
        args.teacher, args.distill_weight, args.distill_temperature, args.distill_states
    )
    return {
        **{name: getattr(args, name) for name in names},
        "method": method,
        "teacher": None if teacher == Distilling() else teacher,
    }


def _add_files(parser: CommandParser) -> None:
    """Adds the flags that say what files hold."""
    files = parser.add_argument_group("the labels")
    files.add_argument("--train", nargs="+", metavar="FILE", help="training files")
    files.add_argument("--dev", nargs="+", metavar="FILE", help="held-out files (default: a tenth)")
    files.add_argument(
        "--kind",
        help="classes, several, numbers, ordered, tags, choices, spans or texts (default: as files "
        "are)",
    )
    files.add_argument("--text", metavar="COLUMN", help="the column of the text")
    files.add_argument("--second", metavar="COLUMN", help="the column of a second text")
    files.add_argument("--label", metavar="COLUMN", help="that of the label, or of what to write")
    files.add_argument(
        "--weight", metavar="COLUMN", help="that of how much a row counts in the loss"
    )
    files.add_argument(
        "--columns",
        metavar="NAME,...",
        type=lambda text: text.split(","),
        help="the columns of tables whose first line does not name them",
    )
    files.add_argument(
        "--head", action="store_true", help="T5 learns with a head, in place of writing the label"
    )
    files.add_argument(
        "--search", action="store_true", help="XLNet searches for an answer's end from its start"
    )


def _add_task(parser: CommandParser, text: str) -> None:
    """Adds the flags of tasks by name."""
    tasks = parser.add_argument_group("a task by its name")
    parsers.offer(tasks.add_argument("--task", metavar="NAME", help=text), _tasks)
    tasks.add_argument("--tasks", action=_ListTasks, nargs=0, help="list the tasks, and stop")
    tasks.add_argument(
        "--data_dir",
        metavar="DIR",
        help="folder of the files that its authors publish (default: the data set of `datasets`, "
        "or of TensorFlow Datasets)",
    )


def _add_run(parser: CommandParser) -> None:
    """Adds the settings of a run."""
    run = parser.add_argument_group("the run")
    run.add_argument("--model_dir", metavar="DIR", help="its folder (default: SOURCE-FILES)")
    run.add_argument("--cache_dir", metavar="DIR", help="folder of caches")
    run.add_argument("--epochs", type=float, metavar="N", help="how often the rows are read")
    run.add_argument("--batch_size", type=int, metavar="ROWS", help="rows of a step")
    run.add_argument("--learning_rate", type=float, metavar="RATE", help="highest of the run")
    run.add_argument(
        "--class_weights",
        type=_weights,
        metavar="WEIGHTS",
        help="balanced, or weights of classes in the loss, such as spam=5,ham=1",
    )
    run.add_argument("--label_smoothing", type=float, metavar="SHARE", help="such as 0.1")
    run.add_argument("--focal_gamma", type=float, metavar="POWER", help="focal loss, such as 2")
    run.add_argument("--reinit_layers", type=int, metavar="N", help="last layers that start afresh")
    run.add_argument("--r_drop", type=float, metavar="WEIGHT", help="R-Drop, such as 1")
    run.add_argument(
        "--average_last", type=float, metavar="EPOCHS", help="average the parameters of these"
    )


def _add_rows(parser: CommandParser) -> None:
    """Adds the flags that say how texts become rows."""
    rows = parser.add_argument_group("the rows")
    rows.add_argument("--length", type=int, metavar="TOKENS", help="tokens of a row")
    rows.add_argument(
        "--stride",
        type=int,
        metavar="TOKENS",
        help="from a window of a long text to the next (default: texts are cut; answers: 128)",
    )
    rows.add_argument(
        "--pieces",
        metavar="WHICH",
        help="pieces of a word that carry its tag: first, last, all or mean (default: first)",
    )
    rows.add_argument(
        "--pack", action="store_true", help="rows of training hold several texts, without padding"
    )


def _add_method(parser: CommandParser) -> None:
    """Adds the flags that say what trains."""
    method = parser.add_argument_group("what trains")
    method.add_argument(
        "--method",
        metavar="NAME",
        help="full (default), unfreezing (from the top), head (alone), features (of a frozen "
        "body), bitfit (biases), lora, rslora, dora, ia3, adapters, prefix, prompt, source_encoder",
    )
    method.add_argument(
        "--rank",
        type=_of_layers(int),
        metavar="R",
        help="of lora and its kin (default: 8), or one for each layer, as in 2,2,4,8",
    )
    method.add_argument(
        "--alpha",
        type=_of_layers(float),
        metavar="A",
        help="of lora: its scale (default: 16), or one for each layer",
    )
    method.add_argument(
        "--places",
        metavar="NAME,...",
        type=lambda text: text.split(","),
        help="matrices of a layer that get new parameters: query, key, value, out, wi, wi_0, wi_1, "
        "wo (default: those of the method's paper)",
    )
    method.add_argument(
        "--lora_dropout",
        type=float,
        metavar="P",
        help="of lora and its kin: dropout of what the first new matrix reads (default: 0)",
    )
    method.add_argument("--width", type=int, metavar="N", help="of adapters (default: 64)")
    method.add_argument(
        "--states",
        metavar="WHICH",
        help="of features: mix (of all layers; default), last, or concat:N (the last N layers)",
    )
    method.add_argument(
        "--virtual_tokens", type=int, metavar="N", help="of prefix and prompt (default: 20)"
    )
    method.add_argument("--prompt_text", metavar="TEXT", help="whose tokens a prompt starts as")
    method.add_argument(
        "--source_layers",
        type=int,
        metavar="N",
        help="of source_encoder, a new encoder before BART's for another language (default: 2)",
    )


def _add_teacher(parser: CommandParser) -> None:
    """Adds the flags of task-specific distillation."""
    teacher = parser.add_argument_group("a teacher (distillation)")
    teacher.add_argument(
        "--teacher", metavar="RUN", help="a fine-tuned run of the same labels to learn from, too"
    )
    teacher.add_argument(
        "--distill_weight",
        type=float,
        metavar="W",
        help="share of its answers in the loss; labels have the rest (default: 0.5)",
    )
    teacher.add_argument(
        "--distill_temperature", type=float, metavar="T", help="of probabilities (default: 2)"
    )
    teacher.add_argument(
        "--distill_states",
        type=float,
        metavar="W",
        help="weight of the distance of the states of all layers (default: 0)",
    )


def _of_layers(number: Callable[[str], float]) -> Callable[[str], Any]:
    """The type of a flag that is a number, or one for each layer."""

    def read(text: str) -> float | list[float]:
        numbers = [number(part) for part in text.split(",")]
        return numbers if len(numbers) > 1 else numbers[0]

    return read


def examples(text: str) -> int | str:
    """A number of training rows, or all of them; argparse reports a ValueError."""
    return text if text == "all" else int(text)


def _weights(text: str) -> str | dict[str, float]:
    """The value of --class_weights; argparse reports a ValueError."""
    if "=" not in text:
        return text
    parts = (part.rpartition("=") for part in text.split(","))
    return {name: float(weight) for name, _, weight in parts}


class _ListTasks(argparse.Action):
    """Prints the tasks by name, and ends."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from t5x_like.data.labelled import named_tasks

        tasks = sorted(named_tasks.tasks().items())
        width = max(len(name) for name, _ in tasks)
        print("\n".join(f"{name:{width}}  {task.summary}" for name, task in tasks))
        parser.exit()


def _tasks() -> list[str]:
    from t5x_like.data.labelled import named_tasks

    return [*named_tasks.tasks()]
