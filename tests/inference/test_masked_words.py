"""Blanks of masked models: each guess is what the model itself says at the mask."""

from __future__ import annotations

import jax
import numpy as np
import pytest
import tokenizers
from flax import nnx

from t5x_like.inference import masked_words, text_rows
from t5x_like.inference.model_on_mesh import ModelOnMesh
from t5x_like.models import albert, bert, electra, t5, xlnet
from t5x_like.vocabularies.characters import CharacterVocabulary
from t5x_like.vocabularies.subwords import SubwordVocabulary

VOCABULARY = CharacterVocabulary(" .abcdefgh")
SIZES = {"vocab_size": 64, "d_model": 16, "d_ff": 32, "num_heads": 2, "num_layers": 1}
BERT = {**SIZES, "dtype": "float32"}
TEMPLATE = "cls:0 A:0 sep:0"
TEXTS = ["a ___ b [MASK] c", "[MASK]", "dead <mask> beef " * 20]

MODELS = {
    "bert": lambda rngs: bert.Bert(bert.Config(**BERT), rngs=rngs),
    "albert": lambda rngs: albert.Albert(albert.Config(**BERT, d_embedding=8), rngs=rngs),
    "electra": lambda rngs: electra.Electra(
        electra.Config(**BERT, d_embedding=8, generator_width=0.5), rngs=rngs
    ),
    "xlnet": lambda rngs: xlnet.XLNet(xlnet.Config(**SIZES, dtype="float32", mem_len=4), rngs=rngs),
}


def guessed(model, texts, k=3):
    framing = text_rows.Framing(VOCABULARY, TEMPLATE)
    return masked_words.MaskedWords(model=ModelOnMesh(model), framing=framing, k=k).guesses(texts)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_guesses_are_ordered_and_do_not_depend_on_what_is_read_beside(name: str) -> None:
    model = MODELS[name](nnx.Rngs(0))
    found = guessed(model, TEXTS)
    assert [len(one.blanks) for one in found] == [2, 1, 20]
    for one in found:
        for blank in one.blanks:
            shares = [guess.probability for guess in blank]
            assert shares == sorted(shares, reverse=True)
            assert 0 < sum(shares) < 1
    for text, together in zip(TEXTS, found, strict=True):
        (alone,) = guessed(model, [text])
        for a, b in zip(alone.blanks, together.blanks, strict=True):
            got, want = ([one.probability for one in blank] for blank in (a, b))
            np.testing.assert_allclose(got, want, rtol=1e-4)


@pytest.mark.slow
def test_a_bert_guesses_by_its_own_logits() -> None:
    model, ids = MODELS["bert"](nnx.Rngs(0)), VOCABULARY.token_ids
    row = [ids.cls, *VOCABULARY.encode("a"), ids.mask, *VOCABULARY.encode(" b"), ids.sep]
    batch = {
        "encoder_input_tokens": np.array([row]),
        "encoder_attention_mask": np.ones((1, len(row)), int),
    }
    logits = model.logits(batch)[0, row.index(ids.mask), : VOCABULARY.vocab_size]
    best = int(logits.argmax())
    ((guess, *_),) = guessed(model, ["a ___ b"])[0].blanks
    assert guess.token == VOCABULARY.piece(best).strip("▁ ")
    assert guess.probability == pytest.approx(float(jax.nn.softmax(logits)[best]), rel=1e-5)


def test_what_cannot_be_filled_is_said() -> None:
    model = nnx.eval_shape(lambda: MODELS["bert"](nnx.Rngs(0)))
    with pytest.raises(ValueError, match="no blank in 'abc'"):
        guessed(model, ["abc"])
    sides = {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_kv": 8}
    sizes = {name: value for name, value in SIZES.items() if name != "num_layers"}
    writer = nnx.eval_shape(lambda: t5.T5(t5.Config(**sizes, **sides), rngs=nnx.Rngs(0)))
    with pytest.raises(ValueError, match="a T5 predicts no masked tokens"):
        guessed(writer, TEXTS)


def subwords(kind: str) -> SubwordVocabulary:
    """WordPiece or byte-level BPE with the same few words."""
    if kind == "wordpiece":
        words = "[UNK] [MASK] a app the un i ( ) . ##the ##s".split()
        model = tokenizers.models.WordPiece({word: n for n, word in enumerate(words)})
        made = tokenizers.Tokenizer(model)
        made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
        made.decoder = tokenizers.decoders.WordPiece(cleanup=True)
    else:
        pieces = [*"aptheunis().", "Ġ", "th", "the", "Ġthe", "<mask>"]
        merges = [("t", "h"), ("th", "e"), ("Ġ", "the")]
        model = tokenizers.models.BPE({piece: n for n, piece in enumerate(pieces)}, merges)
        made = tokenizers.Tokenizer(model)
        made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = tokenizers.decoders.ByteLevel()
    return SubwordVocabulary(made.to_str())


@pytest.mark.parametrize(
    ("kind", "text", "token", "filled"),
    [
        ("wordpiece", "app[MASK]", "the", "app the"),
        ("wordpiece", "app [MASK] i", "the", "app the i"),
        ("wordpiece", "app [MASK] i", "##s", "apps i"),
        ("wordpiece", "i [MASK] i", ".", "i. i"),
        ("wordpiece", "([MASK])", "the", "(the)"),  # as without the space
        ("wordpiece", "[MASK] app\n[MASK]", "the", "the app\nthe"),
        ("wordpiece", "i [MASK] i", "[MASK]", "i i"),  # a special token is not text
        ("byte_bpe", "app[MASK]", "Ġthe", "app the"),
        ("byte_bpe", "app [MASK]s", "Ġthe", "app thes"),
        ("byte_bpe", "app [MASK]", "the", "appthe"),
        ("byte_bpe", "([MASK])", "Ġthe", "( the)"),
        ("byte_bpe", "i [MASK] i", ".", "i. i"),
    ],
)
def test_a_token_brings_its_space_or_takes_one_away(kind, text, token, filled) -> None:
    vocabulary = subwords(kind)
    i = tokenizers.Tokenizer.from_str(vocabulary.tokenizer_json).token_to_id(token)
    parts = text.split("[MASK]")
    assert masked_words.filled(parts, [i] * (len(parts) - 1), vocabulary) == filled
