"""Corpora by name are one mixture, tempered by their sizes, with one vocabulary."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import pytest

from t5x_like import objectives
from t5x_like.data.corpora import languages
from t5x_like.data.corpora.corpus import Corpus
from t5x_like.data.corpora.user_corpus import user_corpus
from t5x_like.data.dataset import Data
from t5x_like.data.rows import feature_converters
from t5x_like.data.streams import mixtures, stream
from t5x_like.data.vocabulary_choice import VocabularyChoice
from t5x_like.vocabularies.learning import sampling


def data(folder: Path, **changes) -> Data:
    """A large language of a's and a small one of b's, with one word in each document."""
    settings = {
        "corpus": {"large": letters(folder, "a", 256), "small": letters(folder, "b", 16)},
        "read_corpus": one_document_a_line,
        "objective": objectives.preset("span_corruption"),
        "lengths": {"inputs": 16, "targets": 8},
        "vocabulary": VocabularyChoice(name="bytes"),
        "cache_dir": str(folder / "cache"),
        "workers": 0,
    }
    return Data(**settings | changes)


def letters(folder: Path, letter: str, documents: int) -> str:
    text = "\n".join(f"{letter * 3} {letter * (i % 7 + 1)}" for i in range(documents))
    (folder / f"{letter}.txt").write_text(text)
    return str(folder / f"{letter}.txt")


def one_document_a_line(named: str) -> Corpus:
    return user_corpus(named, separator="line", validation=0.0)


@pytest.mark.parametrize(("exponent", "share"), [(1.0, 16), (0.5, 4), (0.0, 1)])
def test_rows_are_drawn_by_tempered_sizes(tmp_path, exponent, share):
    opened = data(tmp_path, corpus_exponent=exponent).open()
    examples = mixtures.examples(
        opened, "train", converter=feature_converters.EncoderDecoder(), seed=0
    )
    rows = stream.train_stream(examples, batch_size=34, num_threads=0)
    letters: Counter[str] = Counter()
    for batch in itertools.islice(rows, 10):
        for row in batch["encoder_input_tokens"]:
            letters["a" if ord("a") + 3 in row else "b"] += 1  # ids of bytes
    assert letters["a"] / letters["b"] == pytest.approx(share, rel=0.25)
    weights = mixtures.identity(opened)["data.weights"]
    assert weights["large"] == share * weights["small"]


def test_shares_of_rows_are_given(tmp_path):
    opened = data(tmp_path, corpus_shares={"small": 0.75, "large": 0.25}).open()
    assert mixtures.identity(opened)["data.weights"] == {"small": 3, "large": 1}
    for wrong in ({"small": 1}, {"small": 1, "large": 0}, {"small": 1, "large": "1"}, 3):
        with pytest.raises(ValueError, match=r"each text of CORPUS \(\w+, \w+\) a number above 0"):
            data(tmp_path, corpus_shares=wrong)
    with pytest.raises(ValueError, match="CORPUS_SHARES has middle, and CORPUS does not"):
        data(tmp_path, corpus_shares={"small": 1, "large": 1, "middle": 1}).open()


def test_one_vocabulary_is_trained_on_all(tmp_path):
    choice = VocabularyChoice(kind="characters", size=20, extra_ids=4)
    vocabulary = data(tmp_path, vocabulary=choice).open()[0].vocabulary
    ids = vocabulary.encode("ab")
    assert vocabulary.decode(ids) == "ab"


def test_a_vocabulary_reads_languages_in_the_shares_of_the_mixture(tmp_path, monkeypatch):
    sizes = {"a": 256, "b": 16}
    corpora = [one_document_a_line(letters(tmp_path, *size)) for size in sizes.items()]

    def lines(exponent):
        texts = languages.Together(corpora, exponent).training_texts()
        return Counter(text[0] for text in texts)

    assert lines(1.0) == {"a": 256, "b": 16}
    assert lines(0.5) == {"a": 256, "b": 64}
    assert lines(0.0) == {"a": 256, "b": 256}
    monkeypatch.setattr(sampling, "MAX_SENTENCES", 40)
    assert lines(1.0) == {"a": 38, "b": 2}
    assert lines(0.0) == {"a": 20, "b": 20}
    fingerprints = {languages.Together(corpora, e).fingerprint() for e in (0.0, 0.5, 0.5)}
    assert len(fingerprints) == 2


def test_a_rare_script_is_written_in_bytes_where_it_is_not_in_the_vocabulary(tmp_path):
    choice = VocabularyChoice(size=276, byte_fallback=True)
    vocabulary = data(tmp_path, vocabulary=choice).open()[0].vocabulary
    assert vocabulary.decode(vocabulary.encode("ሰላም")) == "ሰላም"
    without = data(tmp_path, vocabulary=VocabularyChoice(size=20)).open()[0].vocabulary
    assert without.token_ids.unk in without.encode("ሰላም")


def test_what_cannot_be_meant_is_refused():
    with pytest.raises(ValueError, match="no documents to train on: b"):
        languages.temper({"a": 3, "b": 0}, 0.3)
    with pytest.raises(ValueError, match="from 0 to 1"):
        languages.temper({"a": 3}, 3.0)
