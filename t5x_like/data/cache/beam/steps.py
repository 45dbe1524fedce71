"""The steps of workers on files and shards. Each may be done again, with the same result.

Errors that a user can mend are written to the shared folder, from where the launching process
raises them: raised here, they would reach it as a text, after several tries.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from t5x_like.core.protocols.data import Vocabulary
from t5x_like.data.cache import blocks, tokenization
from t5x_like.data.cache.beam.shared_folder import WORK, SharedFolder
from t5x_like.data.cache.beam.survey import Reading, Source, Stretch
from t5x_like.data.cache.blocks import Place
from t5x_like.data.cache.format import CacheError, shard_name
from t5x_like.data.cache.shards import SIDECARS, ShardPlan
from t5x_like.data.cache.writer import Tokenise
from t5x_like.data.corpora.corpus import CorpusError, Document
from t5x_like.vocabularies import loading

DONE = f"{WORK}/done"
ERRORS = f"{WORK}/errors"
VOCABULARY = f"{WORK}/vocabulary"

_loading = threading.Lock()

Text = tuple[int, list[Document]]
"""Documents of one shard that follow each other, after the bytes of those before them."""

Read = Callable[[Any], Iterator[tuple[int, Text]]]
Write = Callable[[tuple[int, Iterable[Text]]], None]


def survey_name(number: int) -> str:
    """The name of the survey of a file, in the shared folder."""
    return f"{WORK}/surveys/{number:07d}.npz"


@dataclasses.dataclass(frozen=True)
class SurveyFile:
    """Surveys a file, and writes the survey to the shared folder."""

    folder: SharedFolder
    readings: tuple[Reading, ...]

    def __call__(self, source: Source) -> None:
        survey = self.readings[source.reading].survey(source.file)
        self.folder.write(survey_name(source.number), survey.to_bytes())


@dataclasses.dataclass(frozen=True)
class Shards:
    """The shards of a cache, in a folder that all workers write.

    Attributes:
      ends: the place behind all documents of each split.
      block: the bytes that fill a block.
    """

    folder: SharedFolder
    plan: ShardPlan
    ends: Mapping[str, Place]
    block: int

    def key(self, split: str, shard: int) -> int:
        """The number of a shard among those of all splits."""
        return shard * len(self.ends) + list(self.ends).index(split)

    def of_key(self, key: int) -> tuple[str, int]:
        """The split, and the number in it, of `key`."""
        shard, split = divmod(key, len(self.ends))
        return list(self.ends)[split], shard

    def joined(self, split: str, shard: int, texts: Iterable[Text]) -> list[Document]:
        """The documents of a shard from its texts, which come in any order.

        Raises:
          CacheError: texts are missing, or came twice.
        """
        documents: list[Document] = []
        size = 0
        for begin, text in sorted(texts, key=lambda text: text[0]):
            if begin != size:
                break
            documents += text
            size += sum(map(blocks.size_of, text))
        else:
            if self.ends[split].has_all_of(shard, size, block=self.block):
                return documents
        raise CacheError(
            f"the runner of Beam has lost text of {shard_name(split, shard)}, or given it twice. "
            "The other shards are kept: run the same command again, or choose another runner"
        )

    def has(self, split: str, shard: int, *, content: str) -> bool:
        """Whether a shard of this content is complete. If it is, it is marked as done."""
        is_complete = self.folder.holds(self.plan, split, shard, content=content)
        if is_complete:
            self.folder.write(f"{DONE}/{self.key(split, shard)}", b"done")
        return is_complete

    def done(self) -> set[tuple[str, int]]:
        """The shards that are marked and have all their files."""
        files = set(self.folder.names())
        marked = [self.of_key(int(name)) for name in self.folder.names(DONE)]
        return {
            shard
            for shard in marked
            if all(f"{shard_name(*shard)}{suffix}" in files for suffix in ("", *SIDECARS))
        }


@dataclasses.dataclass(frozen=True)
class ReadFile:
    """Reads a file once more, and gives its documents by shard.

    A shard that an earlier run finished is left out where this file has all of it.
    """

    shards: Shards
    readings: tuple[Reading, ...]

    def __call__(self, stretch: Stretch) -> Iterator[tuple[int, Text]]:
        try:
            for part in self.readings[stretch.source.reading].parts(stretch):
                split, shard = part.split, part.shard
                if part.whole:
                    content = blocks.content_of(part.documents)
                    if self.shards.has(split, shard, content=content):
                        continue
                yield self.shards.key(split, shard), (part.begin, part.documents)
        except (CacheError, CorpusError) as error:
            _tell(self.shards.folder, f"file-{stretch.source.number}", error)


@dataclasses.dataclass(frozen=True)
class WriteShard:
    """Tokenises the documents of a shard and writes it, unless an earlier run has finished it."""

    shards: Shards
    vocabulary: str
    sentences: str

    def __call__(self, group: tuple[int, Iterable[Text]]) -> None:
        key, texts = group
        try:
            self._write(*self.shards.of_key(key), texts)
        except CacheError as error:
            _tell(self.shards.folder, f"shard-{key}", error)

    def _write(self, split: str, shard: int, texts: Iterable[Text]) -> None:
        documents = self.shards.joined(split, shard, texts)
        content = blocks.content_of(documents)
        if self.shards.has(split, shard, content=content):
            return
        folder, plan = self.shards.folder, self.shards.plan
        tokenise = Tokenise(plan, _vocabulary(folder.place, self.vocabulary), self.sentences)
        tokenised = map(tokenise, tokenization.batches(documents))
        with folder.writing(plan) as here:
            packed = itertools.chain.from_iterable(tokenised)
            here.write_packed(split, shard, parts=packed, content=content)
        if not self.shards.has(split, shard, content=content):
            # An error of another class: the runner shall try again.
            raise OSError(f"{folder.place} does not have {shard_name(split, shard)} as written")


def _tell(folder: SharedFolder, name: str, error: Exception) -> None:
    folder.write(f"{ERRORS}/{name}", str(error).encode())


def _vocabulary(place: str, fingerprint: str) -> Vocabulary:
    """The vocabulary in the shared folder, once for all threads of this process."""
    with _loading:
        return _loaded(f"{place}/{VOCABULARY}-{fingerprint}", fingerprint)


@functools.lru_cache(2)
def _loaded(place: str, fingerprint: str) -> Vocabulary:
    vocabulary = loading.load(place)
    if vocabulary.fingerprint != fingerprint:
        raise CacheError(f"{place} holds another vocabulary: run the same command again")
    return vocabulary
