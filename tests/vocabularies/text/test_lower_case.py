"""ALBERT's clean-up of text, which only ALBERT's models use."""

import io

import pytest
import sentencepiece as spm

from t5x_like.vocabularies.sentencepiece import SentencePieceVocabulary
from t5x_like.vocabularies.text import lower_case


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("``Quoted'' Text", '"quoted" text'),
        ("Café Ñandú", "cafe nandu"),
        ("\u0391\u03a3", "\u03b1\u03c3"),  # Sigma, letter by letter.
        ("İ", "i"),
        ("ﬁ½", "fi1\u20442"),
        ("東京 plain", "東京 plain"),
    ],
)
def test_clean_up(text, cleaned):
    assert lower_case.alberts(text) == cleaned


def test_capitals_of_special_tokens_do_not_count():
    assert lower_case.has_no_capitals(["[MASK]", "[unused1]", "a", "##b", "1"])
    assert not lower_case.has_no_capitals(["a", "##B"])


def _model(*lines: str, **options: object) -> bytes:
    model = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(lines * 20),
        model_writer=model,
        vocab_size=40,
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    return model.getvalue()


ALBERTS = {
    "pad_id": 0,
    "unk_id": 1,
    "bos_id": -1,
    "eos_id": -1,
    "control_symbols": ["[CLS]", "[SEP]", "[MASK]"],
}


def test_albert_is_recognised(tmp_path):
    path = tmp_path / "spiece.model"
    path.write_bytes(_model("some words for a model", "and more words", **ALBERTS))
    albert = SentencePieceVocabulary(path, extra_ids=2)
    assert albert.cleans_text
    ids = albert.token_ids
    assert (ids.pad, ids.unk, ids.cls, ids.sep, ids.mask) == (0, 1, 2, 3, 4)
    assert (ids.eos, ids.bos) == (None, None)
    plain = albert.encode("some words")
    assert albert.encode("SOME Wörds") == plain
    assert albert.encode_batch(["SOME Wörds"])[0].tolist() == plain
    assert albert.encode_with_sentinels("Some WORDS <extra_id_1>") == [*plain, ids.sentinel(1)]


def test_other_models_keep_capitals(tmp_path):
    for number, (text, options) in enumerate([("Some words", ALBERTS), ("some words", {})]):
        path = tmp_path / f"{number}.model"
        path.write_bytes(_model(text, "and more words for a model", **options))
        vocabulary = SentencePieceVocabulary(path)
        assert not vocabulary.cleans_text
        assert vocabulary.encode("words WORDS") != vocabulary.encode("words words")
