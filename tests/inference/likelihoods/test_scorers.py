"""Likelihoods of words: each scorer's are those of the model's own logits."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx

from t5x_like.api import predictors
from t5x_like.api.options import Options
from t5x_like.api.predictors import Asked
from t5x_like.core.protocols.data import Vocabulary
from t5x_like.inference.likelihoods.likelihood import Span, fitted
from t5x_like.inference.likelihoods.target_scorer import Pair
from t5x_like.inference.model_on_mesh import ModelOnMesh
from t5x_like.models import bart, bert, gpt, t5
from t5x_like.vocabularies.learning.subword_training import train_wordpiece

TEXT = "the walker talks to the talker"
SIZES = {"d_model": 16, "d_ff": 32, "num_heads": 2}
SIDES = {**SIZES, "num_encoder_layers": 1, "num_decoder_layers": 1}


@functools.cache
def vocabulary(extra_ids: int) -> Vocabulary:
    return train_wordpiece(
        ["the walk talk er s to"] * 9,
        size=60,
        extra_ids=extra_ids,
        character_coverage=1.0,
        lowercase=True,
    )


@functools.cache
def asked(name: str) -> Asked:
    words = vocabulary(4 if name == "t5" else 0)
    size = words.vocab_size
    make = {
        "bert": lambda: bert.Bert(
            bert.Config(vocab_size=size, num_layers=1, init_std=0.5, **SIZES), rngs=nnx.Rngs(0)
        ),
        "gpt": lambda: gpt.Gpt(
            gpt.Config(vocab_size=size, num_layers=1, max_positions=12, init_std=0.5, **SIZES),
            rngs=nnx.Rngs(0),
        ),
        "t5": lambda: t5.T5(t5.Config(vocab_size=size, d_kv=8, **SIDES), rngs=nnx.Rngs(0)),
        "bart": lambda: bart.Bart(
            bart.Config(vocab_size=size, pad_id=0, max_positions=64, init_std=0.5, **SIDES),
            rngs=nnx.Rngs(0),
        ),
    }
    return Asked(ModelOnMesh(make[name]()), words)


def scoring(name: str, **options: Any) -> Any:
    return predictors.predictor(asked(name), "score", Options(**options))


def guessed(tokens: list[int], at: int) -> np.ndarray:
    """What a BERT predicts at a place: log-probabilities [vocab_size]."""
    model, words = asked("bert").module, asked("bert").vocabulary
    row = np.array([tokens], np.int32)
    batch = {
        "encoder_input_tokens": row,
        "encoder_attention_mask": np.ones_like(row),
        "encoder_token_type_ids": np.zeros_like(row),
        "masked_positions": np.array([[at]], np.int32),
    }
    return np.asarray(jax.nn.log_softmax(model.guesses(batch)[0, 0, : words.vocab_size]))


@pytest.mark.parametrize("within_word", [False, True])
def test_later_pieces_of_a_word_are_masked_if_this_is_asked(within_word: bool) -> None:
    words = asked("bert").vocabulary
    ids, mask = words.token_ids, words.token_ids.mask
    tokens = [ids.cls, *words.encode(TEXT), ids.sep]
    pieces = [words.piece(token) for token in tokens]
    want = 0.0
    for at in range(1, len(tokens) - 1):
        end = at + 1
        while within_word and end < len(tokens) - 1 and not pieces[end].startswith("▁"):
            end += 1
        masked = [*tokens[:at], *[mask] * (end - at), *tokens[end:]]
        want += guessed(masked, at)[tokens[at]]
    assert not all(piece.startswith("▁") for piece in pieces[1:-1])
    (answer,) = scoring("bert", within_word=within_word)([{"inputs": TEXT}])
    assert answer["log_likelihood"] == pytest.approx(want, rel=1e-4)
    assert answer["target_tokens"] == len(tokens) - 2


def test_a_span_is_predicted_from_left_to_right() -> None:
    words = asked("bert").vocabulary
    ids, mask = words.token_ids, words.token_ids.mask
    tokens = words.encode("the walker")
    begin, count = 1, len(tokens) - 1
    assert count > 1
    want, likeliest = 0.0, True
    for n in range(begin, len(tokens)):
        masked = [ids.cls, *tokens[:n], *[mask] * (len(tokens) - n), ids.sep]
        log_p = guessed(masked, n + 1)
        want += log_p[tokens[n]]
        likeliest &= int(log_p.argmax()) == tokens[n]
    (span,) = scoring("bert").of_spans.spans([Span(tokens, begin, len(tokens))])
    assert span == (pytest.approx(want, rel=1e-4), likeliest, count)


def test_a_decoder_reads_what_is_before_a_span() -> None:
    scorer, words = scoring("gpt").of_spans, asked("gpt").vocabulary
    tokens = words.encode("the walk")
    (span,) = scorer.spans([Span([*tokens, *tokens], 1, len(tokens))])
    (pair,) = scorer([Pair(tokens[:1], tokens[1:])])
    assert span == pair
    model = asked("gpt").module
    row = np.array([tokens[:-1]], np.int32)
    batch = {"decoder_input_tokens": row, "decoder_segment_ids": np.ones_like(row)}
    log_p = np.asarray(jax.nn.log_softmax(model.logits(batch)[0]))
    want = sum(log_p[n, token] for n, token in enumerate(tokens[1:]))
    assert span.log_p == pytest.approx(want, rel=1e-4)
    best = log_p.argmax(axis=1).tolist()
    assert span.likeliest == (best == tokens[1:])
    greedy = [*tokens[:1], int(log_p[0].argmax())]
    assert scorer.spans([Span(greedy, 1, 2)])[0].likeliest
    # A text that is longer than the model's 12 positions loses its beginning.
    long = [*tokens * 9]
    assert scorer.spans([Span(long, len(long) - 1, len(long))])[0].tokens == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["t5", "bart"])
def test_each_word_is_put_in_place_of_a_blank(name: str) -> None:
    predictor, words, model = scoring(name), asked(name).vocabulary, asked(name).module
    ids = words.token_ids
    tokens = words.encode(TEXT)
    starts = [n for n, token in enumerate(tokens) if words.piece(token).startswith("▁")]
    want = 0.0
    for begin, end in zip(starts, [*starts[1:], len(tokens)], strict=True):
        blank = ids.mask if name == "bart" else ids.sentinel(0)
        read = predictor.framing.row([*tokens[:begin], blank, *tokens[end:]]).tokens
        before = [*predictor.framing.before, *tokens[:begin]] if name == "bart" else [blank]
        written = [*before, *tokens[begin:end]]
        start = predictor.score.start
        batch = {
            "encoder_input_tokens": np.array([read], np.int32),
            "encoder_attention_mask": np.ones((1, len(read)), np.int32),
            "decoder_input_tokens": np.array(
                [[ids.pad if start is None else start, *written[:-1]]], np.int32
            ),
            "decoder_target_tokens": np.array([written], np.int32),
        }
        log_p = np.asarray(jax.nn.log_softmax(model.logits(batch)[0]))
        places = range(len(before), len(written))
        want += sum(log_p[n, written[n]] for n in places)
    (answer,) = predictor([{"inputs": TEXT}])
    assert answer["log_likelihood"] == pytest.approx(want, rel=1e-4)
    assert answer["target_tokens"] == len(tokens)


def test_a_target_is_scored_beside_texts_alone() -> None:
    predictor = scoring("t5")
    pair = {"inputs": "the walk", "targets": "to"}
    both = predictor([{"inputs": TEXT}, pair])
    assert both == [*predictor([{"inputs": TEXT}]), *predictor([pair])]


def test_within_word_is_for_masked_models() -> None:
    with pytest.raises(ValueError, match="within_word is for likelihoods of models that guess"):
        scoring("gpt", within_word=True)


def test_a_text_that_is_too_long_keeps_its_span() -> None:
    tokens = [*range(10)]
    assert fitted(Span(tokens, 8, 10), 4) == Span([6, 7, 8, 9], 2, 4)
    assert fitted(Span(tokens, 0, 2), 4) == Span([0, 1, 2, 3], 0, 2)
    assert fitted(Span(tokens, 5, 6), 4) == Span([2, 3, 4, 5], 3, 4)
    assert fitted(Span(tokens, 0, 2), None).tokens == tokens
    with pytest.raises(ValueError, match="a word of 6 tokens has no room among the 4"):
        fitted(Span(tokens, 1, 7), 4)
