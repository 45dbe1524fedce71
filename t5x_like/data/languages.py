"""Corpora as one mixture, of which the smaller ones are read more often than their size says."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping, Sequence

from t5x_like.data.corpora import TARGETS, Corpus, ReadReport
from t5x_like.data.sources import integer_weights


@dataclasses.dataclass(frozen=True)
class Together(Corpus):
    """Several corpora of plain text, one after another: what a vocabulary of all is trained on."""

    corpora: Sequence[Corpus]

    held_out = None  # each has its own splits

    @property
    def name(self) -> str:  # type: ignore[override]
        return "+".join(corpus.name for corpus in self.corpora)[:60]

    @property
    def features(self) -> tuple[str, ...]:
        return TARGETS

    def read(self, split: str, report: ReadReport) -> Iterator[dict[str, str]]:
        """All documents of the split, corpus by corpus."""
        del report  # of one corpus alone
        for corpus in self.corpora:
            if split in corpus.splits:
                yield from corpus.documents(split)

    def fingerprint(self) -> str:
        together = "\n".join(corpus.fingerprint() for corpus in self.corpora)
        return hashlib.sha256(together.encode()).hexdigest()

    def description(self) -> str:
        return "; ".join(corpus.description() for corpus in self.corpora)


def tempered(documents: Mapping[str, int], exponent: float) -> dict[str, int]:
    """Weights in proportion to numbers of documents to the power of `exponent`.

    mT5 takes 0.3 (Xue et al., 2021, section 3.1); 1 is in proportion to size, 0 all alike. Exact
    to a ten thousandth of the largest.

    Raises:
      ValueError: the exponent is not from 0 to 1, or a corpus has no documents.
    """
    if not 0 <= exponent <= 1:
        raise ValueError(f"the exponent of a mixture is from 0 to 1, not {exponent!r}")
    if empty := [name for name, count in documents.items() if not count]:
        raise ValueError(f"no documents to train on: {', '.join(empty)}")
    most = max(documents.values())
    shares = {name: (count / most) ** exponent for name, count in documents.items()}
    return integer_weights({name: max(round(share, 4), 0.0001) for name, share in shares.items()})
