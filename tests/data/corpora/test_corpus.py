from collections.abc import Iterator

import hypothesis
import hypothesis.strategies as st
import pytest

from t5x_like.core.protocols.data import PAIRS, PLAIN_TEXT, Column
from t5x_like.data.corpora.corpus import Corpus, CorpusError, ReadReport

WORDS = [f"document {i}" for i in range(1000)]


class Listed(Corpus):
    """Texts, or pairs of texts, from memory."""

    def __init__(self, texts, held_out=0.1, name="listed"):
        self.name = name
        self.texts = texts
        self._held_out = held_out

    @property
    def columns(self) -> tuple[Column, ...]:
        return PAIRS if any("inputs" in one for one in self.texts) else PLAIN_TEXT

    @property
    def held_out(self) -> float | None:
        return self._held_out

    def read(self, split: str, report: ReadReport) -> Iterator[dict[str, str]]:
        for text in self.texts:
            yield {"targets": text} if isinstance(text, str) else text

    def fingerprint(self) -> str:
        return "0"

    def description(self) -> str:
        return "texts in memory"

    def split(self, name: str) -> list[str]:
        return [document["targets"] for document in self.documents(name)]


def test_splits_part_the_documents_and_keep_their_order():
    corpus = Listed(WORDS)
    train, validation = corpus.split("train"), corpus.split("validation")
    assert sorted(train + validation, key=WORDS.index) == WORDS
    assert train == sorted(train, key=WORDS.index)
    assert validation == sorted(validation, key=WORDS.index)
    # Binomial with mean 100 and standard deviation 9.5.
    assert 60 < len(validation) < 140


@hypothesis.given(
    texts=st.lists(st.text("ab", min_size=1, max_size=3), min_size=1, max_size=30),
    fraction=st.sampled_from([0.001, 0.3, 0.9]),
)
def test_no_text_is_in_both_splits_and_both_have_some(texts, fraction):
    corpus = Listed(texts, fraction)
    if len(set(texts)) == 1:
        assert corpus.split("train") == texts
        with pytest.raises(CorpusError, match=r"too few documents.*--validation 0"):
            corpus.split("validation")
        return
    train, validation = corpus.split("train"), corpus.split("validation")
    assert train
    assert validation
    assert not set(train) & set(validation)
    assert sorted(train + validation) == sorted(texts)


def test_documents_stay_in_their_split_when_others_come_after():
    before = Listed(WORDS[:500]).split("validation")
    after = Listed(WORDS).split("validation")
    assert before == [text for text in after if text in WORDS[:500]]


def test_references_of_one_input_stay_together():
    pairs = [{"inputs": WORDS[i // 3], "targets": f"answer {i}"} for i in range(900)]
    splits = {
        name: {document["inputs"] for document in Listed(pairs).documents(name)}
        for name in ("train", "validation")
    }
    assert not splits["train"] & splits["validation"]
    assert len(splits["train"] | splits["validation"]) == 300


def test_nothing_is_held_out_where_nothing_should_be():
    corpus = Listed(WORDS, 0.0)
    assert corpus.splits == ("train",)
    assert corpus.split("train") == WORDS
    with pytest.raises(CorpusError, match="no split 'validation', only train"):
        corpus.split("validation")


def test_a_corpus_may_know_its_own_splits():
    corpus = Listed(WORDS, None)
    assert corpus.splits == ("train", "validation")
    assert corpus.split("validation") == WORDS


def test_undecodable_documents_are_counted_and_skipped():
    broken = b"caf\xe9".decode(errors="surrogateescape")
    report = ReadReport()
    corpus = Listed(["a", broken, "", "b", " \n\t"], 0.0)
    found = list(corpus.documents("train", report=report))
    assert found == [{"targets": "a"}, {"targets": "b"}]
    whole = {"inputs": "c", "targets": "d"}
    pairs = Listed([{"inputs": "c", "targets": broken}, whole, {"inputs": " ", "targets": ""}], 0.0)
    assert list(pairs.documents("train", report=report)) == [whole]
    assert str(report) == (
        "skipped 2 of 5 documents: invalid UTF-8 (9 of 13 bytes); "
        "rows without text, null, empty or white space: 3"
    )


def test_a_line_that_is_not_utf8_is_lost_alone():
    broken = b"caf\xe9".decode(errors="surrogateescape")
    report = ReadReport()
    corpus = Listed([f"one\n{broken}\ntwo\n\nthree\n{broken}", broken, f"{broken}\n \n"], 0.0)
    found = [*corpus.documents("train", report=report)]
    assert found == [{"targets": "one\ntwo\n\nthree"}]
    assert str(report) == (
        "skipped 2 of 3 documents and 2 lines of others: invalid UTF-8 (20 of 35 bytes)"
    )


def test_an_empty_corpus_says_why():
    with pytest.raises(CorpusError, match=r"texts in memory.*every document is empty"):
        Listed(["", ""]).split("train")
    with pytest.raises(CorpusError, match="skipped 1 of 1 documents: invalid UTF-8"):
        Listed(["\udcff"]).split("train")
