"""Short texts with blanks, and the truth, from examples that an objective has made."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from t5x_like.core.protocols import Vocabulary
from t5x_like.inference.fill_blanks import token_spans
from t5x_like.inference.text_rows import in_line

_MOST = 64  # tokens that are shown, where the rest of the row can be left out


class Blanked(NamedTuple):
    """What a model is asked, such as a text with blanks, and what was there."""

    text: str
    truth: str


def blanked(features: Mapping[str, np.ndarray], vocabulary: Vocabulary) -> Blanked | None:
    """A short text of an example's features, before they are padded, and its truth.

    Predicted tokens become [MASK], spans their sentinels. Of an example without either, the inputs
    are the text and the targets the truth. Of one of targets alone, the second half is the truth.

    Returns:
      None where the objective has hidden nothing in the first text of this example.

    Raises:
      ValueError: it is no example of an objective that hides text.
    """
    if "masked_positions" in features:
        return _of_masks(features, vocabulary)
    if "targets" not in features:
        raise ValueError(
            f"this run's examples have {', '.join(sorted(features))}: nothing of a text is hidden "
            "in them"
        )
    targets = _without_end(features["targets"], vocabulary)
    if "inputs" not in features:
        shown = targets[:_MOST]
        middle = -(-len(shown) // 2)
        return Blanked(vocabulary.decode(shown[:middle]), vocabulary.decode(shown[middle:]))
    inputs = _without_end(features["inputs"], vocabulary)
    first = vocabulary.token_ids.sentinel(0)
    if vocabulary.token_ids.sentinels and first in inputs and first in targets:
        return _of_sentinels(inputs, targets, vocabulary)
    hidden = [token == vocabulary.token_ids.mask for token in inputs]
    return Blanked(_written(inputs, hidden, vocabulary), vocabulary.decode(targets).lstrip(" "))


def _without_end(tokens: np.ndarray, vocabulary: Vocabulary) -> list[int]:
    found: list[int] = tokens.tolist()
    return found[:-1] if found and found[-1] == vocabulary.token_ids.eos else found


def _of_masks(features: Mapping[str, np.ndarray], vocabulary: Vocabulary) -> Blanked | None:
    """The first text between special tokens in which a token is predicted."""
    ids, truth = vocabulary.token_ids, features["inputs"].copy()
    truth[features["masked_positions"]] = features["masked_targets"]
    hidden = np.isin(np.arange(len(truth)), features["masked_positions"])
    is_text = np.isin(truth, [i for i in ids.special if i != ids.unk], invert=True)
    if not (hidden & is_text).any():
        return None
    first = int((hidden & is_text).argmax())
    texts = (~is_text).cumsum()
    shown = _window(np.flatnonzero(is_text & (texts == texts[first])), first)
    if features.get("backward"):  # the row is read from right to left
        shown = shown[::-1]
    tokens = truth[shown].tolist()
    text = _written(tokens, hidden[shown].tolist(), vocabulary)
    return Blanked(text, vocabulary.decode(tokens).lstrip(" "))


def _of_sentinels(inputs: list[int], targets: list[int], vocabulary: Vocabulary) -> Blanked:
    ids = vocabulary.token_ids
    places = _window(np.arange(len(inputs)), inputs.index(ids.sentinel(0)))
    shown = [inputs[place] for place in places]
    count, rest = 0, shown
    while ids.sentinel(count) in rest:  # they count up
        rest = rest[rest.index(ids.sentinel(count)) + 1 :]
        count += 1
    spans = token_spans(targets, ids, numbers=range(count))
    truth, rest = [], shown
    for number in range(count):
        at = rest.index(ids.sentinel(number))
        truth += [*rest[:at], *spans[number]]
        rest = rest[at + 1 :]
    return Blanked(vocabulary.decode(shown), vocabulary.decode([*truth, *rest]))


def _window(places: np.ndarray, wanted: int) -> np.ndarray:
    """At most `_MOST` of these places, the wanted one included: the first ones, if possible."""
    at = int(np.flatnonzero(places == wanted)[0])
    begin = 0 if at < _MOST else at - _MOST // 2
    return places[begin : begin + _MOST]


def _written(tokens: Sequence[int], hidden: Sequence[bool], vocabulary: Vocabulary) -> str:
    """The text with [MASK] for each hidden token."""
    text = ""
    for hides, run in itertools.groupby(zip(hidden, tokens, strict=True), lambda pair: pair[0]):
        shown = [token for _, token in run]
        text += " [MASK]" * len(shown) if hides else in_line(shown, vocabulary)
    return text.lstrip(" ")
