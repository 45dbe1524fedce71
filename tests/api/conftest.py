"""A small pretrained model, and a file of labels to fine-tune it on."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import stored_berts
from small_reviews import BAD, GOOD, NAMES, THINGS


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT that has learned nothing yet."""
    text = " ".join(["a", *GOOD, *BAD, *THINGS, *NAMES, "sings", "and", "number"])
    directory = tmp_path_factory.mktemp("models") / "mine"
    return stored_berts.write_untrained(directory, text, vocab_size=200, dropout_rate=0.1)


@pytest.fixture(scope="module")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """160 sentences whose sentiment is that of their adjective."""
    draw = random.Random(0)
    lines = ["remark,verdict"]
    for number in range(160):
        label, words = draw.choice([("good", GOOD), ("bad", BAD)])
        lines.append(f'"a {draw.choice(words)}, {draw.choice(THINGS)} {number}",{label}')
    path = tmp_path_factory.mktemp("labels") / "reviews.csv"
    path.write_text("\n".join(lines) + "\n")
    return path
