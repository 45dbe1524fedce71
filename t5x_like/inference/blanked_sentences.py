"""Held-out sentences with blanks, made by the task's objective."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from t5x_like.data.task import Task

_SENTENCE = re.compile(r"[A-Z][^.!?\n⁇]{100,240}[.!?](?=\s|$)")  # ⁇ is an unknown character


def blanked_sentences(task: Task, n: int) -> Iterator[tuple[str, str]]:
    """Up to `n` pairs (a sentence with `<extra_id_k>` blanks, sentence), spread over the split.

    Raises:
      ValueError: the task has no held-out text, the text has no sentence, or the objective makes
        no blanks.
    """
    vocabulary = task.vocabulary
    if task.objective is None or task.cache is None or not task.has("validation"):
        raise ValueError(f"task {task.name!r} has no held-out text to make blanks in")
    split = task.cache.split("validation")
    sentences = [
        sentence
        for i in range(min(len(split), 500))
        for sentence in _SENTENCE.findall(vocabulary.decode(split.record(i)["targets"].tolist()))
    ]
    if not sentences:
        raise ValueError(f"task {task.name!r} has no held-out sentence of a fitting length")
    for k in np.linspace(0, len(sentences) - 1, min(n, len(sentences))).astype(int):
        tokens = np.asarray(vocabulary.encode(sentences[k]), np.int32)
        rng = np.random.default_rng(int(k))
        features = task.objective({"targets": tokens}, rng, task.token_ids)
        yield vocabulary.decode(features["inputs"].tolist()), sentences[k]
