"""Files of labelled rows: their kind of label, and which columns are the texts and the label."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from t5x_like.core.protocols.data import WEIGHT
from t5x_like.data.corpora.corpus import CorpusError
from t5x_like.data.labelled import example_weights
from t5x_like.data.labelled.columns import NONE_NAMED, Named
from t5x_like.data.labelled.kind import Content, LabelKind
from t5x_like.data.labelled.kinds import (
    choices,
    classes,
    numbers,
    ordered,
    several,
    spans,
    tags,
    texts,
)
from t5x_like.data.labelled.rows import Rows

KINDS: Mapping[str, LabelKind] = {
    kind.name: kind
    for kind in (
        spans.Spans(),
        tags.Tags(),
        choices.Choices(),
        texts.Texts(),
        several.Several(),
        numbers.Numbers(),
        ordered.Ordered(),
        classes.Classes(),
    )
}
"""The kinds of labels by name; the first that fits is taken."""


class Labelled(NamedTuple):
    """Labelled files, and what is said of them.

    Attributes:
      train, dev, kind, named, header, weight: those of `understand`.
      labels: the names of the classes in the order of their numbers; None for those of the files.
      metrics: the metrics of texts that are written, of `evaluation.task_metrics.METRICS`; empty
        for the usual ones.
      best_metric: the metric by which a checkpoint is best; None for the usual one.
      several_targets: whether held-out rows of one text are several right targets of it.
      notes: lines about what was read.
    """

    train: str | Sequence[str]
    dev: str | Sequence[str] | None = None
    kind: str | None = None
    named: Named = NONE_NAMED
    header: Sequence[str] = ()
    labels: Sequence[str] | None = None
    metrics: tuple[str, ...] = ()
    best_metric: str | None = None
    several_targets: bool = False
    weight: str | None = None
    notes: tuple[str, ...] = ()

    def understood(self) -> LabelledFiles:
        """What the files hold; errors are those of `understand`."""
        return understand(
            self.train,
            self.dev,
            kind=self.kind,
            named=self.named,
            header=self.header,
            order=self.labels,
            weight=self.weight,
        )


@dataclasses.dataclass(frozen=True)
class LabelledFiles:
    """What files of labelled rows hold.

    Attributes:
      kind: the name of the kind of label.
      fields: the field of each column that an objective reads: {"inputs": "sentence", ...}.
      train: the number of training rows.
      held_out: the number of held-out rows; None where they are drawn from the training files.
      labels: how often each label occurs in the training files.
      some_texts: the text or the two texts of some training rows, spread evenly; words in a line.
      some_targets: what is to be written for them; empty for labels.
      learns: what is learned from what, as the end of a sentence.
    """

    kind: str
    fields: Mapping[str, str]
    train: int
    held_out: int | None
    labels: Mapping[str, int]
    some_texts: Sequence[Sequence[str]]
    some_targets: Sequence[str]
    learns: str

    @property
    def pair(self) -> bool:
        """Whether there are two texts."""
        return "inputs2" in self.fields

    def lines(self) -> Iterator[str]:
        """Sentences about what was understood."""
        yield f"Learns {self.learns} ({self.train:,} rows)."
        if self.labels:
            shown = sorted(self.labels.items(), key=lambda item: (-item[1], item[0]))
            counts = ", ".join(f"{name} {count:,}" for name, count in shown[:12])
            more = f" and {len(shown) - 12} more" if len(shown) > 12 else ""
            yield f"{len(shown)} labels: {counts}{more}."


def understand(
    train: str | Sequence[str],
    dev: str | Sequence[str] | None = None,
    *,
    kind: str | None = None,
    named: Named = NONE_NAMED,
    header: Sequence[str] = (),
    order: Sequence[str] | None = None,
    weight: str | None = None,
) -> LabelledFiles:
    """What files of labelled rows hold, by the names of their columns and by what is in them.

    Args:
      train: the training files, as `TextFiles` takes them.
      dev: the held-out files.
      kind: the kind of label, of `KINDS`; None to find it.
      named: the columns that are known.
      header: the names of the columns of tables whose first line does not have them.
      order: the names of all classes in the order of their numbers.
      weight: the column that says how much a row counts in the loss.

    Raises:
      CorpusError: the files are damaged, a column is missing or cannot be found, or the labels are
        not of the kind, or one only, or unknown, or in no known order; or weights are not numbers
        that are 0 or more.
    """
    if kind is not None and kind not in KINDS:
        raise CorpusError(f"kind must be one of {', '.join(sorted(KINDS))}, not {kind!r}")
    aside = () if weight is None else (weight,)
    rows = Rows(train, header=header, aside=aside)
    of_kind = KINDS[kind] if kind else next(k for k in KINDS.values() if k.fits(rows, named))
    content = of_kind.content(rows, named)
    if weight is not None:
        example_weights.check(rows, weight, of_kind.name)
        content = content._replace(fields={**content.fields, WEIGHT.name: weight})
    content = content._replace(labels=_in_order(content, order, rows))
    others = None if dev is None else Rows(dev, header=header, aside=aside)
    if others is not None:
        _check_held_out(others, content, of_kind)
    target = content.fields.get("targets")
    some_texts = [
        [_line(rows.cell(row, field)) for field in of_row]
        for row in rows.some()
        for of_row in content.texts
    ]
    return LabelledFiles(
        kind=of_kind.name,
        fields=content.fields,
        train=len(rows),
        held_out=None if others is None else len(others),
        labels=content.labels,
        some_texts=some_texts,
        some_targets=[str(row[target]) for row in rows.some()] if target else (),
        learns=content.learns,
    )


def _check_held_out(rows: Rows, content: Content, kind: LabelKind) -> None:
    """Raises CorpusError where held-out rows lack a column, or do not fit those of training."""
    for field in content.fields.values():
        rows.check_column(field)
    kind.check_held_out(rows, content)
    if WEIGHT.name in content.fields:
        example_weights.check(rows, content.fields[WEIGHT.name], kind.name)


def _in_order(content: Content, order: Sequence[str] | None, rows: Rows) -> Mapping[str, int]:
    """The counts of labels, of all that are named.

    Raises:
      CorpusError: a label is not among those named, or none are where their order is needed.
    """
    labels = content.labels
    if order is None:
        if content.needs_order:
            raise CorpusError(
                f"{rows.files}: the order of {', '.join(map(repr, labels))} is not known: name all "
                "from the lowest to the highest, as in --gin.CORPUS_LABELS=\"['low', 'high']\""
            )
        return labels
    if unknown := sorted(labels.keys() - {*order}):
        raise CorpusError(
            f"{rows.files} has the label {unknown[0]!r}, which is none of those named: "
            f"{', '.join(order)}"
        )
    return {name: labels.get(name, 0) for name in order}


def _line(cell: str | Sequence[str] | None) -> str:
    return cell if isinstance(cell, str) else " ".join(cell or ())
