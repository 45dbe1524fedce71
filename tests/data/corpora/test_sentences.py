"""Segments are sentences, and lose no character."""

# ruff: noqa: RUF001 (full-width punctuation is meant)

import dataclasses
import functools
import itertools
import re
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from t5x_like.data.cache import tokenization, writer
from t5x_like.data.cache.format import CacheError
from t5x_like.data.cache.reader import Cache
from t5x_like.data.corpora import sentences
from t5x_like.data.corpora.text_files import TextFiles
from t5x_like.data.corpora.user_corpus import user_corpus
from t5x_like.data.dataset import Data
from t5x_like.data.streams import mixtures
from t5x_like.data.vocabulary_choice import KnownVocabulary
from t5x_like.vocabularies.byte import ByteVocabulary
from t5x_like.vocabularies.learning.sentencepiece_training import train_sentencepiece
from t5x_like.vocabularies.learning.subword_training import train_byte_bpe, train_wordpiece
from t5x_like.vocabularies.sentencepiece import SentencePieceVocabulary

ENGLISH = 'Dr. Smith came at 3 p.m. on Friday.  He said "No." and left! Why?\n\nA new line. It ends'
CHINESE = "他来了。她走了！真的吗？是的。\n新的一行。"
HINDI = "यह एक वाक्य है। वह गया। क्या?"
ARABIC = "هذا كتاب. هل قرأته؟ نعم."


def joined_of(text, language):
    found = tokenization.split_segments(text, language)
    assert "".join(found) == text
    return [segment.strip() for segment in found]


def test_sentences_of_several_scripts():
    assert joined_of(ENGLISH, "en") == [
        "Dr. Smith came at 3 p.m. on Friday.",
        'He said "No." and left!',
        "Why?",
        "A new line.",
        "It ends",
    ]
    assert joined_of(CHINESE, "zh") == [
        "他来了。",
        "她走了！",
        "真的吗？",
        "是的。",
        "新的一行。",
    ]
    assert joined_of(HINDI, "hi") == ["यह एक वाक्य है।", "वह गया।", "क्या?"]
    assert joined_of(ARABIC, "ar") == ["هذا كتاب.", "هل قرأته؟", "نعم."]
    assert joined_of(ENGLISH, "lines") == [line for line in ENGLISH.split("\n") if line]


@given(
    text=st.text(
        st.characters(exclude_categories=["Cs"]) | st.sampled_from(" .!?。\n\u00a0AB"), max_size=60
    ),
    language=st.sampled_from(["en", "de", "zh", "xx"]),
)
def test_segments_joined_are_the_text_and_none_is_empty(text, language):
    found = tokenization.split_segments(text, language)
    assert "".join(found) == text
    for before, after in itertools.pairwise(found):
        # White space alone is a segment only where a line is nothing else.
        assert after.strip() or before.endswith("\n")


@pytest.fixture(scope="module")
def vocabularies(tmp_path_factory):
    lines = [*ENGLISH.split("\n"), *CHINESE.split("\n"), HINDI, ARABIC] * 20
    path = tmp_path_factory.mktemp("model") / "a.model"
    train_sentencepiece(lines, path, vocab_size=85, character_coverage=1.0, progress=False)
    return {
        "sentencepiece": SentencePieceVocabulary(path),
        "byte_bpe": train_byte_bpe(lines, size=400, extra_ids=0),
        "wordpiece": train_wordpiece(
            lines, size=400, extra_ids=0, character_coverage=1.0, lowercase=False
        ),
        "bytes": ByteVocabulary(),
    }


@pytest.mark.parametrize("kind", ["sentencepiece", "byte_bpe", "wordpiece", "bytes"])
@pytest.mark.parametrize(("text", "language"), [(ENGLISH, "en"), (HINDI, "hi"), (CHINESE, "zh")])
def test_the_tokens_of_sentences_are_those_of_lines(vocabularies, kind, text, language):
    vocabulary = vocabularies[kind]
    tokens = {
        cut: np.concatenate(
            [
                r.features["targets"]
                for r in tokenization.plain_records([{"targets": text}], vocabulary, cut)
            ]
        ).tolist()
        for cut in (language, "lines")
    }
    if language != "zh":
        assert tokens[language] == tokens["lines"]
    # Nothing is inserted between two sentences without a space.
    texts = [re.sub(r"\s+", "", vocabulary.decode(found)) for found in tokens.values()]
    assert texts[0] == texts[1]
    assert vocabulary.decode(tokens[language]) == vocabulary.decode(tokens["lines"])


def test_a_cache_is_of_one_way_to_cut(tmp_path):
    (tmp_path / "a.txt").write_text(ENGLISH)
    corpus = TextFiles(tmp_path / "a.txt", validation=0, separator="file")

    def written(language, name="cache", **options):
        directory = tmp_path / name
        writer.write_cache(
            directory,
            corpus,
            ByteVocabulary(),
            sentences=language,
            progress=False,
            workers=1,
            **options,
        )
        return Cache.open(directory).split("train")

    english, lines = written("en"), written("lines", "other")
    assert (len(english.segments(0)), len(lines.segments(0))) == (5, 2)
    assert english.record(0)["targets"].tolist() == lines.record(0)["targets"].tolist()
    assert english.content != lines.content
    with pytest.raises(CacheError, match="segments by the rule 'sentences-v1 en"):
        written("de")
    assert written("en").content == english.content


@pytest.mark.parametrize("wrong", ["english", "", "EN", None, 3])
def test_what_is_no_language_is_refused(wrong):
    with pytest.raises(ValueError, match="the code of a language, such as 'en'"):
        sentences.check(wrong, None)


def test_a_mixture_may_have_a_language_for_each():
    corpus = {"german": "de/*.txt", "chinese": "zh/*.txt"}
    sentences.check({"german": "de", "chinese": "zh"}, corpus)
    with pytest.raises(ValueError, match="a mixture of chinese, german: give a language for each"):
        sentences.check({"german": "de"}, corpus)
    with pytest.raises(ValueError, match="a mixture of nothing"):
        sentences.check({"german": "de"}, "de/*.txt")


def test_a_finished_cache_needs_no_splitter(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text(ENGLISH)
    data = Data(
        lengths={"inputs": 32},
        corpus=str(tmp_path / "a.txt"),
        read_corpus=functools.partial(user_corpus, validation=0),
        objective="mlm_nsp",
        vocabulary=KnownVocabulary(
            train_wordpiece(
                [ENGLISH] * 9, size=300, extra_ids=0, character_coverage=1.0, lowercase=False
            )
        ),
        cache_dir=str(tmp_path / "cache"),
        workers=1,
    )
    made = data.open()
    monkeypatch.setitem(sys.modules, "sentencex", None)
    assert mixtures.identity(data.open()) == mixtures.identity(made)
    assert "sentences-v1 en" in mixtures.identity(made)["data.a.segments"]
    with pytest.raises(ImportError):
        dataclasses.replace(data, sentences="de").open()
    lines = dataclasses.replace(data, sentences="lines").open()
    assert mixtures.identity(lines) != mixtures.identity(made)
