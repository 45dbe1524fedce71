"""Views of examples for people: lines of tokens with roles, and numbers."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence

import numpy as np

from t5x_like.core.protocols.data import FeatureSpec, TokenIds, Vocabulary

Features = Mapping[str, np.ndarray]

_SENTINEL = re.compile(r"<extra_id_(\d+)>")
_SPACE = "▁"
_MASKED = {"masked_positions", "masked_targets", "masked_loss_weights"}
_PAIRS = {"reach", "negatives"}
_FIRST = 12
_WORDS = 5
"""Words of which those around them are shown."""


@dataclasses.dataclass(frozen=True)
class Token:
    """One token of a line.

    Attributes:
      text: its text, with a leading space where it begins a word.
      role: decides its colour: "text", "special", "masked", "replaced", "kept", "target",
        "context", or "sentinel" with the sentinel's number modulo six.
    """

    text: str
    role: str = "text"


@dataclasses.dataclass(frozen=True)
class ExampleView:
    """The view of an example.

    Attributes:
      lines: names, such as "inputs", and their tokens.
      numbers: names of lengths and other values, and their text.
    """

    lines: Mapping[str, Sequence[Token]]
    numbers: Mapping[str, str]


def view(
    features: Features, specs: Mapping[str, FeatureSpec], vocabulary: Vocabulary
) -> ExampleView:
    """The view of an example's features, to which end of sequence has been appended.

    Args:
      features: the features that an objective makes.
      specs: their declared lengths.
      vocabulary: the vocabulary of the tokens.
    """
    ids = vocabulary.token_ids
    if "masked_positions" in features:
        lines = _masked(features, vocabulary, ids)
    elif "negatives" in features:
        lines = _around(features, vocabulary, ids)
    else:
        weights = features.get("targets_loss_weights")
        lines = {
            label: line(tokens, vocabulary, ids)
            for name in ("inputs", "targets")
            if name in features
            for label, tokens in _rows(name, features[name])
        }
        if weights is not None:
            lines["targets"] = [
                dataclasses.replace(token, role="context") if i < len(weights) and not w else token
                for i, (token, w) in enumerate(
                    zip(lines["targets"], _filled(weights, len(lines["targets"])), strict=True)
                )
            ]
    return ExampleView(lines, _numbers(features, specs))


def batch_view(row: Features, vocabulary: Vocabulary) -> ExampleView:
    """The view of one row of a batch, as the model reads it: [length] or other shapes each."""
    ids = vocabulary.token_ids
    lines, numbers = {}, {}
    for name, values in row.items():
        if (
            name.endswith(("_tokens", "_targets"))
            and values.ndim == 1
            and values.dtype.kind in "iu"
        ):
            known = (values >= 0) & (values < vocabulary.vocab_size)
            lines[name] = line(values[known], vocabulary, ids)
            if unknown := values[~known].tolist():
                numbers[f"{name} outside the vocabulary"] = ", ".join(map(str, unknown[:_FIRST]))
        elif values.ndim == 1:
            numbers[name] = _brief(values)
        else:
            bad = int((~np.isfinite(values)).sum())
            shown = f"{values.item():g}" if values.ndim == 0 else f"{list(values.shape)}"
            numbers[name] = f"{shown}, {bad} not finite" if bad else shown
    return ExampleView(lines, numbers)


def _rows(name: str, tokens: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """A feature's rows of tokens: one, or those of the alternatives of a choice."""
    if tokens.ndim == 1:
        return [(name, tokens)]
    return [(f"{name} {number}", row[row >= 0]) for number, row in enumerate(tokens)]


def _filled(weights: np.ndarray, length: int) -> list[float]:
    return [*weights[:length].tolist(), *[1.0] * (length - len(weights))]


def line(
    tokens: np.ndarray, vocabulary: Vocabulary, ids: TokenIds, *, roles: Mapping[int, str] = {}
) -> list[Token]:
    """A line of tokens, int [n], with the roles of their ids, or those of `roles` by place.

    Raises:
      IndexError: the vocabulary has no such id.
    """
    special = set(ids.special)
    shown = []
    for place, i in enumerate(tokens.tolist()):
        piece = vocabulary.piece(i)
        if match := _SENTINEL.fullmatch(piece):
            role = f"sentinel{int(match[1]) % 6}"
        elif i == ids.mask:
            role = "masked"
        else:
            role = "special" if i in special else "text"
        text = " " + piece[1:] if piece.startswith(_SPACE) else piece
        shown.append(Token(f" {text} " if role != "text" else text, roles.get(place, role)))
    return shown


