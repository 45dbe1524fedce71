"""Columns of every kind in a cache: what is read is what was written."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from t5x_like.core.protocols.data import Column, FeatureSpec
from t5x_like.data.cache.format import CacheError
from t5x_like.data.cache.reader import Cache
from t5x_like.data.cache.record_codec import RecordCodec
from t5x_like.data.cache.writer import write_cache
from t5x_like.data.corpora.corpus import Corpus, Document, ReadReport
from t5x_like.data.rows.feature_converters import Encoder
from t5x_like.data.streams import mixtures
from t5x_like.data.streams.stream import train_stream
from t5x_like.data.task import of_corpus
from t5x_like.objectives.supervised.classes import Classes
from t5x_like.vocabularies.byte import ByteVocabulary
from t5x_like.vocabularies.characters import CharacterVocabulary

COLUMNS = (
    Column("inputs"),
    Column("label", "label"),
    Column("image", "numbers", (4, 4, 3)),
    Column("spelling", "numbers", (None, 5)),
    Column("score", "numbers"),
)
ROWS = 30


def document(n: int) -> Document:
    rng = np.random.default_rng(n)
    return {
        "inputs": f"row {n}",
        "label": str(n % 11),
        "image": rng.standard_normal((4, 4, 3)).astype(np.float32),
        "spelling": rng.integers(0, 9, (n % 4, 5)).astype(np.float32),
        "score": np.float32(n),
    }


class Rows(Corpus):
    name = "rows"
    columns = COLUMNS
    held_out = 0.2

    def read(self, split: str, report: ReadReport) -> Iterator[Document]:
        yield from map(document, range(ROWS))

    def fingerprint(self) -> str:
        return "0"

    def description(self) -> str:
        return "rows in memory"


class PictureRows(Rows):
    columns = COLUMNS[:4]

    def read(self, split: str, report: ReadReport) -> Iterator[Document]:
        for row in super().read(split, report):
            yield {column.name: row[column.name] for column in self.columns}


def test_records_have_the_values_and_shapes_of_the_columns(tmp_path: Path) -> None:
    vocabulary = ByteVocabulary()
    write_cache(tmp_path, Rows(), vocabulary, workers=1, progress=False)
    cache = Cache.open(tmp_path)
    assert cache.manifest.columns == COLUMNS
    # Numbers by value, not by the alphabet.
    assert cache.manifest.labels == {"label": tuple(map(str, range(11)))}
    seen = set()
    for split in ("train", "validation"):
        records = cache.split(split)
        for i in range(len(records)):
            record = records.record(i)
            n = int(record["score"])
            seen.add(n)
            assert vocabulary.decode(record["inputs"]) == f"row {n}"
            assert (record["label"].shape, int(record["label"])) == ((), n % 11)
            for name in ("image", "spelling"):
                np.testing.assert_array_equal(record[name], document(n)[name])
        # The numbers of labels are not tokens of the vocabulary.
        assert records.counts["label"].sum() == 0
    assert seen == set(range(ROWS))


def test_a_label_beyond_the_names_is_an_error(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(Rows, "label_names", {"label": tuple("0123456789")})
    with pytest.raises(CacheError, match="column 'label' holds the label '10', which is not one"):
        write_cache(tmp_path, Rows(), ByteVocabulary(), workers=1, progress=False)


class TaggedRows(Rows):
    columns = (Column("tags", "tags"), Column("words", "words"))
    rows = (("ab\na", "N\nV"), ("b", "N"), ("abb\nb", "V\nN"))

    def read(self, split: str, report: ReadReport) -> Iterator[Document]:
        yield from ({"words": words, "tags": tags} for words, tags in self.rows)


def test_a_tag_stands_at_the_first_token_of_its_word(tmp_path: Path) -> None:
    vocabulary = CharacterVocabulary(" ab")
    write_cache(tmp_path, TaggedRows(), vocabulary, workers=1, progress=False)
    cache = Cache.open(tmp_path)
    assert cache.manifest.columns == TaggedRows.columns
    assert cache.manifest.labels == {"tags": ("N", "V")}
    records = [cache.split(split) for split in ("train", "validation")]
    found = [of.record(i) for of in records for i in range(len(of))]
    as_lists = [(one["words"].tolist(), one["tags"].tolist()) for one in found]
    # A vocabulary of characters begins a word with the space before it.
    assert sorted(as_lists) == sorted(
        [
            (vocabulary.encode(" ab a"), [0, -1, -1, 1, -1]),
            (vocabulary.encode(" b"), [0, -1]),
            (vocabulary.encode(" abb b"), [1, -1, -1, -1, 0, -1]),
        ]
    )
    assert [*TaggedRows().training_texts()] == ["ab a", "abb b"]


def test_words_without_tags_are_refused(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(TaggedRows, "rows", (("a b", "N"), ("a", "N\nV")))
    with pytest.raises(CacheError, match="column 'tags' has 2 tags in a row of 1 words"):
        write_cache(tmp_path, TaggedRows(), ByteVocabulary(), workers=1, progress=False)


def test_a_record_of_another_shape_is_damaged() -> None:
    codec = RecordCodec({"image": "float32"}, {"image": (2, 3)})
    whole = codec.encode({"image": np.ones((2, 3), np.float32)})
    codec.check(whole)
    np.testing.assert_array_equal(codec.decode(whole)["image"], np.ones((2, 3)))
    for size in (0, 3, 12):
        other = RecordCodec({"image": "float32"}).encode({"image": np.ones(size, np.float32)})
        with pytest.raises(ValueError, match="other lengths"):
            codec.check(other)


@dataclasses.dataclass(frozen=True)
class Pictures(Classes):
    """A user's objective: an image and a text beside it, one of some characters a word."""

    reads = (Column("inputs"), Column("label", "label"), *COLUMNS[2:4])

    def features(self, lengths: Mapping[str, int]) -> dict[str, FeatureSpec]:
        return super().features(lengths) | {
            "image": FeatureSpec(4, "float32", item=(4, 3)),
            "spelling": FeatureSpec(6, item=(5,)),
        }

    def __call__(self, sample: Any, rng: Any, ids: Any) -> dict[str, np.ndarray]:
        found = super().__call__(sample, rng, ids)
        return found | {name: sample[name] for name in ("image", "spelling")}


