"""Corpora from data sets of TensorFlow Datasets (TFDS)."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from t5x_like.core.protocols.data import Column
from t5x_like.core.spelling import nearest
from t5x_like.data import extras
from t5x_like.data.corpora import registry
from t5x_like.data.corpora.corpus import CorpusError, Document, ReadReport
from t5x_like.data.corpora.formats import cells
from t5x_like.data.corpora.named_fields import NamedFields


class TfdsText(NamedFields):
    """The texts of a TFDS data set in the order of its files, prepared (downloaded) on first use.

    If the data set has a `validation` split, it is used; otherwise a part of `train` is held out.

    Args:
      tfds_name: the name in TFDS, such as `wiki40b/en` or `ag_news_subset:1.0.0`.
      name: the name of the corpus; None to derive it from `tfds_name`.
      columns, field: as for `NamedFields`; the fields are the data set's features.
      validation: the fraction of documents to hold out where there is no validation split.
      data_dir: the data directory of TFDS; None for its default.
    """

    def __init__(
        self,
        tfds_name: str,
        *,
        name: str | None = None,
        columns: Sequence[Column] | None = None,
        field: str | Mapping[str, str] | None = None,
        validation: float = 0.01,
        data_dir: str | None = None,
    ) -> None:
        super().__init__(columns, field)
        self.name = name or "".join(c if c.isalnum() else "_" for c in tfds_name)
        self._tfds_name = tfds_name
        self._validation = float(validation)
        self._data_dir = data_dir

    @functools.cached_property
    def held_out(self) -> float | None:
        return None if "validation" in self._builder.info.splits else self._validation

    @property
    def options_read(self) -> set[str]:
        """The options that apply. No separator does, because each example is a document."""
        return {"field", "validation"}

    @property
    def present(self) -> list[str]:
        """The names of the data set's features, without nested ones."""
        return list(self._builder.info.features)

    @functools.cached_property
    def _builder(self) -> Any:
        tfds = extras.require("tensorflow_datasets", "data", purpose="a TFDS data set")
        try:
            builder = tfds.builder(self._tfds_name, data_dir=self._data_dir)
        except tfds.core.registered.DatasetNotFoundError as error:
            base = self._tfds_name.partition("/")[0].partition(":")[0]
            # Those of other people are listed in a bucket, for which this must not wait.
            known = tfds.list_builders(with_community_datasets=False)
            advice = nearest(base, known, of="data sets")
            raise CorpusError(f"TFDS has no data set {self._tfds_name!r}{advice}") from error
        if not builder.is_prepared():
            builder.download_and_prepare()
        return builder

    def read(self, split: str, report: ReadReport) -> Iterator[Document]:
        del report
        tfds = extras.require("tensorflow_datasets", "data", purpose="a TFDS data set")
        self._check_fields()
        examples = self._builder.as_dataset(
            split="train" if self.held_out is not None else split,
            shuffle_files=False,
            read_config=tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False),
        )
        for number, example in enumerate(tfds.as_numpy(examples)):
            yield {
                column.name: self._value(column, field, example[field], number)
                for column, field in self.fields.items()
            }

    def _value(self, column: Column, field: str, cell: Any, number: int) -> Any:
        if isinstance(cell, bytes):
            cell = cell.decode(errors="surrogateescape")
        elif column.holds == "label" and (classes := self._classes(field)):
            cell = classes[int(cell)] if cell >= 0 else None  # TFDS writes -1 without a label
        elif isinstance(cell, np.generic):
            cell = cell.item()
        where = f"{self._tfds_name}, example {number}: feature {field!r}"
        return cells.value(column, cell, where=where)

    def _classes(self, field: str) -> tuple[str, ...]:
        """The names of the classes of a `ClassLabel`; empty for other features."""
        return tuple(getattr(self._builder.info.features[field], "names", None) or ())

    def _own_label_names(self) -> dict[str, tuple[str, ...]]:
        """Those that the data set declares, or else those that its splits have."""
        labels = {c.name: field for c, field in self.fields.items() if c.has_names}
        declared = {name: self._classes(field) for name, field in labels.items()}
        return declared if all(declared.values()) else super()._own_label_names()

    def _check_fields(self) -> None:
        for column, field in self.fields.items():
            if field not in self.present:
                advice = nearest(field, self.present, of="features")
                raise CorpusError(f"{self._tfds_name} has no feature {field!r}{advice}")
            feature = self._builder.info.features[field]
            text = feature.shape == () and feature.np_dtype == np.object_
            if column.holds == "text" and not text:
                raise CorpusError(f"feature {field!r} of {self._tfds_name} is not text: {feature}")

    def fingerprint(self) -> str:
        """A digest of the data set's name, version and sizes, and the reading options."""
        info = self._builder.info
        sizes = {name: (s.num_examples, s.num_bytes) for name, s in info.splits.items()}
        read = (info.full_name, sorted(sizes.items()), *self.reading, self.held_out)
        return hashlib.sha256(repr(read).encode()).hexdigest()

    def description(self) -> str:
        return f"{self.name}: {self._tfds_name} of TensorFlow Datasets"


def tfds(name: str, tfds_name: str, **options: Any) -> TfdsText:
    """Registers a TFDS data set under a name, with the options of `TfdsText`.

    The first reading of the corpus imports TFDS and prepares the data.

    Raises:
      ValueError: the name is taken.
    """
    corpus = TfdsText(tfds_name, name=name, **options)
    registry.add(corpus)
    return corpus
