import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from t5x_like.layers.heads.span_heads import ConditionalSpanHead
from t5x_like.layers.losses import label_losses
from t5x_like.layers.losses.weighed_classes import WeighedClasses
from t5x_like.models.answering import Answering

# Rows of four tokens, of two, and of padding only, which a converter fills with zeros.
COUNTS = jnp.array([[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 0]])
ENDS = {"start_positions": jnp.array([1, 0, 0]), "end_positions": jnp.array([2, -1, 0])}
KINDS = {
    "classes": (label_losses.classes, (3, 5), {"labels": jnp.array([1, 4, 0])}, 2),
    "an unknown class": (label_losses.pairs, (3, 2), {"labels": jnp.array([1, -100, 0])}, 1),
    "numbers": (label_losses.numbers, (3, 1), {"labels": jnp.array([0.5, -2.0, 0.0])}, 2),
    "tags": (
        label_losses.tags,
        (3, 4, 5),
        {"labels": jnp.zeros((3, 4), int).at[0, 3].set(-100)},
        5,
    ),
    "spans": (label_losses.spans, (3, 4, 2), ENDS, 3),
}


@pytest.mark.slow
@pytest.mark.parametrize(("task", "shape", "labels", "known"), KINDS.values(), ids=KINDS)
def test_padding_has_no_labels(task, shape, labels, known):
    logits = jax.random.normal(jax.random.key(0), shape)
    weights = label_losses.label_weights(labels, COUNTS)
    term, _ = task(logits, labels, weights)
    assert weights.dtype == jnp.float32
    assert term.weight == weights.sum() == known
    real = {name: x[:2] for name, x in labels.items()}
    alone, _ = task(logits[:2], real, label_losses.label_weights(real, COUNTS[:2]))
    np.testing.assert_allclose(term.sum, alone.sum, rtol=1e-6)
    full = task(logits, labels, label_losses.label_weights(labels, jnp.ones_like(COUNTS)))[0]
    assert full.weight > known


def test_a_choice_is_labelled_where_an_alternative_has_text():
    counts = jnp.stack([COUNTS, COUNTS[::-1] * 0], axis=1)
    labels = {"labels": jnp.array([0, 1, 0])}
    np.testing.assert_array_equal(label_losses.label_weights(labels, counts), [1, 1, 0])


def test_answers_of_padding_weigh_nothing():
    batch = ENDS | {"encoder_attention_mask": COUNTS, "is_impossible": jnp.zeros(3)}
    ends = {"end_positions": jnp.array([2, 1, 0])}
    weights = Answering.weights(None, batch | ends)
    assert (weights["spans"], weights["answerable"]) == (4, 2)


@pytest.mark.slow
def test_an_answer_is_judged_by_the_last_token_wherever_padding_is():
    head = ConditionalSpanHead(6, dtype="float32", rngs=nnx.Rngs(0), num_starts=2, num_ends=2)
    x = jax.random.normal(jax.random.key(0), (1, 3, 6))
    ones = jnp.ones((1, 3), int)
    want = head.given(x, jnp.array([1]), counts_BL=ones).unanswerable
    for side in ((0, 2), (2, 0)):
        padded = jnp.pad(x, ((0, 0), side, (0, 0)), constant_values=7.0)
        counts, starts = jnp.pad(ones, ((0, 0), side)), jnp.array([1 + side[0]])
        got = head.given(padded, starts, counts_BL=counts).unanswerable
        np.testing.assert_allclose(got, want, rtol=1e-6)
        found = head.search(padded, counts_BL=counts, allowed_BL=counts).unanswerable
        np.testing.assert_allclose(
            found, head.search(x, counts_BL=ones).unanswerable, rtol=1e-5, atol=1e-7
        )


def test_classes_that_weigh_differently() -> None:
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(6, 3)).astype(np.float32), np.array([0, 1, 2, 2, -100, 1])
    batch = {"labels": jnp.asarray(labels)}
    valid = jnp.asarray(labels >= 0, jnp.float32)
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    known = labels >= 0
    losses = -log_p[known, labels[known]]
    weights = np.array([2.0, 0.5, 1.0])
    of_label = weights[labels[known]]
    focus = (1 - np.exp(-losses)) ** 2
    for options, numerators, total in (
        ({"class_weights": (2.0, 0.5, 1.0)}, losses * of_label, of_label.sum()),
        ({"focal_gamma": 2.0}, losses * focus, known.sum()),
        (
            {"class_weights": (2.0, 0.5, 1.0), "focal_gamma": 2.0},
            losses * of_label * focus,
            of_label.sum(),
        ),
    ):
        loss = WeighedClasses(**options)
        term, metrics = loss(jnp.asarray(logits), batch, valid)
        np.testing.assert_allclose(term.sum, numerators.sum(), rtol=1e-5)
        np.testing.assert_allclose(term.weight, total, rtol=1e-6)
        assert term.weight == loss.denominator(batch, valid)
        plain = label_losses.classes(jnp.asarray(logits), batch, valid)[1]
        assert metrics["accuracy"] == plain["accuracy"]


WEIGHED = {
    "classes": (label_losses.classes, (3, 5), np.array([1, 4, 0])),
    "weighed classes": (WeighedClasses(class_weights=(2, 1, 3)), (3, 3), np.array([1, 2, 0])),
    "several": (label_losses.several, (3, 2), np.array([[1, 0], [1, 1], [0, 0]], np.float32)),
    "numbers": (label_losses.numbers, (3, 1), np.array([0.5, -2.0, 1.0], np.float32)),
    "tags": (label_losses.tags, (3, 4, 5), np.array([[1, -1, 2, 0], [3, 3, -1, -1], [4] * 4])),
}


@pytest.mark.parametrize(("loss", "shape", "labels"), WEIGHED.values(), ids=WEIGHED)
def test_a_row_of_weight_2_is_there_twice_and_one_of_weight_0_is_absent(loss, shape, labels):
    logits = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    counts = np.ones((3, 4))

    def mean(rows, weights=None):
        batch = {"labels": labels[rows]}
        batch |= {} if weights is None else {"example_weights": jnp.array(weights)}
        weighed = label_losses.example_weights(
            batch, label_losses.label_weights(batch, counts[rows])
        )
        term = loss(jnp.asarray(logits[rows]), batch, weighed)[0]
        assert term.weight == loss.denominator(batch, weighed)
        return term.sum / term.weight

    np.testing.assert_allclose(mean([0, 1, 2], [1.0, 2.0, 0.0]), mean([0, 1, 1]), rtol=1e-6)
    np.testing.assert_allclose(mean([0, 1, 2], [0.5, 0.5, 0.0]), mean([0, 1]), rtol=1e-6)
