"""Corpora from data sets of TensorFlow Datasets (TFDS)."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from t5x_like.core.protocols.data import PAIRS, PLAIN_TEXT
from t5x_like.core.spelling import nearest
from t5x_like.data import extras
from t5x_like.data.corpora import registry
from t5x_like.data.corpora.registry import CorpusError


class TfdsText(registry.Corpus):
    """The texts of a TFDS data set in the order of its files, prepared (downloaded) on first use.

    If the data set has a `validation` split, it is used; otherwise a part of `train` is held out.

    Args:
      tfds_name: the name in TFDS, such as `wiki40b/en` or `ag_news_subset:1.0.0`.
      name: the name of the corpus; None to derive it from `tfds_name`.
      field: the feature that holds the text; None for `text`, or for text-to-text where the data
        set has both `inputs` and `targets`.
      validation: the fraction of documents to hold out where there is no validation split.
      data_dir: the data directory of TFDS; None for its default.
    """

    def __init__(
        self,
        tfds_name: str,
        *,
        name: str | None = None,
        field: str | None = None,
        validation: float = 0.01,
        data_dir: str | None = None,
    ) -> None:
        self.name = name or "".join(c if c.isalnum() else "_" for c in tfds_name)
        self._tfds_name = tfds_name
        self._field = field
        self._validation = float(validation)
        self._data_dir = data_dir

    @functools.cached_property
    def held_out(self) -> float | None:
        return None if "validation" in self._builder.info.splits else self._validation

    @functools.cached_property
    def features(self) -> tuple[str, ...]:
        text_to_text = self._field is None and set(PAIRS) <= set(self._present)
        return PAIRS if text_to_text else PLAIN_TEXT

    @property
    def _fields(self) -> dict[str, str]:
        if self.features == PAIRS:
            return {feature: feature for feature in self.features}
        return {"targets": self._field or "text"}

    @property
    def options_read(self) -> set[str]:
        """The options that apply. No separator does, because each example is a document."""
        return {"field", "validation"}

    @property
    def unread(self) -> tuple[str, ...]:
        return tuple(name for name in self._present if name not in self._fields.values())

    @property
    def _present(self) -> list[str]:
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

    def read(self, split: str, report: registry.ReadReport) -> Iterator[dict[str, str]]:
        del report
        tfds = extras.require("tensorflow_datasets", "data", purpose="a TFDS data set")
        self._check_fields()
        examples = self._builder.as_dataset(
            split="train" if self.held_out is not None else split,
            shuffle_files=False,
            read_config=tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False),
        )
        for example in tfds.as_numpy(examples):
            yield {
                feature: example[field].decode(errors="surrogateescape")
                for feature, field in self._fields.items()
            }

    def _check_fields(self) -> None:
        for field in self._fields.values():
            if field not in self._present:
                advice = nearest(field, self._present, of="features")
                raise CorpusError(f"{self._tfds_name} has no feature {field!r}{advice}")
            feature = self._builder.info.features[field]
            if feature.shape != () or feature.np_dtype != np.object_:
                raise CorpusError(f"feature {field!r} of {self._tfds_name} is not text: {feature}")

    def fingerprint(self) -> str:
        """A digest of the data set's name, version and sizes, and the reading options."""
        info = self._builder.info
        sizes = {name: (s.num_examples, s.num_bytes) for name, s in info.splits.items()}
        read = (info.full_name, sorted(sizes.items()), self._fields, self.held_out)
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