def test_a_feature_of_any_shape_comes_through_batches(tmp_path: Path) -> None:
    """Padded along its first axis; an example that is cut keeps its beginning."""
    vocabulary = CharacterVocabulary(" row0123456789")
    made = of_corpus(PictureRows(), Pictures()).with_directory(vocabulary)
    made.write_cache(tmp_path, vocabulary, workers=1, progress=False)
    task = made.with_cache(Cache.open(tmp_path), {"inputs": 6})
    (rows,) = mixtures.examples([task], "train", converter=Encoder(), seed=0)
    batch = next(train_stream([rows], batch_size=4, num_threads=0, shuffle=False))
    assert {name: (x.shape, x.dtype) for name, x in batch.items() if x.ndim > 2} == {
        "image": ((4, 4, 4, 3), np.float32),
        "spelling": ((4, 6, 5), np.int32),
    }
    records = task.cache.split("train")
    ids = vocabulary.token_ids
    for place in range(4):
        n = int(vocabulary.decode(records.record(place)["inputs"])[4:])
        tokens = batch["encoder_input_tokens"][place].tolist()
        text = vocabulary.encode(f"row {n}")[:4]
        assert tokens == [ids.cls, *text, ids.sep, *[ids.pad] * (4 - len(text))]
        assert batch["labels"][place] == n % 11
        np.testing.assert_array_equal(batch["image"][place], document(n)["image"])
        spelling = document(n)["spelling"]
        np.testing.assert_array_equal(batch["spelling"][place, : len(spelling)], spelling)
        assert not batch["spelling"][place, len(spelling) :].any()
