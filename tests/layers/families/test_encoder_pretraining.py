"""The base of pretrained encoders, around an encoder so small that its loss is easy to check."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from t5x_like.core.abilities import States
from t5x_like.layers.basics import activations
from t5x_like.layers.basics.modules import Embedding
from t5x_like.layers.families.encoder_pretraining import EncoderPretraining, row_weights
from t5x_like.layers.heads import label_heads
from t5x_like.layers.heads.masked_lm import MaskedLanguageHead

VOCAB, WIDTH = 17, 6
NORMAL = nnx.initializers.normal(0.5)


class Lookup(nnx.Module):
    """Its states are the tokens' vectors."""

    def __init__(self, rngs):
        self.tokens = Embedding(VOCAB, WIDTH, init=NORMAL, rngs=rngs)

    def hidden(self, batch, key=None, **_):
        return States(self.tokens(batch["encoder_input_tokens"], dtype="float32"))

    def products(self, counts_BL):
        return 100.0 * (counts_BL > 0).sum()


class Pretraining(EncoderPretraining):
    def __init__(self, *, sentence):
        rngs = nnx.Rngs(0)
        options = {"init": NORMAL, "dtype": "float32", "rngs": rngs}
        self.encoder = Lookup(rngs)
        self.mlm = MaskedLanguageHead(
            (WIDTH, WIDTH), VOCAB, activation=activations.gelu, epsilon=1e-12, **options
        )
        self.sentence = (
            label_heads.SequenceHead(
                WIDTH, 2, pool=label_heads.first, activation=activations.tanh, **options
            )
            if sentence
            else None
        )


def make_batch():
    """Four rows with 3, 1, 2 and 0 masked tokens; the last row is padding."""
    rng = np.random.default_rng(0)
    lengths = np.array([8, 5, 6, 0])
    counts = np.arange(8) < lengths[:, None]
    weights = np.arange(3) < np.array([3, 1, 2, 0])[:, None]
    batch = {
        "encoder_input_tokens": rng.integers(1, VOCAB, (4, 8)) * counts,
        "encoder_attention_mask": counts.astype(np.int32),
        "encoder_token_type_ids": np.zeros((4, 8), np.int32),
        "masked_positions": np.array([[1, 3, 5], [2, 0, 0], [4, 1, 0], [0, 0, 0]]),
        "masked_targets": rng.integers(1, VOCAB, (4, 3)) * weights,
        "masked_loss_weights": weights.astype(np.float32),
        "next_sentence_label": np.array([0, 1, 1, 0]),
    }
    return {name: jnp.asarray(x) for name, x in batch.items()}


BATCH = make_batch()


@jax.jit
def step(model, batch, weights):
    def loss(model):
        scalar, metrics, _ = model.loss(batch, None, (), weights)
        return scalar, metrics

    (scalar, metrics), grads = jax.value_and_grad(loss, has_aux=True)(model)
    return scalar, metrics, grads


def negative_log_likelihoods(logits, targets):
    logits = np.asarray(logits, np.float64)
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return -np.take_along_axis(log_p, np.asarray(targets)[..., None], axis=-1)[..., 0]


@pytest.mark.slow
def test_the_loss_is_the_mean_over_masked_tokens_plus_the_mean_over_rows_that_hold_text():
    model = Pretraining(sentence=True)
    weights = model.weights(BATCH)
    assert weights == {"mlm": 6, "sentence": 3}
    scalar, metrics, _ = step(model, BATCH, weights)
    at = np.asarray(BATCH["masked_positions"])[..., None]
    logits = np.take_along_axis(np.asarray(model.logits(BATCH)), at, axis=1)
    nll = negative_log_likelihoods(logits, BATCH["masked_targets"])
    masked = (nll * BATCH["masked_loss_weights"]).sum()
    pair = model.sentence_logits(BATCH)
    pairs = negative_log_likelihoods(pair, BATCH["next_sentence_label"])[:3].sum()
    np.testing.assert_allclose(scalar, masked / 6 + pairs / 3, rtol=1e-5)
    np.testing.assert_allclose(metrics["mlm_loss"], (masked, 6), rtol=1e-5)
    np.testing.assert_allclose(metrics["mlm_pseudo_perplexity"], (masked, 6), rtol=1e-5)
    np.testing.assert_allclose(metrics["sentence_loss"], (pairs, 3), rtol=1e-5)
    np.testing.assert_allclose(metrics["loss"], [(masked, pairs), (6, 3)], rtol=1e-5)
    right = (logits.argmax(-1) == BATCH["masked_targets"]) * BATCH["masked_loss_weights"]
    np.testing.assert_allclose(metrics["mlm_accuracy"], (right.sum(), 6))
    right = (pair.argmax(-1) == BATCH["next_sentence_label"])[:3]
    np.testing.assert_allclose(metrics["sentence_accuracy"], (right.sum(), 3))
    assert metrics["tokens"] == (8 + 5 + 6, 1)


@pytest.mark.slow
@pytest.mark.parametrize("sentence", [True, False])
def test_unequal_microbatches_give_the_whole_batchs_loss_metrics_and_gradients(sentence):
    model = Pretraining(sentence=sentence)
    weights = model.weights(BATCH)
    whole = step(model, BATCH, weights)
    rows = [{name: x[i : i + 1] for name, x in BATCH.items()} for i in range(4)]
    summed = jax.tree.map(lambda *xs: sum(xs), *(step(model, row, weights) for row in rows))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-6, atol=2e-6), summed, whole)


def test_without_a_head_for_pairs_their_labels_are_not_read():
    model = Pretraining(sentence=False)
    batch = {name: x for name, x in BATCH.items() if name != "next_sentence_label"}
    weights = model.weights(batch)
    assert set(weights) == {"mlm"}
    scalar, metrics, _ = step(model, batch, weights)
    np.testing.assert_allclose(scalar, metrics["loss"][0] / metrics["loss"][1], rtol=1e-6)
    assert not any("sentence" in name for name in metrics)
    with pytest.raises(ValueError, match="no head for pairs"):
        model.sentence_logits(batch)


def test_either_sentence_task_is_read_and_none_is_refused():
    model = Pretraining(sentence=True)
    weights = model.weights(BATCH)
    order = {name.replace("next_sentence", "sentence_order"): x for name, x in BATCH.items()}
    jax.tree.map(
        np.testing.assert_array_equal, step(model, BATCH, weights), step(model, order, weights)
    )
    none = {name: x for name, x in BATCH.items() if name != "next_sentence_label"}
    with pytest.raises(ValueError, match="mlm_nsp or mlm_sop"):
        step(model, none, weights)


def test_a_row_of_padding_and_empty_slots_weigh_nothing():
    np.testing.assert_array_equal(row_weights(BATCH), [1, 1, 1, 0])
    model = Pretraining(sentence=True)
    weights = model.weights(BATCH)
    other = {
        **BATCH,
        "masked_targets": jnp.where(BATCH["masked_loss_weights"] > 0, BATCH["masked_targets"], 9),
        "next_sentence_label": BATCH["next_sentence_label"].at[3].set(1),
    }
    a, b = step(model, BATCH, weights), step(model, other, weights)
    jax.tree.map(np.testing.assert_array_equal, a, b)


def test_flops_count_the_encoder_the_heads_and_the_table_for_what_is_not_padding():
    model = Pretraining(sentence=True)
    head = WIDTH * WIDTH + VOCAB * WIDTH
    pair = WIDTH * WIDTH + 2 * WIDTH
    assert model.flops(BATCH) == 6 * (100 * 19 + 6 * head + 3 * pair)
