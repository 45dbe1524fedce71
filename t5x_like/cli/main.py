"""The `t5x_like` command: finds the subcommand, imports its module and runs it."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys

from t5x_like import __version__
from t5x_like.cli.common import errors, garbage, host_memory
from t5x_like.cli.common.lasting_output import lasting_output
from t5x_like.cli.common.parsers import COMPLETES, CommandParser
from t5x_like.core.spelling import nearest

COMMANDS = {
    "train": "pretrain a model: starts, resumes or extends a run",
    "finetune": "train a pretrained model on labelled files",
    "sweep": "fine-tune with several settings and seeds, and compare them",
    "doctor": "look at a run, its hosts and its disks before it starts",
    "eval": "print held-out metrics of a run beside those of baselines",
    "language": "evaluate what a model knows of language, beside floors",
    "predict": "ask a model: answers, blanks, classes, scores, ranks, vectors",
    "plan": "say whether a run fits on absent TPUs, its modelled time and cost",
    "devices": "say which devices JAX finds, on one host or on all of a slice",
    "recipes": "list the recipes of published pretraining runs, or explain one",
    "objectives": "list the pretraining objectives, or explain one",
    "show": "print examples of a task or mixture as people read them",
    "inspect": "list the published models, or the parameters of one",
    "vocab": "train a vocabulary of any kind on a corpus or task",
    "cache": "tokenise a corpus or task once, to files that training reads",
    "import": "turn a model of Hugging Face or T5X into one of t5x_like",
    "export": "write a trained or imported model in Hugging Face's format",
    "merge": "make one model of a run and its adapters, or of several runs",
    "launch": "start, watch and end runs on TPU VMs, Kubernetes, Slurm or by ssh",
    "align": "map word vectors of one language or period to those of another",
    "plot": "draw curves of runs to a PNG: their losses, or other metrics",
    "report": "write a page about runs: curves, samples, time, energy, restarts",
}
MAKING_FILES = ("train", "finetune", "sweep", "vocab", "cache", "import", "export", "merge")
"""Commands that write files: they go on when nobody reads their output any more."""
OTHER_NAMES = {
    "pretrain": "train",
    "evaluate": "eval",
    "infer": "predict",
    "generate": "predict",
    "convert": "import",
    "tokenize": "cache",
    "models": "inspect",
    "fine-tune": "finetune",
    "tune": "finetune",
    "tasks": "objectives",
}
"""Names of commands in other programs, and the commands that they stand for here."""
MODULES = {"import": "import_weights"}
"""Commands whose module has another name, because theirs is a keyword of Python."""


def parser() -> CommandParser:
    """The top-level parser, which knows only the names of the subcommands."""
    width = max(map(len, COMMANDS))
    listing = "\n".join(f"  {name:{width}}  {what}" for name, what in COMMANDS.items())
    top = CommandParser(
        "",
        description="Pretraining of encoder and encoder-decoder language models in JAX.",
        epilog=f"commands:\n{listing}\n\n`t5x_like COMMAND --help` explains each.",
    )
    top.add_argument("--version", action="version", version=f"t5x_like {__version__}")
    top.add_argument("command", metavar="COMMAND", choices=COMMANDS, help="one of those below")
    return top


def main(argv: list[str] | None = None) -> int:
    """Runs one subcommand.

    Args:
      argv: the arguments after the program's name; `sys.argv[1:]` by default.

    Returns:
      The exit status, one of `core.exit_status`; 1 if an error was printed.
    """
    argv = sys.argv[1:] if argv is None else argv
    if COMPLETES in os.environ:
        argv = _completed_command()
    if not argv or argv[0] not in COMMANDS:
        _answer(argv[:1] or ["--help"])
    command = argv[0]
    garbage.collect_seldom()
    if command in ("train", "finetune", "sweep", "eval"):
        host_memory.keep_freed()
    lasting = lasting_output if command in MAKING_FILES else contextlib.nullcontext
    with lasting():
        return _run(command, argv[1:])


def _answer(words: list[str]) -> None:
    """Ends the process where no command is named: help, the version, an error, or completion."""
    top = parser()
    if not words[0].startswith("-"):
        top.error(f"no command {words[0]!r}{_meant(words[0])}")
    top.parse_args(words)


def _completed_command() -> list[str]:
    """The command whose words the shell asks for, if the one before the cursor is whole."""
    words = os.environ["COMP_LINE"][: int(os.environ["COMP_POINT"])].split(" ")
    if len(words) < 3 or words[1] not in COMMANDS:
        return []
    os.environ[COMPLETES] = "2"
    return [words[1]]


def _meant(name: str) -> str:
    """Advice for the name of a command that does not exist."""
    if name in OTHER_NAMES:
        return f": it is `t5x_like {OTHER_NAMES[name]}` here"
    return nearest(name, COMMANDS, of="commands")


def _run(command: str, argv: list[str]) -> int:
    """The exit status of a subcommand."""
    module = importlib.import_module(f"t5x_like.cli.{MODULES.get(command, command)}")
    try:
        status = module.main(argv) or 0
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # The reader, such as `head`, has closed the pipe. Python would raise again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (KeyboardInterrupt, Exception) as error:
        if isinstance(error, Exception) and not errors.is_mendable(error):
            raise
        errors.show(error)
        return errors.status_of(error)


if __name__ == "__main__":
    sys.exit(main())
