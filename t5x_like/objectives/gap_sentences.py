"""Gap sentences: write the sentences that say most of what the others say (PEGASUS; LongT5)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from t5x_like.objectives.noise.sentence_permutation import sentence_ends
from t5x_like.objectives.parts.formats import InputsAndTargets
from t5x_like.objectives.parts.probabilities import check_share
from t5x_like.objectives.parts.sentence_blocks import SentenceBlocks

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import TokenIds


def overlaps(tokens: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """ROUGE-1 F1 of each sentence and all others, by the pieces that they have: float64 [n].

    A piece counts once on each side ("Uniq" of PEGASUS, section 3.1.1).

    Args:
      tokens: int [t].
      bounds: int [n + 1], where sentences begin, and the end.
    """
    sentence = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    _, piece = np.unique(tokens, return_inverse=True)
    sentence, piece = np.unique(np.stack([sentence, piece]), axis=1)
    sentences_of_piece = np.bincount(piece)
    number = np.bincount(sentence, minlength=len(bounds) - 1)
    shared = np.bincount(sentence, weights=sentences_of_piece[piece] > 1, minlength=len(bounds) - 1)
    of_others = len(sentences_of_piece) - (number - shared)
    return 2 * shared / np.maximum(number + of_others, 1)


@dataclasses.dataclass(frozen=True)
class GapSentences(InputsAndTargets):
    """Inputs: a text with a sentinel for each gap sentence; targets: these sentences, in order.

    The sentences of a sample that overlap most with the rest of it, each judged alone, are taken
    ("Ind-Uniq" of PEGASUS, Zhang et al., 2020, section 3.1.1, by pieces in place of words; LongT5,
    section 3.2). One that does not fit into the targets beside better ones is passed over. A sample
    of a single sentence has no gap. All gaps have the first sentinel.

    Attributes:
      share: the share of the sentences that are taken, at least one.
      targets_share: the length of the targets as a share of the length of the inputs.
    """

    needs = ("full_stops", "sentinels")

    share: float = 0.2
    targets_share: float = 910 / 4096

    def __post_init__(self) -> None:
        for name in ("share", "targets_share"):
            check_share(self, name)

    def lengths(self, tokens: int) -> dict[str, int]:
        """`inputs` of `tokens` tokens, and `targets` of `targets_share` of that, rounded up."""
        return {"inputs": tokens, "targets": math.ceil(tokens * self.targets_share)}

    def geometry(self, lengths: Mapping[str, int]) -> SentenceBlocks:
        """Whole sentences of one document, as many as fit the inputs without a gap.

        Raises:
          ValueError: `lengths` lacks a feature, or has no room for a token and end of sequence.
        """
        if missing := {"inputs", "targets"} - set(lengths):
            raise ValueError(
                f"gap sentences need the lengths of inputs and targets; {sorted(missing)} missing "
                f"from {dict(lengths)}"
            )
        if min(lengths["inputs"], lengths["targets"]) < 2:
            raise ValueError(
                "gap sentences need inputs and targets of at least 2 tokens (a token, EOS), got "
                f"{dict(lengths)}"
            )
        room = lengths["targets"] - 1
        return SentenceBlocks(
            lengths["inputs"] - 1, cross_documents=False, constants=(("room", room),)
        )

    def __call__(
        self, sample: Mapping[str, np.ndarray], rng: np.random.Generator, ids: TokenIds
    ) -> dict[str, np.ndarray]:
        """Takes sentences out of `sample["targets"]` (int [n], any n): int32, without EOS.

        The sample's `segments` (int32 [s], the starts without the first), if there are any, are its
        sentences; a text without them is divided at full stops. `room` is the most tokens of the
        targets; without it, all fit.
        """
        tokens = np.asarray(sample["targets"], np.int32)
        starts = sample.get("segments")
        if starts is None or not len(starts):
            starts = sentence_ends(tokens, ids)
            starts = starts[starts < len(tokens)]
        bounds = np.concatenate([[0], starts, [len(tokens)]])
        gap = np.zeros(len(tokens), bool)
        begins = np.zeros(len(tokens), bool)
        for n in self._taken(tokens, bounds, int(sample.get("room", len(tokens)))):
            gap[bounds[n] : bounds[n + 1]] = True
            begins[bounds[n]] = True
        return {
            "inputs": np.where(begins, np.int32(ids.sentinel(0)), tokens)[~gap | begins],
            "targets": tokens[gap],
        }

    def _taken(self, tokens: np.ndarray, bounds: np.ndarray, room: int) -> list[int]:
        """The numbers of the sentences that are taken."""
        count = len(bounds) - 1
        most = max(1, round(count * self.share)) if count > 1 else 0
        sizes = np.diff(bounds)
        taken: list[int] = []
        if most:
            for n in np.argsort(-overlaps(tokens, bounds), kind="stable").tolist():
                if len(taken) < most and sizes[n] <= room:
                    taken.append(n)
                    room -= sizes[n]
        return taken


PRESETS = {"gap_sentences": GapSentences()}
SUMMARIES = {
    "gap_sentences": "write the fifth of the sentences that overlaps most with the rest (PEGASUS)"
}
