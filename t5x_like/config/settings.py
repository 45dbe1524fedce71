"""The common settings, each with one name on the command line and in Python."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from t5x_like.config import gin_files, gin_text
from t5x_like.core.spelling import nearest


@dataclasses.dataclass(frozen=True)
class Setting:
    """A setting and its place in the configuration.

    Attributes:
      target: a macro of the gin files, or a parameter.
      kind: the kind of its value: "int", "float", "str", "texts" (one or several), "sizes" or
        "flag" (True where it is named).
      example: a placeholder of the value, for `--help`.
      help: a line about it, for `--help`.
    """

    target: str
    kind: str
    example: str
    help: str


SETTINGS: Mapping[str, Setting] = {
    "corpus": Setting(
        "CORPUS",
        "texts",
        "FILES",
        "the text: a path or glob of text, JSONL, TSV, CSV or Parquet files (also .gz and .zst), "
        "or tfds:<name>",
    ),
    "task": Setting(
        "MIXTURE_OR_TASK_NAME",
        "str",
        "NAME",
        "a corpus by name (stdlib_docs), <corpus>.<objective>, or a registered task or mixture",
    ),
    "sentences": Setting(
        "SENTENCES",
        "str",
        "LANGUAGE",
        "the language by whose rules plain text is cut into sentences, such as de or zh; lines for "
        "one sentence a line",
    ),
    "module": Setting(
        "MIXTURE_OR_TASK_MODULE", "str", "M", "the module or .py file that registers the task"
    ),
    "model_dir": Setting("MODEL_DIR", "str", "DIR", "the run's folder; a run in it is resumed"),
    "cache_dir": Setting("CACHE_DIR", "str", "DIR", "folder of vocabularies and caches"),
    "train_steps": Setting("TRAIN_STEPS", "int", "N", "steps of the run; more extend it"),
    "batch_size": Setting("BATCH_SIZE", "int", "ROWS", "rows of a step, over all devices"),
    "learning_rate": Setting("PEAK_LEARNING_RATE", "float", "RATE", "highest of the run"),
    "objective": Setting("OBJECTIVE", "str", "NAME", "a name from `t5x_like objectives`"),
    "vocabulary": Setting(
        "VOCABULARY",
        "str",
        "V",
        "bytes, a .model, vocab.txt or tokenizer.json file, or the directory of a vocabulary",
    ),
    "init_from": Setting(
        "INIT_FROM",
        "str",
        "DIR",
        "a run, or a model of Hugging Face (a directory, or its name at the hub), to start from "
        "with its sizes and its vocabulary",
    ),
    "add_tokens": Setting(
        "ADD_TOKENS",
        "str",
        "FILE",
        "tokens, one a line, that the vocabulary of --init_from gets besides; each starts as the "
        "mean of its pieces",
    ),
    "exchange_vocabulary": Setting(
        "EXCHANGE_VOCABULARY",
        "flag",
        "",
        "--vocabulary takes the place of that of --init_from: ids of the same piece keep their "
        "rows, others start as the mean of the old pieces of their text",
    ),
    "grow": Setting(
        "GROW",
        "flag",
        "",
        "the recipe's model is larger than that of --init_from, and its parameters repeat those",
    ),
    "vocab_size": Setting("VOCAB_SIZE", "int", "N", "pieces of a trained vocabulary"),
    "seed": Setting("SEED", "int", "N", "seed of parameters, order, noise and dropout"),
    "mesh": Setting(
        "partitioning.make_layout.mesh",
        "sizes",
        "AXIS=N,...",
        "mesh of devices, such as data=4,tensor=2",
    ),
}


def macros() -> list[str]:
    """The macros of a run's gin files: every setting that has a name of its own."""
    text = (gin_files.gin_root() / "runs" / "pretrain.gin").read_text(encoding="utf-8")
    return [binding.selector for binding in gin_text.read(text).bindings if not binding.parameter]


def bindings(values: Mapping[str, Any]) -> list[str]:
    """Gin bindings for settings by name; a value of None sets nothing.

    Raises:
      ValueError: a name is not in `SETTINGS`.
    """
    lines = []
    for name, value in values.items():
        if name not in SETTINGS:
            raise ValueError(f"no setting {name!r}" + nearest(name, SETTINGS, of="settings"))
        if value is not None:
            lines.append(f"{SETTINGS[name].target}={value!r}")
    return lines
