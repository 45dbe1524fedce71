"""Writes the evaluation examples of a SeqIO task, as `seqio.Evaluator` reads them, to a file."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from t5x_like.core import progress as bars
from t5x_like.data.extras import require
from t5x_like.data.seqio.task_cache import is_cached, task_fingerprint
from t5x_like.data.task_files import evaluation_files

if TYPE_CHECKING:
    import seqio
    import tensorflow as tf
else:
    seqio = require("seqio", "data", purpose="a SeqIO task")
    tf = require("tensorflow", "data", purpose="a SeqIO task")

_SEED = 42
"""The seed of `seqio.Evaluator`."""


def fingerprint(task: seqio.Task, split: str) -> str:
    """A hex digest of what decides the examples of a split, besides the feature lengths.

    Raises:
      ValueError: the task has no such split.
    """
    if split not in task.splits:
        raise ValueError(
            f"task {task.name!r} has no split {split!r}; its splits are {', '.join(task.splits)}"
        )
    eos = {name: feature.add_eos for name, feature in task.output_features.items()}
    whole = f"{task_fingerprint(task, splits=(split,), every_step=True)} {eos}"
    return hashlib.sha256(whole.encode()).hexdigest()


def write(file: Path, task: seqio.Task, *, split: str, lengths: Mapping[str, int]) -> None:
    """Writes all examples of a split, with a bar on standard error.

    Features that are not dense numbers or texts are left out, with a note.

    Raises:
      ValueError: the task has no such split, or cannot make its examples.
    """
    digest = fingerprint(task, split)
    ds = task.get_dataset(
        dict(lengths), split=split, shuffle=False, seed=_SEED, use_cached=is_cached(task)
    )
    dtypes = {}
    for name, spec in ds.element_spec.items():
        if isinstance(spec, tf.TensorSpec) and spec.dtype == tf.string:
            dtypes[name] = "bytes"
        elif isinstance(spec, tf.TensorSpec) and spec.dtype.is_numpy_compatible:
            dtypes[name] = spec.dtype.name
        else:
            print(
                f"task {task.name!r}: feature {name!r} is left out of the evaluation examples: "
                f"{spec} is not a dense array",
                file=sys.stderr,
            )
    examples = bars.bar(
        ds.as_numpy_iterator(), desc=f"{task.name} {split}, to evaluate on", unit=" examples"
    )
    evaluation_files.write(file, examples, dtypes=dtypes, fingerprint=digest)
