"""The settings that people set: one word each, on the command line as in Python."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from t5x_like.core.spelling import nearest


@dataclasses.dataclass(frozen=True)
class Setting:
    """A word, and what it sets.

    Attributes:
      target: a macro of the gin files, or a parameter.
      kind: of its value: int, float, str; "texts" is one or several.
      example: a value, for help.
      help: a line about it.
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
        "what to read: a path or glob of text, JSONL, TSV or Parquet files (.gz, .zst too), or "
        "tfds:<name>",
    ),
    "task": Setting(
        "MIXTURE_OR_TASK_NAME",
        "str",
        "NAME",
        "or a corpus by name (stdlib_docs), <corpus>.<objective>, or a registered task or mixture",
    ),
    "model_dir": Setting("MODEL_DIR", "str", "DIR", "of the run; one that is there is resumed"),
    "cache_dir": Setting("CACHE_DIR", "str", "DIR", "of vocabularies and caches"),
    "train_steps": Setting("TRAIN_STEPS", "int", "N", "steps in all; more extend a finished run"),
    "batch_size": Setting("BATCH_SIZE", "int", "ROWS", "of a step, over all devices"),
    "learning_rate": Setting("PEAK_LEARNING_RATE", "float", "RATE", "the highest of the run"),
    "objective": Setting("OBJECTIVE", "str", "NAME", "`t5x_like objectives` lists them"),
    "vocabulary": Setting(
        "VOCABULARY",
        "str",
        "V",
        "bytes, a .model, vocab.txt or tokenizer.json file, or the directory of one",
    ),
    "vocab_size": Setting("VOCAB_SIZE", "int", "N", "pieces of a vocabulary that is trained"),
    "seed": Setting("SEED", "int", "N", "of parameters, order, noise and dropout"),
    "mesh": Setting(
        "partitioning.make_layout.mesh",
        "sizes",
        "AXIS=N,...",
        "of devices, such as data=4,tensor=2",
    ),
}


def bindings(values: Mapping[str, Any]) -> list[str]:
    """Gin bindings that set these words; None leaves one as it is.

    Raises:
      ValueError: a word that is none of `SETTINGS`.
    """
    found = []
    for name, value in values.items():
        if name not in SETTINGS:
            raise ValueError(f"no setting {name!r}" + nearest(name, SETTINGS, of="settings"))
        if value is not None:
            found.append(f"{SETTINGS[name].target}={value!r}")
    return found