def _masked(features: Features, vocabulary: Vocabulary, ids: TokenIds) -> dict[str, list[Token]]:
    """The corrupted row and the original one, with predicted tokens marked in both."""
    inputs, places = features["inputs"], features["masked_positions"]
    originals = inputs.copy()
    originals[places] = features["masked_targets"]
    predicts_itself = "permutation_query_order" in features
    roles = {}
    for place in places.tolist():
        if predicts_itself:
            roles[place] = "target"
        elif inputs[place] == ids.mask:
            roles[place] = "masked"
        else:
            roles[place] = "kept" if inputs[place] == originals[place] else "replaced"
    context = dict.fromkeys(range(len(inputs)), "context")
    lines = {"inputs": line(inputs, vocabulary, ids, roles=roles)}
    targets = context | dict.fromkeys(places.tolist(), "target")
    lines["targets"] = line(originals, vocabulary, ids, roles=targets)
    if predicts_itself:
        order = places[np.argsort(features["permutation_query_order"][places], kind="stable")]
        lines["in the order"] = line(inputs[order], vocabulary, ids)
    return lines


def _around(features: Features, vocabulary: Vocabulary, ids: TokenIds) -> dict[str, list[Token]]:
    """The text, and after each of its first words those around it and those that were drawn."""
    inputs = features["inputs"]
    lines = {"inputs": line(inputs, vocabulary, ids)}
    for place, word in enumerate(inputs[:_WORDS].tolist()):
        first = max(place - int(features["reach"][place].sum()), 0)
        last = place + int(features["reach"][place].sum())
        near = np.concatenate([inputs[first:place], inputs[place + 1 : last + 1]])
        shown = np.concatenate([near, features["negatives"][place]])
        roles = {n: "target" if n < len(near) else "replaced" for n in range(len(shown))}
        name = f"{place + 1}. {vocabulary.piece(word).removeprefix(_SPACE)}"
        tokens = line(shown, vocabulary, ids, roles=roles)
        lines[name] = [dataclasses.replace(one, text=f" {one.text.strip()}") for one in tokens]
    return lines


def _numbers(features: Features, specs: Mapping[str, FeatureSpec]) -> dict[str, str]:
    numbers = {}
    for name in ("inputs", "targets"):
        if name in features and name in specs:
            used = max(len(tokens) for _, tokens in _rows(name, features[name]))
            length = specs[name].item[0] if specs[name].item else specs[name].length or 0
            numbers[f"{name} length"] = f"{used} of {length} ({1 - used / length:.0%} padding)"
    if "masked_positions" in features:
        inputs, places = features["inputs"], features["masked_positions"]
        share = len(places) / max(len(inputs), 1)
        numbers["predicted"] = f"{len(places)} of {len(inputs)} tokens ({share:.1%})"
        numbers["loss weights"] = f"{features['masked_loss_weights'].sum():g} in all"
    elif "targets" in features:
        weights = features.get("targets_loss_weights", np.zeros(0, np.float32))
        total = sum(_filled(weights, len(features["targets"])))
        numbers["loss weights"] = f"{total:g} in all"
    for name, values in features.items():
        if name in {"inputs", "targets", "targets_loss_weights"} | _MASKED | _PAIRS:
            continue
        if values.ndim == 0:
            numbers[name] = f"{values.item():g}"
        elif values.ndim > 1:
            rows = [tokens for _, tokens in _rows(name, values) if tokens.ndim == 1 and len(tokens)]
            numbers[name] = " | ".join(map(_brief, rows)) or f"{list(values.shape)}"
        elif values.any():
            numbers[name] = _brief(values)
    return numbers


def _brief(values: np.ndarray) -> str:
    """Runs of equal values if they are few, else the first values."""
    starts = np.flatnonzero(np.diff(values, prepend=values[0] - 1))
    if len(starts) <= _FIRST / 2:
        runs = zip(values[starts].tolist(), np.diff([*starts, len(values)]).tolist(), strict=True)
        return ", ".join(f"{value:g} x {times}" for value, times in runs)
    more = " ..." if len(values) > _FIRST else ""
    return " ".join(f"{value:g}" for value in values[:_FIRST].tolist()) + more
