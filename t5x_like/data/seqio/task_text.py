"""The text of a SeqIO task before it is tokenised, which is used to train a vocabulary."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from t5x_like.data.extras import require

if TYPE_CHECKING:
    import seqio
    import tensorflow as tf
else:
    seqio = require("seqio", "data", purpose="a SeqIO task")
    tf = require("tensorflow", "data", purpose="a SeqIO task")


def texts(task: seqio.Task, split: str = "train") -> Iterator[str]:
    """The output features of all examples after the last step that leaves them as text.

    Raises:
      ValueError: the features are not text at any step.
    """
    ds = task.source.get_dataset(split=split, shuffle=False)
    textual = None
    with seqio.utils.map_seed_manager(0):
        for step in task.preprocessors:
            if names := _text_features(ds, task):
                textual = ds, names
            elif textual:
                break
            if isinstance(step, seqio.CacheDatasetPlaceholder):
                continue
            ds = seqio.utils.add_kwargs_to_transform(
                step, sequence_length=None, output_features=task.output_features
            )(ds)
    if textual is None:
        raise ValueError(f"task {task.name!r} has no text to train a vocabulary on")
    ds, names = textual
    for example in ds.as_numpy_iterator():
        for name in names:
            yield example[name].decode(errors="replace")


def _text_features(ds: tf.data.Dataset, task: seqio.Task) -> list[str]:
    spec = ds.element_spec
    return [name for name in task.output_features if name in spec and spec[name].dtype == tf.string]
