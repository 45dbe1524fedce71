"""The metrics of `capital_tasks`, which need NumPy alone, as a user would write them."""

from __future__ import annotations

import numpy as np


def first_word(text, example=None, is_target=False, *, fold=False):
    """The first word; for a target, all answers that the example allows."""
    if is_target:
        return [answer.decode().split()[0] for answer in example["answers"]]
    word = (text.split() or [""])[0]
    return word.casefold() if fold else word


def accuracy(targets, predictions):
    return {"accuracy": 100 * np.mean([p in t for t, p in zip(targets, predictions, strict=True)])}


def longest(targets, predictions, at_least=1):
    return {"longest": max(at_least, *map(len, predictions)), "targets": len(targets[0])}


def likelihood(targets, scores):
    assert len(targets) == len(scores)
    return {"likelihood": scores.mean(), "least": scores.min()}


def confidence(targets, predictions, aux_values):
    return {"confidence": np.mean(aux_values["scores"]) + len(predictions) - len(targets)}


def fragile(targets, predictions):
    raise RuntimeError(f"no network for {len(predictions)} predictions")
