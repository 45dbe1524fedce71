"""Text that tests make for themselves: sentences of invented words, which are repeated."""

from __future__ import annotations

from pathlib import Path

import numpy as np


def write_documents(path: Path, *, count: int = 400, sentences: int = 8) -> Path:
    """Documents between blank lines, a sentence on each line; always the same."""
    rng = np.random.default_rng(0)
    parts = [a + b for a in "b d f g k l m n p r s t".split() for b in "aeiou"]
    words = np.array(["".join(word) for word in rng.choice(parts, (500, 3))])
    texts = [
        "\n".join(" ".join(rng.choice(words, rng.integers(4, 12))) + "." for _ in range(sentences))
        for _ in range(count)
    ]
    path.write_text("\n\n".join(texts))
    return path
