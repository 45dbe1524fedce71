"""From task features to the arrays a model reads, named as SeqIO and T5X name them.

L is the declared length of a feature; examples are laid end to end in a row of L.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np


@dataclasses.dataclass(frozen=True)
class EncoderDecoder:
    """Inputs to the encoder, targets to the decoder: `seqio.EncDecFeatureConverter` in NumPy.

    With `pack`, a row holds several examples and says where each begins: segment ids count them
    from 1 (0 is padding) and positions restart at 0. Unlike SeqIO's, segments are numbered by
    example, so that one with an empty feature keeps encoder and decoder aligned.
    """

    pack: bool = False

    task_features = ("inputs", "targets")

    def shapes(self, lengths: Mapping[str, int]) -> dict[str, tuple[tuple[int], np.dtype]]:
        """Shape and dtype of each array of a row, in the order of `convert`."""
        encoder, decoder = (lengths["inputs"],), (lengths["targets"],)
        tokens, weights = np.dtype(np.int32), np.dtype(np.float32)
        shapes = {
            "encoder_input_tokens": (encoder, tokens),
            "decoder_target_tokens": (decoder, tokens),
            "decoder_input_tokens": (decoder, tokens),
            "decoder_loss_weights": (decoder, weights),
        }
        if self.pack:
            shapes |= {
                "encoder_segment_ids": (encoder, tokens),
                "encoder_positions": (encoder, tokens),
                "decoder_segment_ids": (decoder, tokens),
                "decoder_positions": (decoder, tokens),
            }
        return shapes

    def convert(
        self, examples: Sequence[Mapping[str, np.ndarray]], lengths: Mapping[str, int]
    ) -> dict[str, np.ndarray]:
        """One row from the examples that share it, each trimmed to `lengths` first.

        Args:
          examples: `inputs` and `targets`, int [n] each; at most one without `pack`, and none for
            a row of padding. Targets are scored where they are not 0, or as an example's own
            `targets_loss_weights` (float [m]) says; tokens past its end, such as an EOS that was
            appended later, weigh 1.
          lengths: L of `inputs` and `targets`.

        Returns:
          The arrays of `shapes`.

        Raises:
          ValueError: a feature is missing, or the examples do not fit the row.
        """
        if len(examples) > 1 and not self.pack:
            raise ValueError(f"{len(examples)} examples for one row need EncoderDecoder(pack=True)")
        for example in examples:
            if missing := {"inputs", "targets"} - example.keys():
                raise ValueError(
                    f"an encoder-decoder example needs inputs and targets; {sorted(missing)} "
                    f"missing from {sorted(example)}"
                )
        encoder = _Row([example["inputs"] for example in examples], lengths["inputs"], "inputs")
        decoder = _Row([example["targets"] for example in examples], lengths["targets"], "targets")
        shifted = np.zeros_like(decoder.tokens)
        shifted[1:] = decoder.tokens[:-1]
        shifted[decoder.starts] = 0
        if self.pack:  # SeqIO leaves the last token in the padding of an unpacked row
            shifted[decoder.used :] = 0
        row = {
            "encoder_input_tokens": encoder.tokens,
            "decoder_target_tokens": decoder.tokens,
            "decoder_input_tokens": shifted,
            "decoder_loss_weights": _loss_weights(examples, decoder),
        }
        if self.pack:
            row["encoder_segment_ids"], row["encoder_positions"] = encoder.segments()
            row["decoder_segment_ids"], row["decoder_positions"] = decoder.segments()
        return row


class _Row:
    """Sequences end to end in int32 [length], and where each one lies."""

    def __init__(self, sequences: Sequence[np.ndarray], length: int, name: str) -> None:
        sequences = [sequence[:length] for sequence in sequences]
        self.ends = np.cumsum([len(sequence) for sequence in sequences], dtype=np.int64)
        self.used = int(self.ends[-1]) if sequences else 0
        if self.used > length:
            raise ValueError(
                f"{len(sequences)} examples with {self.used} tokens of {name!r} do not fit a row "
                f"of {length}"
            )
        self.tokens = np.zeros(length, np.int32)
        if sequences:
            self.tokens[: self.used] = np.concatenate(sequences)

    @property
    def spans(self) -> list[slice]:
        return [slice(start, end) for start, end in zip([0, *self.ends], self.ends, strict=False)]

    @property
    def starts(self) -> np.ndarray:
        """Where a sequence begins, inside the row."""
        starts = np.array([span.start for span in self.spans], np.int64)
        return starts[starts < len(self.tokens)]

    def segments(self) -> tuple[np.ndarray, np.ndarray]:
        """Segment ids and positions, int32 [length] each, 0 in the padding."""
        ids, positions = np.zeros_like(self.tokens), np.zeros_like(self.tokens)
        for number, span in enumerate(self.spans, start=1):
            ids[span] = number
            positions[span] = np.arange(span.stop - span.start)
        return ids, positions


def _loss_weights(examples: Sequence[Mapping[str, np.ndarray]], decoder: _Row) -> np.ndarray:
    weights = (decoder.tokens != 0).astype(np.float32)
    for example, span in zip(examples, decoder.spans, strict=True):
        if "targets_loss_weights" in example:
            given = example["targets_loss_weights"][: span.stop - span.start]
            weights[span.start : span.start + len(given)] = given
    return weights
