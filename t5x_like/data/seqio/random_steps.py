"""Tells which steps of a SeqIO task draw random numbers: a cache would fix their results."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from t5x_like.data.extras import require
from t5x_like.data.seqio.step_calls import run_arguments, step_name

if TYPE_CHECKING:
    import tensorflow as tf
else:
    tf = require("tensorflow", "data", purpose="a SeqIO task")

DRAW_ONCE = ("t5.data.preprocessors.trivia_qa_truncate_inputs",)
"""Steps whose draws may be the same in every epoch: they draw the part of a text that is read."""

_RANDOM = re.compile("(Random|Multinomial|Stateful|Rng|(Parameterized)?TruncatedNormal)")
"""The beginnings of the names of TensorFlow's operations that draw anew whenever they run.

`map_over_dataset(num_seeds=1)` has its seeds from a `RandomDataset`.
"""


def takes_seeds(step: Callable) -> bool:
    """Whether a step has SeqIO's argument for random seeds."""
    return not run_arguments(step).isdisjoint({"seed", "seeds"})


def first_drawing(
    steps: Iterable[tuple[Callable, Callable[[tf.data.Dataset], tf.data.Dataset]]],
    ds: tf.data.Dataset,
) -> str | None:
    """The name of the first step that draws random numbers, also within; None if there is none.

    Args:
      steps: each step, and the step with its arguments.
      ds: what the first of them takes. It is not read, unless a step reads it as it is called.
    """
    for step, apply in steps:
        # Behind a generator, the operations and the texts of `ds` are not part of the graph.
        behind = tf.data.Dataset.from_generator(
            functools.partial(iter, ds), output_signature=ds.element_spec
        )
        operations = _operations(apply(behind))
        if step_name(step) not in DRAW_ONCE and any(map(_RANDOM.match, operations)):
            return step_name(step)
        ds = apply(ds)
    return None


def _operations(ds: tf.data.Dataset) -> Iterable[str]:
    """The names of the operations that make a data set, also within functions."""
    ignore = 1  # an operation may have a state that the graph does not hold
    graph = tf.compat.v1.GraphDef.FromString(
        tf.raw_ops.DatasetToGraphV2(
            input_dataset=tf.data.experimental.to_variant(ds), external_state_policy=ignore
        ).numpy()
    )
    for nodes in [graph.node, *(function.node_def for function in graph.library.function)]:
        yield from (node.op for node in nodes)
