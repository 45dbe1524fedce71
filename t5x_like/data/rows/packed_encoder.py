"""Rows of an encoder that hold several examples, end to end.

Suffixes: L length of a row, A alternatives of a choice.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from t5x_like.core.protocols.data import FeatureSpec, TokenIds
from t5x_like.data.rows.padded_rows import PaddedRow, padded

Example = Mapping[str, np.ndarray]
_OF_TOKENS = {"inputs": "encoder_input_tokens", "token_type_ids": "encoder_token_type_ids"}


def known_as(name: str) -> str:
    """The name of a feature in the rows of an encoder."""
    return _OF_TOKENS.get(name, name)


def packed_row(
    examples: Sequence[Example], features: Mapping[str, FeatureSpec], ids: TokenIds
) -> dict[str, np.ndarray]:
    """The row of several examples, which `feature_converters.Encoder` describes.

    A choice whose alternatives have no tokens is left out.

    Args:
      examples: what an objective makes.
      features: the specification of each feature.
      ids: the ids of the vocabulary.

    Raises:
      ValueError: the examples do not fit the row.
    """
    spec = features["inputs"]
    texts = [_texts(example["inputs"]) for example in examples]
    sequences = [*itertools.chain(*texts)]
    inputs = PaddedRow(sequences, math.prod(spec.shape), pad=ids.pad, name="inputs")
    starts = iter([span.start for span in inputs.spans])
    firsts = [[*itertools.islice(starts, len(of))] for of in texts]
    placed = [(example, of) for example, of in zip(examples, firsts, strict=True) if of]
    row = _tokens(inputs)
    if spec.item:
        places = [(_alternatives(example["inputs"], of), of[0]) for example, of in placed]
        shape: tuple[int, ...] = (len(inputs.tokens), spec.shape[0])
        row["alternative_positions"] = _at_firsts(places, shape, fill=-1)
    for name, declared in features.items():
        if name == "inputs":
            continue
        values = [(_moved(name, example[name], of[0]), of[0]) for example, of in placed]
        if declared.length is None:
            shape = (len(inputs.tokens), *declared.item)
            row[name] = _at_firsts(values, shape, dtype=declared.dtype)
        else:
            row[known_as(name)] = _end_to_end(name, [value for value, _ in values], declared)
    return row


def _tokens(inputs: PaddedRow) -> dict[str, np.ndarray]:
    """The tokens of a row, and which texts have them: int32 [L] each."""
    segments, positions = inputs.segments()
    return {
        "encoder_input_tokens": inputs.tokens,
        "encoder_attention_mask": (segments > 0).astype(np.int32),
        "encoder_segment_ids": segments,
        "encoder_positions": positions,
    }


def _texts(inputs: np.ndarray) -> list[np.ndarray]:
    """The texts of an example: its tokens, or those of the alternatives that have some."""
    if inputs.ndim == 1:
        return [inputs]
    return [text[text >= 0] for text in inputs if (text >= 0).any()]


def _alternatives(inputs: np.ndarray, firsts: Sequence[int]) -> np.ndarray:
    """Where each alternative begins, int32 [A]; -1 for one without tokens."""
    places = np.full(len(inputs), -1, np.int32)
    places[(inputs >= 0).any(axis=1)] = firsts
    return places


def _moved(name: str, values: np.ndarray, start: int) -> np.ndarray:
    """The values of a feature of an example whose first token is at `start` of its row."""
    if name.endswith(("_position", "_positions")):
        return np.where(values < 0, values, values + start)
    return np.where(values > 0, values + start, 0) if name == "word_ids" else values


def _at_firsts(
    values: Sequence[tuple[np.ndarray, int]],
    shape: tuple[int, ...],
    *,
    fill: int = 0,
    dtype: str = "int32",
) -> np.ndarray:
    """The value of each example at its first token, and `fill` elsewhere: [L, ...]."""
    row = np.full(shape, fill, dtype)
    for value, first in values:
        row[first] = np.reshape(value, shape[1:])
    return row


def _end_to_end(name: str, values: Sequence[np.ndarray], spec: FeatureSpec) -> np.ndarray:
    """The values of all examples, one after another, then padding."""
    if name in _OF_TOKENS and spec.item:
        whole = np.concatenate([np.zeros(0, spec.dtype), *(of[of >= 0] for of in values)])
        shape: tuple[int, ...] = (math.prod(spec.shape),)
    else:
        whole = np.concatenate([np.zeros((0, *spec.item), spec.dtype), *values])
        shape = spec.shape
    if len(whole) > shape[0]:
        raise ValueError(
            f"{len(values)} examples with {len(whole)} values of {name!r} do not fit a row of "
            f"{shape[0]}"
        )
    return padded(whole, shape, dtype=spec.dtype)
