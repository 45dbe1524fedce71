"""A mixture of corpora, in which smaller corpora may have more than their proportional share."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Iterator, Mapping, Sequence

from t5x_like.data.corpora import text_pieces
from t5x_like.data.corpora.corpus import Corpus
from t5x_like.data.corpora.rates import integer_weights
from t5x_like.vocabularies.learning import sampling


@dataclasses.dataclass(frozen=True)
class Together:
    """Several corpora of plain text as one text, on which their common vocabulary is trained.

    Attributes:
      corpora: two or more corpora.
      exponent: the exponent of the mixture (`tempered`).
    """

    corpora: Sequence[Corpus]
    exponent: float = 1.0

    @property
    def name(self) -> str:
        return "+".join(corpus.name for corpus in self.corpora)[:60]

    def training_texts(self) -> Iterator[str]:
        """The lines of all corpora, at most `sampling.MAX_SENTENCES`, in the mixture's proportions.

        The vocabulary of mT5 was trained on its languages in the same proportions as the model (Xue
        et al., 2021, section 3.2). Lines of a corpus that has too few are repeated. Each text is
        read twice.
        """
        named = {str(n): corpus for n, corpus in enumerate(self.corpora)}
        documents = {name: _count(corpus) for name, corpus in named.items()}
        weights = temper(documents, self.exponent)
        whole = sum(weights.values())
        shares = {name: weight / whole for name, weight in weights.items()}
        samples = {
            name: sampling.sample(
                corpus.training_texts(),
                max_sentences=max(1, round(shares[name] * sampling.MAX_SENTENCES)),
                seed=0,
                progress=True,
            )
            for name, corpus in named.items()
        }
        # The total number of lines at which no corpus has more lines than its share.
        lines = max(len(samples[name]) / shares[name] for name in named)
        for name, sample in samples.items():
            wanted = max(len(sample), round(lines * shares[name]))
            yield from itertools.islice(itertools.cycle(sample), wanted)

    def fingerprint(self) -> str:
        parts = [*(corpus.fingerprint() for corpus in self.corpora), f"exponent {self.exponent}"]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _count(corpus: Corpus) -> int:
    documents = sampling.with_bar(corpus.documents("train"), doing="counting")
    return sum(not text_pieces.continues(document) for document in documents)


def temper(documents: Mapping[str, int], exponent: float) -> dict[str, int]:
    """Weights in proportion to the numbers of documents to the power of `exponent`.

    The exponent is 0.3 in mT5 (Xue et al., 2021, section 3.2). With 1, weights are in proportion to
    size; with 0, they are equal. They are exact to a ten thousandth of the largest weight.

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
