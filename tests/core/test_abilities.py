"""A masked language model whose parts have names of their own is asked like ours."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx

from t5x_like.api.predictors import Asked, Options, predictor
from t5x_like.core import abilities
from t5x_like.core.abilities import (
    LAST,
    GivesStates,
    GuessesMasked,
    MarksReplaced,
    States,
    Want,
    Writes,
)
from t5x_like.inference.model_on_mesh import ModelOnMesh
from t5x_like.layers.losses.target_loss import TargetLoss
from t5x_like.models import bert
from t5x_like.vocabularies.characters import CharacterVocabulary

VOCABULARY = CharacterVocabulary(" .abcdefgh")
CONFIG = bert.Config(
    vocab_size=24,
    d_model=16,
    d_ff=32,
    num_heads=2,
    num_layers=1,
    dtype="float32",
    sentence_head=False,
)


class Lm(nnx.Module):
    """Masked words, by a `trunk` and an `lm_head`."""

    abilities = (GivesStates, GuessesMasked)
    max_tokens = 12

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.trunk = bert.Encoder(CONFIG, rngs=rngs)
        self.lm_head = bert.masked_head(CONFIG, rngs)

    def states(self, batch: Any, *, want: Want = LAST) -> States:
        return self.trunk.hidden(batch, want=want)

    def guesses(self, batch: Any) -> jax.Array:
        x_BLD = self.states(batch).last
        x_BKD = jax.numpy.take_along_axis(x_BLD, batch["masked_positions"][..., None], axis=1)
        return self.lm_head(x_BKD, self.trunk.tokens)


class Nameless(Lm):
    """The same, which declares nothing."""

    abilities = ()


def asked(model: Any, ask: Any, text: str, **options: Any) -> dict[str, Any]:
    one = Asked(ModelOnMesh(model), VOCABULARY)
    (found,) = predictor(one, ask, Options(**options))([{"inputs": text}])
    return dict(found)


@pytest.mark.slow
def test_it_fills_scores_and_embeds_as_a_bert_does() -> None:
    ours = bert.Bert(CONFIG, rngs=nnx.Rngs(0))
    theirs = Lm(nnx.Rngs(0))
    nnx.update(theirs.trunk, nnx.state(ours.encoder))
    nnx.update(theirs.lm_head, nnx.state(ours.mlm))
    assert Asked(ModelOnMesh(theirs), VOCABULARY).able() == ["fill", "score", "rank", "embed"]
    got, want = (asked(one, "fill", "ab ___ c", k=2) for one in (theirs, ours))
    assert got["filled"] == want["filled"]
    for guess, same in zip(got["blanks"][0], want["blanks"][0], strict=True):
        assert guess == {**same, "probability": pytest.approx(same["probability"], rel=1e-5)}
    got, want = (asked(one, "score", "abc") for one in (theirs, ours))
    assert got == {**want, "log_likelihood": pytest.approx(want["log_likelihood"], rel=1e-5)}
    for layer in (-1, 0):
        got, want = (asked(one, "embed", "abc", layer=layer) for one in (theirs, ours))
        np.testing.assert_allclose(got["embedding"], want["embedding"], rtol=1e-5)
    # It reads as many tokens as it says.
    assert asked(theirs, "embed", "a" * 30)["truncated"]


def test_what_is_declared_must_be_there_and_what_is_not_declared_is_not_asked() -> None:
    model = nnx.eval_shape(lambda: Nameless(nnx.Rngs(0)))
    assert Asked(ModelOnMesh(model), VOCABULARY).able() == []
    abilities.check(model)
    lying = type("Lying", (Nameless,), {"abilities": (GuessesMasked, MarksReplaced)})
    with pytest.raises(ValueError, match="Lying declares MarksReplaced, but has no marks"):
        abilities.check(nnx.eval_shape(lambda: lying(nnx.Rngs(0))))
    mute = type("Mute", (Nameless,), {"abilities": (Writes,)})
    with pytest.raises(ValueError, match="no reads_apart, prefill, decode_step: core"):
        abilities.check(nnx.eval_shape(lambda: mute(nnx.Rngs(0))))


def test_a_model_whose_loss_is_that_of_targets_needs_no_states() -> None:
    """As the notebook of new models has one, by `scores` alone."""
    bag = type("Bag", (TargetLoss,), {"scores": lambda self, batch, key=None: None})
    abilities.check(nnx.eval_shape(bag))
    assert Asked(ModelOnMesh(bag()), VOCABULARY).able() == []
