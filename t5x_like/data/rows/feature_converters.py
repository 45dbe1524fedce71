"""Converters from an objective's examples to the arrays of a model, with SeqIO's and T5X's names.

L is the declared length of a feature. Examples lie end to end in a row of length L.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from t5x_like.core.protocols.data import FeatureConverter, FeatureSpec, Objective, TokenIds
from t5x_like.data.rows import packed_encoder
from t5x_like.data.rows.padded_rows import PaddedRow, padded

Example = Mapping[str, np.ndarray]
Features = Mapping[str, FeatureSpec]
Row = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class EncoderDecoder:
    """Inputs to the encoder, targets to the decoder: `seqio.EncDecFeatureConverter` in NumPy.

    `decoder_start` names the id that a decoder reads first: "pad" in T5, "eos" in BART. With
    `pack`, a row holds several examples: segment ids count them from 1 (0 is padding), and
    positions restart at 0. Unlike in SeqIO, segments are numbered by example, so that encoder and
    decoder stay aligned where a feature is empty.
    """

    pack: bool = False
    decoder_start: str = "pad"

    kind: ClassVar = "encoder_decoder"
    task_features: ClassVar = ("inputs", "targets")

    def convert(self, examples: Sequence[Example], *, features: Features, ids: TokenIds) -> Row:
        """The row of the examples that share it, each trimmed to L first.

        Args:
          examples: `inputs` and `targets`, int [n] each; at most one example without `pack`, and
            none for a row of padding. Each target has loss weight 1, unless an example has
            `targets_loss_weights` (float [m]). Tokens past the end of these, such as an EOS that
            was appended later, have weight 1.
          features: the specifications of `inputs` and `targets`, which give L.
          ids: the ids of the vocabulary.

        Returns:
          int32 `encoder_input_tokens`, `decoder_target_tokens`, `decoder_input_tokens`, float32
          `decoder_loss_weights`; with `pack` int32 `encoder_segment_ids`, `encoder_positions`,
          `decoder_segment_ids` and `decoder_positions`.

        Raises:
          ValueError: a feature is missing, or the examples do not fit the row.
        """
        encoder = _padded_row(self, examples, "inputs", features=features, ids=ids)
        decoder = _padded_row(self, examples, "targets", features=features, ids=ids)
        row = {"encoder_input_tokens": encoder.tokens} | _decoder(self, decoder, ids=ids)
        row["decoder_loss_weights"] = _loss_weights(examples, decoder)
        if self.pack:
            row["encoder_segment_ids"], row["encoder_positions"] = encoder.segments()
            row["decoder_segment_ids"], row["decoder_positions"] = decoder.segments()
        return row


@dataclasses.dataclass(frozen=True)
class Decoder:
    """Targets alone, predicted from left to right: `seqio.LMFeatureConverter` in NumPy.

    `decoder_start` and `pack` are as in `EncoderDecoder`. By default the decoder reads first the id
    that separates documents, as in GPT-2; T5X starts with "pad".
    """

    pack: bool = False
    decoder_start: str = "eos"

    kind: ClassVar = "decoder"
    task_features: ClassVar = ("targets",)

    def convert(self, examples: Sequence[Example], *, features: Features, ids: TokenIds) -> Row:
        """The `decoder_*` arrays of `EncoderDecoder.convert`.

        Rows that continue (`lm.ContinuedLanguageModeling`) begin with the token that precedes them,
        and also have int32 `decoder_document_starts`.
        """
        decoder = _padded_row(self, examples, "targets", features=features, ids=ids)
        row = _decoder(self, decoder, ids=ids)
        row["decoder_loss_weights"] = _loss_weights(examples, decoder)
        if self.pack:
            row["decoder_segment_ids"], row["decoder_positions"] = decoder.segments()
        if "document_starts" in features:
            row |= _continued(row["decoder_input_tokens"], examples, features)
        return row


@dataclasses.dataclass(frozen=True)
class PrefixDecoder:
    """Inputs and targets as one sequence: `seqio.PrefixLMFeatureConverter` in NumPy.

    `decoder_causal_attention` is 1 where attention is bidirectional: on the inputs and on the
    position after them, which still reads an input. Only targets have loss weights.
    """

    pack: bool = False
    decoder_start: str = "pad"

    kind: ClassVar = "encoder_decoder"
    task_features: ClassVar = ("inputs", "targets")

    def convert(self, examples: Sequence[Example], *, features: Features, ids: TokenIds) -> Row:
        """The row of the examples. Its length is the sum of the lengths of inputs and targets."""
        _check(self, examples)
        limits = [_length(features, name) for name in ("inputs", "targets")]
        pairs = [
            (source["inputs"][: limits[0]], source["targets"][: limits[1]]) for source in examples
        ]
        joined = [np.concatenate(pair) for pair in pairs]
        decoder = PaddedRow(joined, sum(limits), pad=ids.pad, name="inputs and targets")
        weights, prefix = np.zeros(sum(limits), np.float32), np.zeros(sum(limits), np.int32)
        for example, (inputs, _), span in zip(examples, pairs, decoder.spans, strict=True):
            first = span.start + len(inputs)
            _score(weights[first : span.stop], example)
            prefix[span.start : min(first + 1, span.stop)] = 1
        row = _decoder(self, decoder, ids=ids)
        row |= {"decoder_loss_weights": weights, "decoder_causal_attention": prefix}
        if self.pack:
            row["decoder_segment_ids"], row["decoder_positions"] = decoder.segments()
        return row


@dataclasses.dataclass(frozen=True)
class Encoder:
    """Examples in the rows of an encoder, with the ids to predict and their positions.

    `inputs` become `encoder_input_tokens`, with an int32 `encoder_attention_mask` (1 for tokens, 0
    for padding), and `token_type_ids` become `encoder_token_type_ids`. Every other feature keeps
    its name and is padded with zeros; where nothing is predicted, `masked_loss_weights` is 0.
    Alternatives of a choice come as `inputs` [A, L], with -1 for padding, as do their types.

    With `pack`, a row holds several examples end to end, one after another in every feature, with
    int32 `encoder_segment_ids`, which count them from 1 (0 is padding), and `encoder_positions`,
    which restart at 0. Features whose names end in `_position` or `_positions` are counted in the
    row, where they are not negative, and numbers above 0 of `word_ids` go on from text to text. A
    single value of an example is at its first token: [L, ...]. Alternatives of a choice are texts
    of their own in a row of A L tokens; int32 `alternative_positions` [A L, A] are, at the first
    token of each choice, the first tokens of its alternatives, and -1 where there is none.
    """

    pack: bool = False

    kind: ClassVar = "encoder"
    task_features: ClassVar = ("inputs",)

    def convert(self, examples: Sequence[Example], *, features: Features, ids: TokenIds) -> Row:
        """The row of the examples that share it, or a row of padding without an example.

        Args:
          examples: at most one example without `pack`, with the features that `features` declares.
          features: L and dtype of each feature; features without a length become numbers without
            axes, if rows are not packed.
          ids: the ids of the vocabulary.

        Raises:
          ValueError: a feature is missing, or the examples do not fit the row.
        """
        _check(self, examples, names=features)
        if self.pack:
            _length(features, "inputs")
            return packed_encoder.packed_row(examples, features, ids)
        row = {}
        for name, spec in features.items():
            if not examples:
                of_none = spec.item if spec.length is None else (0, *spec.item)
                values = np.zeros(of_none, spec.dtype)
            else:
                values = examples[0][name]
            known_as = packed_encoder.known_as(name)
            if spec.length is None:
                row[name] = np.asarray(values, spec.dtype)
            elif name in ("inputs", "token_type_ids") and spec.item:
                filled = (
                    padded(values[:, : spec.item[0]], spec.shape)
                    if examples
                    else np.full(spec.shape, -1, np.int32)
                )
                fill = ids.pad if name == "inputs" else 0
                mask = (filled >= 0).astype(np.int32)
                row[known_as] = np.where(mask, filled, np.int32(fill))
                row["encoder_attention_mask"] = mask
            elif name == "inputs":
                row[known_as] = padded(values, (spec.length,), fill=ids.pad)
                row["encoder_attention_mask"] = mask = np.zeros(spec.length, np.int32)
                mask[: len(values)] = 1
            else:
                row[known_as] = padded(values, spec.shape, dtype=spec.dtype)
        return row


def default_converter(
    objective: Objective, *, pack: bool = False
) -> EncoderDecoder | Decoder | Encoder:
    """The converter for the kind of model that an objective trains.

    Raises:
      ValueError: the kind is unknown.
    """
    match objective.kind:
        case "encoder_decoder":
            return EncoderDecoder(pack, getattr(objective, "decoder_start", "pad"))
        case "decoder":
            return Decoder(pack)
        case "encoder":
            return Encoder(pack)
        case other:
            raise ValueError(
                f"{type(objective).__name__} is of kind {other!r}: known kinds are "
                "encoder_decoder, encoder, decoder"
            )


def unpacked(converter: FeatureConverter) -> FeatureConverter:
    """A converter that makes a row of each example."""
    any_converter: Any = converter
    plain: FeatureConverter = (
        dataclasses.replace(any_converter, pack=False) if converter.pack else any_converter
    )
    return plain


def start_id(converter: FeatureConverter, ids: TokenIds) -> int | None:
    """The id that a decoder reads first; None if the vocabulary lacks it, or rows have none."""
    if converter.kind == "encoder":
        return None
    start: int | None = getattr(ids, getattr(converter, "decoder_start", "pad"))
    return start


def _check(
    converter: Any, examples: Sequence[Example], *, names: Mapping[str, Any] | None = None
) -> None:
    kind = type(converter).__name__
    if len(examples) > 1 and not converter.pack:
        raise ValueError(f"{len(examples)} examples for one row need {kind}(pack=True)")
    wanted = converter.task_features if names is None else names
    for example in examples:
        if missing := [name for name in wanted if name not in example]:
            raise ValueError(
                f"{kind} makes rows of {', '.join(wanted)}; {missing} missing from "
                f"{sorted(example)}"
            )


def _length(features: Features, name: str) -> int:
    length = features[name].length
    if length is None:
        raise ValueError(f"feature {name!r} is a single number, not a sequence of tokens")
    return length


def _padded_row(
    converter: Any, examples: Sequence[Example], name: str, *, features: Features, ids: TokenIds
) -> PaddedRow:
    _check(converter, examples)
    sequences = [example[name] for example in examples]
    return PaddedRow(sequences, _length(features, name), pad=ids.pad, name=name)


def _decoder(converter: Any, decoder: PaddedRow, *, ids: TokenIds) -> Row:
    start = getattr(ids, converter.decoder_start)
    if start is None:
        raise ValueError(
            f"decoder_start is {converter.decoder_start!r}, which this vocabulary lacks: choose "
            "another, such as 'pad'"
        )
    shifted = decoder.shifted(start=start, pad=ids.pad, clean=converter.pack)
    return {"decoder_target_tokens": decoder.tokens, "decoder_input_tokens": shifted}


def _continued(inputs_L: np.ndarray, examples: Sequence[Example], features: Features) -> Row:
    """The inputs of a row that continues another, and where its documents start."""
    starts = np.zeros(0, np.int32)
    if examples:
        starts, preceding = examples[0]["document_starts"], examples[0]["preceding"]
        inputs_L[: len(preceding)] = preceding
    starts_L = padded(starts, features["document_starts"].shape)
    return {"decoder_input_tokens": inputs_L, "decoder_document_starts": starts_L}


def _score(weights: np.ndarray, example: Example) -> None:
    """Writes the loss weights of an example's targets into `weights`, float32 [length]."""
    weights[:] = 1
    if "targets_loss_weights" in example:
        given_weights = example["targets_loss_weights"][: len(weights)]
        weights[: len(given_weights)] = given_weights


def _loss_weights(examples: Sequence[Example], decoder: PaddedRow) -> np.ndarray:
    weights = np.zeros(len(decoder.tokens), np.float32)
    for example, span in zip(examples, decoder.spans, strict=True):
        _score(weights[span], example)
    return weights
