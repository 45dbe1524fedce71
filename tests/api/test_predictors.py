"""How each kind of model reads what it is asked, from abstract models: nothing is computed."""

from __future__ import annotations

import dataclasses

import pytest
from flax import nnx

from t5x_like.api import predictors
from t5x_like.api.predictors import Asked, Options
from t5x_like.inference.likelihoods.target_scorer import Pair
from t5x_like.inference.model_on_mesh import ModelOnMesh
from t5x_like.models import bart, bert, bert_decoder, gpt, prefix_lm, t5, xlnet
from t5x_like.vocabularies.characters import CharacterVocabulary

VOCABULARY = CharacterVocabulary(" .abcdefgh")
IDS = VOCABULARY.token_ids
TEXT = VOCABULARY.encode("abc")
SIZES = {"vocab_size": 64, "d_model": 16, "d_ff": 32, "num_heads": 2}
SIDES = {**SIZES, "num_encoder_layers": 1, "num_decoder_layers": 1}
MODELS = {
    "bert": (bert.Bert, bert.Config(**SIZES, num_layers=1)),
    "xlnet": (xlnet.XLNet, xlnet.Config(**SIZES, num_layers=1)),
    "gpt": (gpt.Gpt, gpt.Config(**SIZES, num_layers=1, max_positions=128)),
    "bert decoder": (bert_decoder.BertDecoder, bert_decoder.Config(**SIZES, num_layers=1)),
    "prefix LM": (prefix_lm.PrefixLm, prefix_lm.Config(**SIZES, d_kv=8, num_decoder_layers=1)),
    "t5": (t5.T5, t5.Config(**SIDES, d_kv=8)),
    "bart": (bart.Bart, bart.Config(**SIDES, max_positions=128, pad_id=0)),
}


def asked(name: str, vocabulary: CharacterVocabulary = VOCABULARY) -> Asked:
    cls, config = MODELS[name]
    model = nnx.eval_shape(lambda: cls(config, rngs=nnx.Rngs(0)))
    return Asked(ModelOnMesh(model), vocabulary)


def predictor(name, ask, **options):
    return predictors.predictor(asked(name), ask, Options(**options))


@pytest.mark.parametrize("name", ["xlnet", "gpt", "bert decoder", "prefix LM"])
def test_a_continuation_follows_the_text_alone(name: str) -> None:
    answering = predictor(name, "write")
    assert answering.framing.text("abc").tokens == TEXT
    assert answering.writer.start is None
    assert answering.framing.keeps_end


@pytest.mark.parametrize("name", ["gpt", "bert decoder", "prefix LM"])
def test_a_target_follows_its_input_and_a_text_alone_what_begins_one(name: str) -> None:
    scoring = predictor(name, "score")
    row, _ = scoring._row({"inputs": "abc", "targets": "ab"})
    assert (row, scoring.score.scored(row)) == (Pair(TEXT, TEXT[:2]), 2)
    scoring.check({"inputs": "abc"})
    row, _ = scoring._row({"inputs": "abc"})
    assert (row, scoring.score.scored(row)) == (Pair([], TEXT), 3)
    arrays = scoring.score._one_row([row], 1, 4)
    assert arrays["decoder_input_tokens"][0].tolist() == [IDS.eos, *TEXT[:2], IDS.pad]
    assert arrays["decoder_loss_weights"][0].tolist() == [1, 1, 1, 0]
    with pytest.raises(ValueError, match="needs inputs and targets"):
        scoring.check({"inputs": "abc", "targets": 3})


def test_an_input_makes_room_for_its_target_by_losing_its_beginning() -> None:
    scoring = predictor("gpt", "score")  # 128 positions
    record = {"inputs": "a" * 120 + "b" * 100, "targets": "c" * 20}
    scoring.check(record)
    pair, cut = scoring._row(record)
    assert VOCABULARY.decode(pair.inputs) == "a" * 8 + "b" * 100
    assert (len(pair.targets), scoring.score.scored(pair), cut) == (20, 20, True)
    with pytest.raises(ValueError, match="129 tokens leave no room among the 128"):
        scoring.check({"inputs": "c" * 129})


def test_an_encoder_decoder_without_blanks_scores_no_text_alone() -> None:
    model = dataclasses.replace(asked("t5"), vocabulary=CharacterVocabulary("abc", extra_ids=0))
    scoring = predictors.predictor(model, "score", Options())
    assert scoring.blanks is None or scoring.blanks.rewrites
    predictor("t5", "score").check({"inputs": "abc"})  # it fills sentinels


@pytest.mark.parametrize("ask", ["fill", "score", "embed"])
def test_an_xlnet_reads_the_types_of_its_tokens(ask: str) -> None:
    framing = predictor("xlnet", ask).framing
    (batch,) = framing.batches([framing.text("abc")], 1)
    assert batch.of_encoder["encoder_token_type_ids"][0, :5].tolist() == [0, 0, 0, 0, 2]


def test_a_written_mask_is_read_as_one_where_states_or_tokens_are_asked_for() -> None:
    for ask in ("embed", "score"):
        assert IDS.mask in predictor("bert", ask).framing.text("a [MASK]").tokens
    assert IDS.mask not in predictor("bart", "write").framing.text("a [MASK]").tokens


def test_what_fills_blanks_reads_masks_with_both_sides() -> None:
    vocabulary = CharacterVocabulary("ab", extra_ids=0)
    able = [name for name in MODELS if "fill" in asked(name, vocabulary).able()]
    assert able == ["bert", "xlnet", "t5", "bart"]
    assert [name for name in able if asked(name, vocabulary).rewrites] == ["t5", "bart"]
    assert not asked("t5").rewrites  # it has sentinels


@pytest.mark.parametrize(
    ("name", "ask", "options", "message"),
    [
        ("bert", "fill", {"k": 0}, "k must be a whole number of at least 1, not 0"),
        ("bert", "fill", {"k": 1.5}, "k must be a whole number of at least 1, not 1.5"),
        ("bert", "embed", {"k": 2}, "k is the number of guesses for a blank, or of classes: embed"),
        ("bart", "fill", {"k": 2}, "writes one answer: k must be 1"),
        ("bert", "embed", {"batch_size": 0}, "batch_size must be a whole number of at least 1"),
        ("gpt", "write", {"max_input_length": -1}, "max_input_length must be a whole number"),
    ],
)
def test_options_that_are_none_are_refused(name, ask, options, message) -> None:
    with pytest.raises(ValueError, match=message):
        predictor(name, ask, **options)
