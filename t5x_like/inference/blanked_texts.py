"""Short texts with blanks, and the truth, from examples that an objective has made."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from t5x_like.core.protocols.data import Vocabulary
from t5x_like.inference.fill_blanks import token_spans
from t5x_like.inference.text_rows import in_line, is_text

_MOST = 64  # tokens that are shown, where the rest of the row can be left out
_BYTES = 4  # of a character, at most
_SENTINEL = re.compile(r"<extra_id_(\d+)>")


class Blanked(NamedTuple):
    """The text that a model is asked about, such as one with blanks, and the original of these."""

    text: str
    truth: str


def blanked(features: Mapping[str, np.ndarray], vocabulary: Vocabulary) -> Blanked | None:
    """A short text of an example's features, before they are padded, and its truth.

    Predicted tokens become [MASK], spans their sentinels. Of an example without either, the inputs
    are the text and the targets the truth. Of one of targets alone, the second half is the truth.

    Returns:
      None where the objective has hidden nothing in the first text of this example.

    Raises:
      ValueError: it is not an example of an objective that hides text.
    """
    if "masked_positions" in features:
        return _of_masks(features, vocabulary)
    if "targets" not in features:
        raise ValueError(
            f"this run's examples have {', '.join(sorted(features))}: nothing of a text is hidden "
            "in them"
        )
    if "inputs" not in features:
        return _of_text(features["targets"], vocabulary)
    # An end within them, between documents, would end what is decoded.
    inputs, targets = (
        [token for token in features[name].tolist() if token != vocabulary.token_ids.eos]
        for name in ("inputs", "targets")
    )
    first = vocabulary.token_ids.sentinel(0)
    if vocabulary.token_ids.sentinels and first in inputs and first in targets:
        return _of_sentinels(inputs, targets, vocabulary)
    hidden = [token == vocabulary.token_ids.mask for token in inputs]
    return Blanked(_written(inputs, hidden, vocabulary), vocabulary.decode(targets).lstrip(" "))


def _of_text(targets: np.ndarray, vocabulary: Vocabulary) -> Blanked | None:
    """The halves of the longest text between special tokens."""
    runs = itertools.groupby(targets.tolist(), lambda i: is_text(i, vocabulary.token_ids))
    tokens = max(([*run] for of_text, run in runs if of_text), key=len, default=[])
    shown = tokens[: _cut(tokens, _MOST, vocabulary)]
    middle = _cut(shown, -(-len(shown) // 2), vocabulary)
    pair = Blanked(_decoded(shown[:middle], vocabulary), _decoded(shown[middle:], vocabulary))
    return pair if all(pair) else None


def _of_masks(features: Mapping[str, np.ndarray], vocabulary: Vocabulary) -> Blanked | None:
    """The first text between special tokens in which a token is predicted."""
    truth = features["inputs"].copy()
    truth[features["masked_positions"]] = features["masked_targets"]
    hidden = np.isin(np.arange(len(truth)), features["masked_positions"])
    of_text = np.array([is_text(i, vocabulary.token_ids) for i in truth.tolist()])
    if not (hidden & of_text).any():
        return None
    first = int((hidden & of_text).argmax())
    texts = (~of_text).cumsum()
    places = np.flatnonzero(of_text & (texts == texts[first]))
    shown = places[_window(truth[places].tolist(), first - int(places[0]), vocabulary)]
    if features.get("backward"):  # the row is read from right to left
        shown = shown[::-1]
    tokens = truth[shown].tolist()
    text = _written(tokens, hidden[shown].tolist(), vocabulary)
    return Blanked(text, vocabulary.decode(tokens).lstrip(" "))


def _of_sentinels(inputs: list[int], targets: list[int], vocabulary: Vocabulary) -> Blanked:
    ids = vocabulary.token_ids
    shown = inputs[_window(inputs, inputs.index(ids.sentinel(0)), vocabulary)]
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
    return Blanked(_decoded(shown, vocabulary, blanks=count), _decoded([*truth, *rest], vocabulary))


def _decoded(tokens: Sequence[int], vocabulary: Vocabulary, *, blanks: int = 0) -> str:
    """The text, with the first `blanks` sentinels.

    Where bytes have the ids of others, these are what a span has left of a character.
    """
    text = vocabulary.decode(tokens)
    return _SENTINEL.sub(lambda match: match[0] if int(match[1]) < blanks else "", text)


def _window(tokens: Sequence[int], wanted: int, vocabulary: Vocabulary) -> slice:
    """At most `_MOST` of the tokens, number `wanted` included: the first ones, if possible."""
    begin = 0
    if wanted >= _MOST:
        at = wanted - _MOST // 2
        before = vocabulary.decode(tokens[at - _BYTES : wanted])
        whole = (
            n
            for n in range(at, at + _BYTES)
            if before.endswith(vocabulary.decode(tokens[n:wanted]))
        )
        begin = next(whole, at)
    return slice(begin, begin + _cut(tokens[begin:], _MOST, vocabulary))


def _cut(tokens: Sequence[int], most: int, vocabulary: Vocabulary) -> int:
    """The number of first tokens, `most` or a few less, that end with a whole character."""
    ends = (
        n
        for n in range(most, max(most - _BYTES, 0), -1)
        if vocabulary.decode(tokens[: n + _BYTES]).startswith(vocabulary.decode(tokens[:n]))
    )
    return next(ends, most)


def _written(tokens: Sequence[int], hidden: Sequence[bool], vocabulary: Vocabulary) -> str:
    """The text with [MASK] for each hidden token."""
    text = ""
    for hides, run in itertools.groupby(zip(hidden, tokens, strict=True), lambda pair: pair[0]):
        shown = [token for _, token in run]
        text += " [MASK]" * len(shown) if hides else in_line(shown, vocabulary)
    return text.lstrip(" ")
