"""A survey of the files of a corpus, from which follows where each document goes.

Each file is surveyed on its own: the bytes of its documents, in order. Together they say to which
shard the first document of every file goes. Then each file can be read again on its own.
"""

from __future__ import annotations

import dataclasses
import io
import json
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from t5x_like.core.buckets.storage import RemoteFile
from t5x_like.data.cache import blocks
from t5x_like.data.cache.blocks import Part, Place
from t5x_like.data.cache.format import CacheError
from t5x_like.data.corpora.corpus import Chooser, CorpusError, Document, ReadReport, decodable
from t5x_like.data.corpora.formats import text_formats
from t5x_like.data.corpora.formats.text_formats import Layout
from t5x_like.data.corpora.matching_files import File
from t5x_like.data.corpora.text_files import TextFiles


@dataclasses.dataclass(frozen=True)
class Reading:
    """The way in which some files are read and divided.

    Attributes:
      splits: the splits of their documents.
      layout: the place of documents in a file.
      choose: gives each document its split, whatever the order of the documents is.
      block: the bytes that fill a block.
    """

    splits: tuple[str, ...]
    layout: Layout
    choose: Chooser
    block: int

    def documents(self, file: File, report: ReadReport) -> Iterator[tuple[str, Document]]:
        """The documents of a file with their splits."""
        read = text_formats.documents(file, self.layout, report=report)
        return decodable(read, self.choose, texts=self.layout.text_columns, report=report)

    def survey(self, file: File) -> Survey:
        """The survey of a file. An error of the file is part of it."""
        report = ReadReport()
        sizes: dict[str, list[int]] = {split: [] for split in self.splits}
        try:
            for split, document in self.documents(file, report):
                sizes[split].append(blocks.size_of(document))
        except CorpusError as error:
            return Survey({}, ReadReport(), error=str(error))
        except FileNotFoundError:
            return Survey(
                {},
                ReadReport(),
                error=f"{file} is not on {socket.gethostname()}, where a worker runs: name files "
                "on a disk that all workers share, or in a bucket",
            )
        return Survey(
            {split: np.array(of_split, np.uint64) for split, of_split in sizes.items()}, report
        )

    def parts(self, stretch: Stretch) -> Iterator[Part]:
        """The documents of a file, divided into parts of shards.

        Raises:
          CorpusError: the file can no longer be read.
          CacheError: the file is not the one that was surveyed.
        """
        places, file = _copied(stretch.begin), stretch.source.file
        documents = self.documents(file, ReadReport())
        yield from blocks.parts(documents, places, block=self.block)
        if places != stretch.end:
            raise CacheError(
                f"{file} has changed since this command began: run the same command again"
            )


@dataclasses.dataclass(frozen=True)
class Survey:
    """The facts about a file's documents that a survey finds.

    Attributes:
      sizes: uint64 [documents] of each split: the bytes of its documents (or their pieces).
      report: the counts of documents.
      error: why the file cannot be read; empty if it can.
    """

    sizes: Mapping[str, np.ndarray]
    report: ReadReport
    error: str = ""

    def to_bytes(self) -> bytes:
        file = io.BytesIO()
        about = json.dumps({"report": dataclasses.asdict(self.report), "error": self.error})
        arrays: dict[str, Any] = {
            f"sizes_{split}": of_split for split, of_split in self.sizes.items()
        }
        np.savez_compressed(file, about=np.array(about), **arrays)
        return file.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> Survey:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            about = json.loads(str(arrays["about"]))
            sizes = {
                name.removeprefix("sizes_"): arrays[name]
                for name in arrays.files
                if name.startswith("sizes_")
            }
        return cls(sizes, ReadReport(**about["report"]), about["error"])


@dataclasses.dataclass(frozen=True)
class Source:
    """One of the files of a corpus.

    Attributes:
      number: its number among all of them.
      reading: the number of its reading.
      file: the file itself.
    """

    number: int
    reading: int
    file: File


@dataclasses.dataclass(frozen=True)
class Stretch:
    """The stretch of the corpus that one file holds.

    Attributes:
      begin: the place of the first document of each split.
      end: the place of the first document after the file.
    """

    source: Source
    begin: Mapping[str, Place]
    end: Mapping[str, Place]


@dataclasses.dataclass(frozen=True)
class Division:
    """The division of a whole corpus into shards.

    Attributes:
      stretches: that of each file.
      ends: the place behind all documents of each split.
      reports: the counts of documents of each reading.
    """

    stretches: list[Stretch]
    ends: dict[str, Place]
    reports: list[ReadReport]

    @property
    def shards(self) -> dict[str, int]:
        """The number of shards of each split."""
        return {split: place.shards for split, place in self.ends.items()}


def readings(corpus: TextFiles, *, block: int) -> list[Reading]:
    """The readings of a corpus. The first documents are read, until no choice depends on others.

    Raises:
      CorpusError: these cannot be read.
    """
    choices = []
    for splits in corpus.readings:
        choose = corpus.chooser(splits[0])
        if not choose.settled:
            documents = corpus.read(splits[0], ReadReport())
            for _ in decodable(documents, choose, texts=corpus.text_columns, report=ReadReport()):
                if choose.settled:
                    break
        choices.append(Reading(splits, corpus.layout, choose, block))
    return choices


def sources(corpus: TextFiles) -> list[Source]:
    """All files of a corpus, in the order of its documents."""
    files = [
        (reading, file if isinstance(file, RemoteFile) else file.absolute())
        for reading, splits in enumerate(corpus.readings)
        for file in corpus.files(splits[0])
    ]
    return [Source(number, reading, file) for number, (reading, file) in enumerate(files)]


def divide(files: Sequence[Source], surveys: Iterable[Survey], how: Sequence[Reading]) -> Division:
    """The division that follows from the surveys of all files, which come in their order.

    Raises:
      CorpusError: a file cannot be read; the first such file.
    """
    places = [{split: Place() for split in reading.splits} for reading in how]
    reports = [ReadReport() for _ in how]
    stretches = []
    for source, survey in zip(files, surveys, strict=True):
        if survey.error:
            raise CorpusError(survey.error)
        here, report = places[source.reading], reports[source.reading]
        begin = _copied(here)
        for split, sizes in survey.sizes.items():
            for size in sizes.tolist():
                here[split].add(size, block=how[source.reading].block)
        stretches.append(Stretch(source, begin, _copied(here)))
        report.add(survey.report)
    ends = {split: place for ended in places for split, place in ended.items()}
    return Division(stretches, ends, reports)


def _copied(places: Mapping[str, Place]) -> dict[str, Place]:
    return {split: dataclasses.replace(place) for split, place in places.items()}
