"""The formats of examples: for encoder-decoders, for masked encoders and for decoders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from t5x_like.core.protocols.data import PLAIN_TEXT, Column, FeatureSpec


class InputsAndTargets:
    """Examples with `inputs` and `targets`, to which `steps` append the end of sequence.

    `decoder_start` names the id (a field of `TokenIds`) that the decoder reads first.
    """

    kind = "encoder_decoder"
    reads: tuple[Column, ...] = PLAIN_TEXT
    answers: ClassVar[str | None] = None
    measures: tuple[str, ...] = ()
    decoder_start = "pad"
    needs: tuple[str, ...] = ()
    steps: tuple[str, ...] = ("append_eos_after_trim",)
    static = False

    def features(self, lengths: Mapping[str, int]) -> dict[str, FeatureSpec]:
        """`inputs` and `targets`, as long as `lengths` says."""
        return {name: FeatureSpec(lengths[name]) for name in ("inputs", "targets")}


class MaskedTokens:
    """Examples for an encoder that predicts some of its own positions.

    They have `inputs` and `token_type_ids`, int32 [n]; `masked_positions` (ascending) and
    `masked_targets`, int32 [k]; and `masked_loss_weights`, float32 [k]. Objectives may add
    features.
    """

    kind = "encoder"
    reads: tuple[Column, ...] = PLAIN_TEXT
    answers: ClassVar[str | None] = None
    measures: tuple[str, ...] = ()
    needs: tuple[str, ...] = ("cls", "sep", "mask")
    steps: tuple[str, ...] = ()
    static = False

    def lengths(self, tokens: int) -> dict[str, int]:
        """`inputs` of `tokens` tokens."""
        return {"inputs": tokens}


def masked_features(inputs: int, predictions: int) -> dict[str, FeatureSpec]:
    """The features of a `MaskedTokens` with at most `inputs` tokens and `predictions`."""
    return {
        "inputs": FeatureSpec(inputs),
        "token_type_ids": FeatureSpec(inputs),
        "masked_positions": FeatureSpec(predictions),
        "masked_targets": FeatureSpec(predictions),
        "masked_loss_weights": FeatureSpec(predictions, "float32"),
    }


class TargetsOnly:
    """Examples with `targets` alone, for a model that reads from left to right."""

    kind = "decoder"
    reads: tuple[Column, ...] = PLAIN_TEXT
    answers: ClassVar[str | None] = None
    measures: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    static = False

    def lengths(self, tokens: int) -> dict[str, int]:
        """`targets` of `tokens` tokens."""
        return {"targets": tokens}

    def features(self, lengths: Mapping[str, int]) -> dict[str, FeatureSpec]:
        """`targets`, as long as `lengths` says."""
        return {"targets": FeatureSpec(lengths["targets"])}
