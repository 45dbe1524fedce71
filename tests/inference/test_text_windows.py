"""Heads read long texts in windows, whose answers are joined as a plain loop joins them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from t5x_like.core.protocols.data import Vocabulary
from t5x_like.inference.heads.head_answers import HeadAnswers
from t5x_like.inference.heads.learned import Learned
from t5x_like.inference.heads.text_windows import TextReading
from t5x_like.inference.text_rows import Framing
from t5x_like.interop.tokenizers.to_files import FAMILIES
from t5x_like.objectives.supervised.classes import Classes
from t5x_like.objectives.supervised.labelled_rows import LabelledRows
from t5x_like.objectives.supervised.several import Several
from t5x_like.objectives.supervised.tags import Tags
from t5x_like.vocabularies.learning.subword_training import train_wordpiece

TEXT = "some texts are longer than others and those have windows"
LENGTH, STRIDE, CLASSES = 12, 4, 3
ROOM = LENGTH - 2
TABLE = np.random.default_rng(0).normal(0, 2, (300, 64, CLASSES)).astype(np.float32)
BERT = FAMILIES["bert"]


@dataclasses.dataclass
class Scores:
    """A model whose logits follow from each token and its place."""

    of_tokens: bool

    def rows(self, wanted: int) -> int:
        return wanted

    def __call__(self, function: Any, batch: Mapping[str, np.ndarray]) -> np.ndarray:
        tokens, counts = batch["encoder_input_tokens"], batch["encoder_attention_mask"]
        logits = TABLE[tokens, np.arange(tokens.shape[1])]
        return logits if self.of_tokens else (logits * counts[..., None]).sum(axis=1) / 8


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return train_wordpiece([TEXT] * 3, size=60, extra_ids=0, character_coverage=1.0, lowercase=True)


def head(vocabulary: Vocabulary, objective: LabelledRows) -> HeadAnswers:
    kind: Any = objective.answers
    return HeadAnswers(
        model=Scores(of_tokens=kind == "tags"),  # type: ignore[arg-type]
        framing=Framing(vocabulary, BERT.text, BERT.pair, max_length=64, token_types=True),
        kind=kind,
        labels=["a", "b", "c"],
        reading=TextReading.of_family(BERT, Learned([objective], LENGTH, 64)),
    )


def windows(count: int) -> list[tuple[int, int]]:
    bounds, begin = [], 0
    while True:
        bounds.append((begin, min(begin + ROOM, count)))
        if begin + ROOM >= count:
            return bounds
        begin += STRIDE


def logits_of(vocabulary: Vocabulary, tokens: list[int]) -> np.ndarray:
    ids = vocabulary.token_ids
    row = [ids.given("cls"), *tokens, ids.given("sep")]
    return np.stack([TABLE[token, place] for place, token in enumerate(row)])


LONG = " ".join([TEXT] * 3)
SHORT = "others and windows"


def test_probabilities_are_means_over_windows(vocabulary: Vocabulary) -> None:
    tokens = vocabulary.encode(LONG)
    assert len(windows(len(tokens))) > 4
    means = {"classes": [0.0] * CLASSES, "several": [0.0] * CLASSES}
    for begin, end in windows(len(tokens)):
        logits = [float(x) for x in logits_of(vocabulary, tokens[begin:end]).sum(axis=0) / 8]
        total = sum(math.exp(x) for x in logits)
        for number, x in enumerate(logits):
            means["classes"][number] += math.exp(x) / total / len(windows(len(tokens)))
            means["several"][number] += 1 / (1 + math.exp(-x)) / len(windows(len(tokens)))
    (said,) = head(vocabulary, Classes(stride=STRIDE))([{"inputs": LONG}])
    assert [*said["probabilities"].values()] == pytest.approx(means["classes"], rel=1e-4)
    assert said["label"] == "abc"[int(np.argmax(means["classes"]))]
    assert "truncated" not in said
    (said,) = head(vocabulary, Several(stride=STRIDE, num_labels=3))([{"inputs": LONG}])
    assert [*said["probabilities"].values()] == pytest.approx(means["several"], rel=1e-4)


@pytest.mark.parametrize("pieces", ["first", "last"])
def test_tags_of_words_come_in_order_from_the_window_with_most_context(
    vocabulary: Vocabulary, pieces: str
) -> None:
    of_words = [vocabulary.encode(word) for word in LONG.split()]
    assert max(map(len, of_words)) > 1
    tokens = [token for of_word in of_words for token in of_word]
    want, first = [], 0
    for of_word in of_words:
        last = first + len(of_word) - 1
        inside = [bound for bound in windows(len(tokens)) if bound[0] <= first < bound[1]]
        begin, end = max(inside, key=lambda bound: min(first - bound[0], bound[1] - 1 - last))
        at = first if pieces == "first" else min(last, end - 1)
        logits = logits_of(vocabulary, tokens[begin:end])[1 + at - begin]
        want.append("abc"[int(logits.argmax())])
        first = last + 1
    asked = head(vocabulary, Tags(pieces=pieces, stride=STRIDE))
    for inputs in (LONG, LONG.split()):
        assert asked([{"inputs": inputs}]) == [{"words": LONG.split(), "tags": want}]


@pytest.mark.parametrize("objective", [Classes(), Several(num_labels=3), Tags()])
def test_a_text_that_fits_has_the_same_answer_with_windows(
    vocabulary: Vocabulary, objective: LabelledRows
) -> None:
    records = [{"inputs": SHORT}, {"inputs": ""}]
    stride: dict[str, Any] = {"stride": STRIDE}
    whole = head(vocabulary, objective)(records)
    assert head(vocabulary, dataclasses.replace(objective, **stride))(records) == whole
    # Without windows, a text that is longer than a row loses its end.
    (cut,) = head(vocabulary, objective)([{"inputs": LONG * 3}])
    assert cut["truncated"]
    assert "tags" not in cut or cut["tags"][-1] is None
