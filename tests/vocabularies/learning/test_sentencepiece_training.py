import os

import pytest

from t5x_like.vocabularies.learning import sentencepiece_training
from t5x_like.vocabularies.sentencepiece import SentencePieceVocabulary

TEXT = [
    f"Sentence {i} of a text about {word}s and their {word} ways.\n\nA {word} again!"
    for i, word in enumerate(["walk", "run", "train", "model", "token", "vocabulary"] * 6)
]


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_same_text_gives_the_same_bytes(model_type, tmp_path):
    options = {"vocab_size": 50, "model_type": model_type, "progress": False, "max_sentences": 20}
    first = sentencepiece_training.train_sentencepiece(TEXT, tmp_path / "deep/a.model", **options)
    second = sentencepiece_training.train_sentencepiece(
        iter(TEXT), str(tmp_path / "b.model"), **options
    )
    other = sentencepiece_training.train_sentencepiece(
        TEXT, tmp_path / "c.model", seed=1, **options
    )
    assert first.read_bytes() == second.read_bytes() != other.read_bytes()
    assert os.listdir(first.parent) == ["a.model"]
    vocabulary = SentencePieceVocabulary(first, extra_ids=0)
    assert vocabulary.vocab_size == 50
    ids = vocabulary.token_ids
    assert (ids.pad, ids.eos, ids.unk, ids.bos) == (0, 1, 2, None)


def test_byte_fallback_leaves_nothing_unknown(tmp_path):
    path = sentencepiece_training.train_sentencepiece(
        TEXT, tmp_path / "a.model", vocab_size=310, byte_fallback=True, progress=False
    )
    vocabulary = SentencePieceVocabulary(path)
    assert vocabulary.decode(vocabulary.encode("東京")) == "東京"


def test_too_little_text_says_the_largest_size(tmp_path):
    with pytest.raises(ValueError, match="largest possible is") as caught:
        sentencepiece_training.train_sentencepiece(
            TEXT, tmp_path / "a.model", vocab_size=9000, progress=False
        )
    largest = int(str(caught.value).split()[-1].replace(",", ""))
    assert not (tmp_path / "a.model").exists()
    path = sentencepiece_training.train_sentencepiece(
        TEXT, tmp_path / "a.model", vocab_size=largest, progress=False
    )
    assert SentencePieceVocabulary(path, extra_ids=0).vocab_size == largest


def test_too_small_a_size_says_the_smallest(tmp_path):
    with pytest.raises(ValueError, match="give at least") as caught:
        sentencepiece_training.train_sentencepiece(
            TEXT, tmp_path / "a.model", vocab_size=10, progress=False
        )
    smallest = int(str(caught.value).split("at least ")[1].split(",")[0])
    path = sentencepiece_training.train_sentencepiece(
        TEXT, tmp_path / "a.model", vocab_size=smallest, model_type="bpe", progress=False
    )
    assert SentencePieceVocabulary(path, extra_ids=0).vocab_size == smallest


def test_bad_arguments_fail_before_text_is_read(tmp_path):
    def untouched():
        raise AssertionError("was read")
        yield

    with pytest.raises(ValueError, match="unigram, bpe"):
        sentencepiece_training.train_sentencepiece(
            untouched(), tmp_path / "a.model", model_type="word"
        )
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        sentencepiece_training.train_sentencepiece(untouched(), tmp_path / "file/a.model")
    with pytest.raises(TypeError, match="one string"):
        sentencepiece_training.train_sentencepiece("text", tmp_path / "a.model")
    with pytest.raises(ValueError, match="every document is empty"):
        sentencepiece_training.train_sentencepiece(
            ["", "\n \n"], tmp_path / "a.model", progress=False
        )
