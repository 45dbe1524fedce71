"""What a kind of label says of files of labelled rows."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from t5x_like.data.corpora.corpus import CorpusError
from t5x_like.data.corpora.label_order import in_order
from t5x_like.data.labelled.columns import Named
from t5x_like.data.labelled.rows import Rows

_MANY_CLASSES = 1000


class Content(NamedTuple):
    """What there is to learn from rows.

    Attributes:
      fields: the field of each column that an objective reads: {"inputs": "sentence", ...}.
      learns: what is learned from what, as the end of a sentence.
      texts: the fields of the texts, or words, of a row of tokens, for each row of an example.
      labels: how often each label occurs; empty where labels have no names.
      needs_order: whether labels have an order that files do not say.
    """

    fields: Mapping[str, str]
    learns: str
    texts: Sequence[Sequence[str]]
    labels: Mapping[str, int]
    needs_order: bool = False


class LabelKind(Protocol):
    """A kind of label.

    Attributes:
      name: what `--kind` calls it.
    """

    name: str

    def fits(self, rows: Rows, named: Named) -> bool:
        """Whether rows look so; raises CorpusError where nobody can know."""

    def content(self, rows: Rows, named: Named) -> Content:
        """What training rows hold; raises CorpusError where they cannot be learned from."""

    def check_held_out(self, rows: Rows, content: Content) -> None:
        """Raises CorpusError where held-out rows do not fit those of training."""


def counted(names: Iterable[str], label: str, files: Any) -> Mapping[str, int]:
    """How often each name occurs, in the order of labels.

    Raises:
      CorpusError: all are the same, or there are more than a model would learn.
    """
    counts = collections.Counter(names)
    where = f"{files}: the column {label!r}"
    if len(counts) == 1:
        raise CorpusError(
            f"{where} is {next(iter(counts))!r} in all rows: there is nothing to learn"
        )
    if len(counts) > _MANY_CLASSES:
        raise CorpusError(
            f"{where} has {len(counts):,} different values: name the column of the label (--label)"
        )
    return {name: counts[name] for name in in_order(counts)}


def check_known(names: Iterable[str], known: Mapping[str, int], label: str, files: Any) -> None:
    """Raises CorpusError where held-out rows have a name that training never shows."""
    if unknown := sorted({*names} - known.keys()):
        raise CorpusError(
            f"{files}: the column {label!r} holds {', '.join(map(repr, unknown[:4]))}, which the "
            "training files never have: no model could learn it"
        )


def of_texts(
    what: str, texts: Sequence[str], label: str, counts: Mapping[str, int] = MappingProxyType({})
) -> Content:
    """The content of rows of one text or two, of which the column `label` says `what`."""
    return Content(
        fields={**dict(zip(("inputs", "inputs2"), texts, strict=False)), "label": label},
        learns=f"{what} from the column {label!r} for {quoted(texts)}",
        texts=[texts],
        labels=counts,
    )


def quoted(texts: Sequence[str]) -> str:
    """The names of the columns of texts, in a sentence."""
    return " and ".join(map(repr, texts))
