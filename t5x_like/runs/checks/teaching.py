"""Lines for the log about what a run cannot learn from its examples or in its precision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from t5x_like.core.protocols.data import names
from t5x_like.data.corpora import scripts
from t5x_like.data.corpora.sentences import language_of_rule
from t5x_like.data.samples.order import spread
from t5x_like.data.samples.passes import Passes
from t5x_like.data.task import in_words
from t5x_like.objectives.parts.geometry import PerRecord

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import Objective
    from t5x_like.data.streams.stream import Examples
    from t5x_like.data.task import Task

_MUCH = 0.02
"""The share of unknown tokens in a text that is worth a note."""
_LOOKED_AT = 256
_READ = 200
"""Tokens of a document whose script is asked."""
_RANDOM_OR_NEXT = "next_sentence_label"


def notes(examples: Examples) -> Iterator[str]:
    """Lines about a training text: what is cut off, labels that teach nothing, another script."""
    yield from _cut(examples)
    yield from _words(examples.task)
    yield from _unknown(examples.task)
    yield from _labels(examples)
    yield from _other_script(examples.task)


def of_precision(dtype: str) -> Iterator[str]:
    """A line about gradients that the type of the computation is too narrow for."""
    if dtype == "float16":
        yield (
            "gradients below 6e-8 are 0 in float16, for which no loss is scaled here: bfloat16 has "
            "the range of float32 (DTYPE)"
        )


def of_columns(task: Task, chosen: Objective | None) -> Iterator[str]:
    """A line about the objective of the configuration, where the text has other columns."""
    if chosen is not None and {*task.objective.reads} != {*chosen.reads}:
        yield (
            f"{task.name} has {' and '.join(names(task.objective.reads))}: it is learned as "
            f"{type(task.objective).__name__}. OBJECTIVE, {type(chosen).__name__}, is for "
            f"{in_words(chosen.reads)} and is not used"
        )


def _cut(examples: Examples) -> Iterator[str]:
    """How many examples of inputs and targets are longer than the model reads."""
    task = examples.task
    geometry = task.objective.geometry(task.lengths)
    if not isinstance(geometry, PerRecord):
        yield from _shorter_than_usual(task, task.objective)
        return
    if task.cache is None:
        return
    split = task.cache.split("train")
    for group in geometry.groups:
        if cut := split.longer_together(group, geometry.pair_room):
            yield (
                f"{cut:,} of {len(split):,} rows of {task.name} are cut at "
                f"{task.lengths['inputs']} tokens of {' and '.join(group)} (TASK_FEATURE_LENGTHS)"
            )
    if geometry.groups:
        return
    if geometry.pair is not None:
        if cut := split.longer_together(geometry.pair, geometry.pair_room):
            yield (
                f"{cut:,} of {len(split):,} pairs of {task.name} are cut at "
                f"{task.lengths['inputs']} tokens (TASK_FEATURE_LENGTHS)"
            )
        return
    for name, length in task.lengths.items():
        if name not in split.offsets:
            continue
        most = geometry.room.get(name, length) - (name in (task.eos or {}))
        if cut := split.longer(name, most):
            yield (
                f"{cut:,} of {len(split):,} {name} of {task.name} are cut at {length} tokens "
                "(TASK_FEATURE_LENGTHS)"
            )


def _words(task: Task) -> Iterator[str]:
    """How many rows lose words, and how many words are not known."""
    if task.cache is None:
        return
    split, unknown = task.cache.split("train"), task.token_ids.unk
    room = getattr(task.objective.geometry(task.lengths), "room", {})
    for column in task.cache.manifest.columns:
        if column.holds != "words":
            continue
        if (most := room.get(column.name)) and (cut := split.longer(column.name, most)):
            yield (
                f"{cut:,} of {len(split):,} rows of {task.name} lose their last words and the tags "
                f"of these: they have more than {most} tokens (TASK_FEATURE_LENGTHS)"
            )
        if unknown is not None and (count := int(split.counts[column.name][unknown])):
            yield (
                f"{count:,} of {split.counts[column.name].sum():,} tokens of the words of "
                f"{task.name} are unknown ones: the vocabulary lacks them, or leaves nothing of a "
                "word. The words keep their tags"
            )


def _unknown(task: Task) -> Iterator[str]:
    """How much of labelled texts the vocabulary does not know, as that of another language."""
    if task.cache is None or task.objective.answers is None or task.token_ids.unk is None:
        return
    counts = task.cache.split("train").counts
    for column in task.cache.manifest.columns:
        if column.holds not in ("text", "passage"):
            continue
        count, total = int(counts[column.name][task.token_ids.unk]), int(counts[column.name].sum())
        if count > _MUCH * total:
            yield (
                f"{count:,} of {total:,} tokens of {column.name} of {task.name} are unknown ones: "
                "the vocabulary of the model lacks them, and they are all the same to it"
            )


def _shorter_than_usual(task: Task, objective: Objective) -> Iterator[str]:
    """Features that are cut because the others of an example may have more tokens."""
    if "inputs" not in task.lengths:
        return
    for name, usual in objective.lengths(task.lengths["inputs"]).items():
        if (length := task.lengths.get(name, usual)) < usual:
            yield (
                f"{name} of {task.name} can have {usual} tokens and are cut at {length} "
                "(TASK_FEATURE_LENGTHS)"
            )


def _labels(examples: Examples) -> Iterator[str]:
    """Which labels of pairs of texts are always the same, or cannot be told from the texts."""
    task = examples.task
    names = [name for name in task.features if name.endswith("_label")]
    if not names or (isinstance(examples.samples, Passes) and not examples.samples.is_planned):
        return
    places = spread(examples.epochs.epoch_of(0).size, _LOOKED_AT)
    rows = [row for n in places for row in examples.features(n)]
    for name in names:
        labels = {int(row[name]) for row in rows}
        if len(rows) > 1 and len(labels) == 1:
            yield (
                f"{name} is {labels.pop()} in all {len(rows):,} examples of {task.name} that were "
                "looked at, so it teaches nothing: a pair needs a document of several sentences "
                "(CORPUS_SEPARATOR, SENTENCES)"
            )
        elif name == _RANDOM_OR_NEXT and task.documents() == 1:
            yield (
                f"{task.name} is one document, so random second texts come from the document of "
                f"the first ones, and {name} teaches next to nothing: divide the text into more "
                "documents (CORPUS_SEPARATOR)"
            )


def _other_script(task: Task) -> Iterator[str]:
    """Where plain text is cut into sentences by rules of a language that it is not written in."""
    if task.cache is None:
        return
    language = language_of_rule(task.cache.manifest.segmentation)
    if language is None:
        return
    split, counts = task.cache.split("train"), Counter[str]()
    for n in spread(len(split), _LOOKED_AT):
        ids = split.raw_feature(n, "targets")[:_READ].tolist()
        counts += scripts.letters(task.vocabulary.decode(ids))
    if not counts:
        return
    letters = sum(counts[own_script] for own_script in scripts.of_language(language))
    if letters < counts.total() / 2:
        script, count = counts.most_common(1)[0]
        better = scripts.language_of(counts)
        advice = f"such as --sentences {better}" if better else "with --sentences"
        yield (
            f"{count / counts.total():.0%} of the letters in {task.name} are {script}, and "
            f"its sentences are cut by the rules of {language!r}: name the text's language, "
            f"{advice}, or --sentences lines if each line is one"
        )
