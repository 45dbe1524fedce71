"""SentencePiece models, as files and as saved vocabularies."""

from __future__ import annotations

from hypothesis import strategies as st
from mutations import of_bytes, of_json, one_of

from t5x_like.interop.tokenizers import kinds
from t5x_like.vocabularies import loading
from t5x_like.vocabularies.learning.sentencepiece_training import train_sentencepiece

TEXTS = [f"the value {i} of a list is text, if not a class é" for i in range(200)]


def make(folder):
    for kind in ("unigram", "bpe"):
        (folder / kind).mkdir()
        train_sentencepiece(
            TEXTS,
            folder / kind / "a.model",
            vocab_size=50 if kind == "unigram" else 300,
            model_type=kind,
            byte_fallback=kind == "bpe",
            progress=False,
        )
        loading.load(folder / kind / "a.model").save(folder / f"saved-{kind}")


def read(folder):
    # A user names the file, or the folder where there is none.
    model = folder / "a.model"
    vocabulary = loading.load(model if model.exists() else folder)
    ids = vocabulary.encode_with_sentinels("the value <extra_id_0> of é 語")
    vocabulary.decode(ids)
    vocabulary.encode_batch(["a", " b"])
    vocabulary.token_ids  # noqa: B018 (computed when asked for)
    for i in range(vocabulary.vocab_size):
        vocabulary.piece(i)
    saved = folder / "again"
    vocabulary.save(saved)
    try:
        kinds.describe(vocabulary, saved)
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from error


def damage(draw, files):
    if "vocabulary.json" in files and draw(st.booleans()):
        return one_of(draw, files, of_json, ["vocabulary.json"])
    model = next(name for name in files if name.endswith(".model"))
    return one_of(draw, files, of_bytes, [model])


def test_damaged_models(fuzz):
    fuzz(__file__, damage)
