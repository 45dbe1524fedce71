"""A named vocabulary is loaded; a missing one is trained once, by the process that `once` picks."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from t5x_like.data.corpora.corpus import ReadReport
from t5x_like.data.vocabulary_choice import VocabularyChoice

WORDS = "alpha beta gamma delta epsilon zeta eta theta iota kappa".split()
DOCUMENTS = [" ".join(WORDS[i:] + WORDS[:i]) for i in range(10)] * 3


@pytest.mark.parametrize("extra_ids", [None, 7])
def test_named_one_needs_no_text(extra_ids: int | None, tmp_path: Path) -> None:
    choice = VocabularyChoice(name="bytes", extra_ids=extra_ids)
    assert choice.open(None, tmp_path).vocab_size == 259 + (extra_ids or 0)
    assert not list(tmp_path.iterdir())


def test_trained_once_for_a_text_a_kind_and_a_size(make_corpus: Callable, tmp_path: Path) -> None:
    corpus = make_corpus(DOCUMENTS, ["held out"])
    choice = VocabularyChoice(size=30)
    first = choice.open(corpus, tmp_path)
    assert first.vocab_size == 130
    (file,) = (tmp_path / "vocabularies").glob("*.model")
    made = file.stat().st_mtime_ns
    assert choice.open(corpus, tmp_path).fingerprint == first.fingerprint
    assert file.stat().st_mtime_ns == made
    VocabularyChoice(size=29).open(corpus, tmp_path)
    VocabularyChoice(size=30, kind="bpe").open(corpus, tmp_path)
    choice.open(make_corpus([*DOCUMENTS, "one more"], ["held out"]), tmp_path)
    assert len(list((tmp_path / "vocabularies").glob("*.model"))) == 4


@pytest.mark.parametrize("kind", ["wordpiece", "byte_bpe", "characters"])
def test_other_kinds_are_directories(make_corpus: Callable, tmp_path: Path, kind: str) -> None:
    corpus = make_corpus(DOCUMENTS)
    choice = VocabularyChoice(size=300, kind=kind)
    first = choice.open(corpus, tmp_path)
    assert first.encode_with_sentinels("<extra_id_99>") == [first.vocab_size - 100]
    (directory,) = (tmp_path / "vocabularies").glob("[!.]*")
    made = directory.stat().st_mtime_ns
    assert choice.open(corpus, tmp_path) == first
    assert directory.stat().st_mtime_ns == made
    fewer = VocabularyChoice(size=300, kind=kind, extra_ids=5).open(corpus, tmp_path)
    assert fewer.vocab_size == first.vocab_size - 95


@pytest.mark.parametrize("fields", [{"size": 4}, {"size": 30.0}, {"kind": "word"}])
def test_what_cannot_be_trained_is_refused(fields: dict) -> None:
    with pytest.raises(ValueError, match="VOCAB_TYPE or VOCAB_SIZE: "):
        VocabularyChoice(**fields)


def test_the_process_that_trains_is_chosen_by_once(make_corpus: Callable, tmp_path: Path) -> None:
    asked = []

    def once(name: str, path: Path, exists: Callable, make: Callable) -> None:
        asked.append((name, path, exists()))
        make()

    VocabularyChoice(size=30).open(make_corpus(DOCUMENTS), tmp_path, once=once)
    ((name, path, existed),) = asked
    assert name == f"vocabulary {path.name}"
    assert not existed
    assert path.is_file()


@pytest.mark.parametrize(("kind", "size"), [("bpe", 30), ("wordpiece", 50)])
def test_two_runs_at_once_train_it_once(
    make_corpus: Callable, tmp_path: Path, kind: str, size: int
) -> None:
    reading, both = threading.Event(), threading.Event()
    times = []

    class Corpus(make_corpus):  # type: ignore[misc]
        def read(self, split: str, report: ReadReport) -> Iterator[dict[str, str]]:
            times.append(split)
            reading.set()
            assert both.wait(60)
            yield from super().read(split, report)

    def late(name: str, path: Path, exists: Callable, make: Callable) -> None:
        assert reading.wait(60)
        assert not exists()
        both.set()
        make()

    choice = VocabularyChoice(size=size, kind=kind)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        first = pool.submit(choice.open, Corpus(DOCUMENTS), tmp_path)
        second = choice.open(Corpus(DOCUMENTS), tmp_path, once=late)
    assert first.result().fingerprint == second.fingerprint
    assert times == ["train"]


def test_nothing_to_train_on(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"set VOCABULARY to 'bytes' or to the vocabulary that"):
        VocabularyChoice().open(None, tmp_path)


def test_training_reads_all_features_and_nothing_held_out(make_corpus: Callable) -> None:
    corpus = make_corpus([{"inputs": "a", "targets": "b"}], [{"inputs": "c", "targets": "d"}])
    assert list(corpus.training_texts()) == ["a", "b"]
