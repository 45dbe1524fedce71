"""What a run cannot learn from its training examples: lines for its log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from t5x_like.data.order import spread
from t5x_like.data.samples.passes import Passes

if TYPE_CHECKING:
    from t5x_like.data.stream import Examples

_LOOKED_AT = 256
_RANDOM_OR_NEXT = "next_sentence_label"


def notes(examples: Examples) -> Iterator[str]:
    """Lines about a training text: how much of it is cut off, and labels that teach nothing."""
    yield from _cut(examples)
    yield from _labels(examples)


def _cut(examples: Examples) -> Iterator[str]:
    """How many examples of inputs and targets are longer than the model reads."""
    task = examples.task
    if task.objective is not None or task.cache is None:
        return
    split = task.cache.split("train")
    for name, length in task.lengths.items():
        if name not in split.offsets:
            continue
        if cut := split.longer(name, length - (name in (task.eos or {}))):
            yield (
                f"{cut:,} of {len(split):,} {name} of {task.name} are cut at {length} tokens "
                "(TASK_FEATURE_LENGTHS)"
            )


def _labels(examples: Examples) -> Iterator[str]:
    """Which labels of pairs of texts are always the same, or cannot be told from the texts."""
    task = examples.task
    names = [name for name in task.features if name.endswith("_label")]
    if not names or (isinstance(examples.samples, Passes) and not examples.samples.is_planned):
        return
    places = spread(examples.epochs.epoch_of(0).size, _LOOKED_AT)
    found = [one for n in places for one in examples.features(n)]
    for name in names:
        labels = {int(one[name]) for one in found}
        if len(found) > 1 and len(labels) == 1:
            yield (
                f"{name} is {labels.pop()} in all {len(found):,} examples of {task.name} that were "
                "looked at, so it teaches nothing: a pair needs a document of several sentences "
                "(CORPUS_SEPARATOR, SENTENCES)"
            )
        elif name == _RANDOM_OR_NEXT and task.documents() == 1:
            yield (
                f"{task.name} is one document, so random second texts come from the document of "
                f"the first ones, and {name} teaches next to nothing: divide the text into more "
                "documents (CORPUS_SEPARATOR)"
            )
