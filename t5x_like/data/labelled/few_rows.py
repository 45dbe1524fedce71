"""Few of the training rows, to learn from: nested draws in which classes keep their shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from t5x_like.data.corpora.corpus import CorpusError
from t5x_like.data.corpora.text_files import TextFiles
from t5x_like.data.labelled import written_rows
from t5x_like.data.labelled.columns import Named
from t5x_like.data.labelled.labelled_files import Labelled, LabelledFiles
from t5x_like.data.labelled.rows import Rows

ALL = "all"
_VERSION = 1
"""A number in the names of folders. Raise it when the same seed would draw other rows."""
_CLASSES = ("classes", "ordered")


class FewRows(NamedTuple):
    """How many training rows are learned from, where held-out rows are for the end alone.

    Attributes:
      examples: the number of rows, or "all"; None for all, with an evaluation after each epoch.
      seed: the seed of the draw. Of one seed, the rows of a smaller number are among those of a
        larger one.
    """

    examples: int | str | None = None
    seed: int = 0

    @property
    def suffix(self) -> str:
        """A part of the name of a run's directory."""
        return "" if self.examples is None else f"-{self.examples}"

    def evaluated(self, macros: Mapping[str, int]) -> dict[str, int]:
        """The macros of steps, by which held-out rows are read at the end alone if rows are few."""
        if self.examples is None:
            return dict(macros)
        steps = macros["TRAIN_STEPS"]
        return {**macros, "EVAL_PERIOD": steps, "CHECKPOINT_PERIOD": steps}

    def of(self, labelled: Labelled, files: LabelledFiles, *, root: Path) -> Labelled:
        """The same labelled files with so few training rows, which are written as JSON lines.

        Args:
          labelled: the files, with held-out ones, which are left as they are.
          files: what they hold.
          root: the folder of caches.

        Raises:
          CorpusError: this is not a number of rows, there are not so many, it is less than that of
            classes, or there are no held-out files.
        """
        if not isinstance(self.examples, int) and self.examples != ALL:
            raise CorpusError(f"examples is a number of rows, or 'all', not {self.examples!r}")
        if labelled.dev is None:
            raise CorpusError(
                "examples are some of the training rows: name the held-out files (dev), so that "
                "all numbers of examples are measured on the same rows"
            )
        if not isinstance(self.examples, int):
            return labelled
        rows = Rows(labelled.train, header=labelled.header)
        stratified = files.kind in _CLASSES
        column = files.fields["label"] if stratified else None
        classes = None if column is None else [str(cell) for cell in rows.cells(column)]
        least = 1 if classes is None else len({*classes})
        if not least <= self.examples <= len(rows):
            raise CorpusError(
                f"examples must be from {least} (a row of each class) to the {len(rows):,} "
                f"training rows, not {self.examples}"
            )
        order = nested_order(len(rows), self.seed, classes=classes)
        kept, everything = {*order[: self.examples]}, [*rows]
        name = TextFiles(labelled.train).name
        written = written_rows.written(
            {name: [row for number, row in enumerate(everything) if number in kept]},
            identity=[_VERSION, self.examples, self.seed, _states(labelled.train)],
            name=f"{name}-{self.examples}",
            root=root,
        )
        said = labelled._replace(train=written[name], kind=files.kind)
        return said._replace(named=_named(files.fields)) if stratified else said


def nested_order(count: int, seed: int, *, classes: Sequence[str] | None = None) -> list[int]:
    """The numbers of rows in an order drawn from a seed; few rows are the first of them.

    With classes, each beginning of the order has them in about the shares of the whole, and each
    class comes before any comes twice.

    Args:
      count: the number of rows.
      seed: the seed.
      classes: the class of each row.
    """
    drawn = np.random.default_rng(seed).permutation(count).tolist()
    if classes is None:
        return drawn
    places: dict[str, int] = {}
    sizes = dict(zip(*np.unique(classes, return_counts=True), strict=True))
    keys: list[tuple[bool, float]] = []
    for number in drawn:
        of_class = classes[number]
        place = places.setdefault(of_class, 0)
        places[of_class] = place + 1
        keys.append((place > 0, (place + 0.5) / sizes[of_class]))
    return [number for _, number in sorted(zip(keys, drawn, strict=True), key=lambda pair: pair[0])]


def _named(fields: Mapping[str, str]) -> Named:
    return Named(fields["inputs"], fields.get("inputs2"), fields["label"])


def _states(train: str | Sequence[str]) -> list[Any]:
    """What changes when a training file does."""
    paths = [Path(str(path)) for path in TextFiles(train, validation=0.0).files("train")]
    return [[str(path), path.stat().st_size, path.stat().st_mtime_ns] for path in paths]
