import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tiny_models import filled, loss_of, maker, metrics_of, trained

from t5x_like.models import bert, distilbert

SIZES = {
    "vocab_size": 50,
    "d_model": 16,
    "d_ff": 32,
    "num_heads": 4,
    "max_positions": 12,
    "dropout_rate": 0.0,
    "attention_dropout_rate": 0.0,
}
TINY = distilbert.Config(num_layers=2, **SIZES)


make = maker(distilbert.DistilBert, TINY)


@pytest.fixture
def teacher():
    config = bert.Config(num_layers=4, sentence_head=False, **SIZES)
    return filled(lambda: bert.Bert(config, rngs=nnx.Rngs(0)))


@pytest.fixture
def batch(teacher, encoder_batch):
    return jax.jit(distilbert.teach)(teacher, encoder_batch)


@pytest.mark.slow
@pytest.mark.parametrize("masked_only", [False, True])
def test_the_loss_is_the_sum_of_its_three_terms(masked_only, batch):
    model = make(kl_of_masked_only=masked_only)
    loss, metrics, _ = metrics_of(model, batch)
    tokens = np.asarray(batch["encoder_attention_mask"]) > 0
    student, teacher = (
        np.asarray(jax.nn.log_softmax(x / 2.0), np.float64)
        for x in (model.logits(batch), batch["teacher_logits"])
    )
    divergence = 4 * (np.exp(teacher) * (teacher - student)).sum(-1)
    at = ([0, 1, 1, 2, 2, 2, 3], [5, 1, 7, 1, 3, 4, 1])
    kl = divergence[at] if masked_only else divergence[tokens]
    ours, theirs = np.asarray(model.encoder.hidden(batch).last), batch["teacher_states"]
    sizes = np.linalg.norm(ours, axis=-1) * np.linalg.norm(theirs, axis=-1)
    cosine = (1 - (ours * theirs).sum(-1) / sizes)[tokens]
    np.testing.assert_allclose(metrics["kl_loss"], (kl.sum(), len(kl)), rtol=1e-4)
    np.testing.assert_allclose(metrics["cosine_loss"], (cosine.sum(), 30), rtol=1e-4)
    mlm, masked = metrics["mlm_loss"]
    assert masked == 7
    np.testing.assert_allclose(loss, 5 * kl.mean() + 2 * mlm / 7 + cosine.mean(), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("masked_only", [False, True])
def test_microbatches_with_unequal_masks_add_up(masked_only, batch, assert_microbatches_add_up):
    assert_microbatches_add_up(make(kl_of_masked_only=masked_only), batch)


def test_a_student_with_the_parameters_of_its_teacher_has_nothing_to_learn_of_it(encoder_batch):
    config = bert.Config(num_layers=2, type_vocab_size=0, sentence_head=False, **SIZES)
    teacher = filled(lambda: bert.Bert(config, rngs=nnx.Rngs(0)))
    student = nnx.merge(nnx.graphdef(make()), nnx.to_pure_dict(nnx.state(teacher)))
    _, metrics, _ = metrics_of(student, distilbert.teach(teacher, encoder_batch))
    for name in ("kl_loss", "cosine_loss"):
        np.testing.assert_allclose(metrics[name][0], 0, atol=1e-4)


@pytest.mark.parametrize(
    ("teacher", "message"),
    [
        ({}, r"no teacher_logits and no teacher_states: distilbert\.teach"),
        ({"teacher_logits": (5, 12, 50)}, "batch has no teacher_states: "),
        (
            {"teacher_logits": (5, 12, 50), "teacher_states": (5, 12, 32)},
            "states have width 32, the student's 16",
        ),
        (
            {"teacher_logits": (5, 12, 60), "teacher_states": (5, 12, 16)},
            r"scores 60 ids, the student 50: set --gin\.distilbert\.Config\.vocab_size=60",
        ),
    ],
)
def test_a_batch_without_the_teacher_says_what_is_missing(teacher, message, encoder_batch):
    batch = encoder_batch | {name: jnp.zeros(shape) for name, shape in teacher.items()}
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(loss_of, make(), batch)


@pytest.mark.slow
def test_no_gradient_reaches_the_teacher(teacher, encoder_batch, batch):
    model = make()
    grads = jax.grad(lambda t: loss_of(model, distilbert.teach(t, encoder_batch)))(teacher)
    assert all(np.all(x == 0) for x in jax.tree.leaves(grads))
    grads = jax.grad(lambda logits: loss_of(model, {**batch, "teacher_logits": logits}))(
        batch["teacher_logits"]
    )
    assert not grads.any()


def test_nothing_is_dropped_of_what_attention_adds(encoder_batch, monkeypatch):
    sites = []

    def record(x, key, *, rate, shared=()):
        if key is not None and rate:
            sites.append((x.shape, rate))
        return x

    for module in ("dropout", "mlp"):
        monkeypatch.setattr(f"t5x_like.layers.basics.{module}.dropout", record)
    model = make(dropout_rate=0.1, attention_dropout_rate=0.2)
    jax.eval_shape(model.logits, encoder_batch, jax.random.key(0))
    x = ((5, 12, 16), 0.1)
    # The embedding; in a layer (scanned: traced once) probabilities and what feed-forward adds.
    assert sites == [x, ((5, 4, 12, 12), 0.2), x]


@pytest.mark.parametrize(("masked_only", "scored"), [(False, 7 + 30), (True, 7)])
def test_flops_hold_the_logits_that_are_compared(masked_only, scored, encoder_batch):
    d, f, v = 16, 32, 50
    pairs = 12**2 + 9**2 + 6**2 + 3**2
    layers = 2 * (30 * (4 * d * d + 2 * d * f) + 2 * d * pairs)
    model = make(kl_of_masked_only=masked_only)
    assert model.flops(encoder_batch) == 3 * 2 * (layers + scored * (d * d + d * v))


@pytest.mark.slow
def test_a_few_steps_bring_the_student_closer(batch):
    _, metrics = trained(make(), batch, steps=100, rate=3e-3)
    for name in ("kl_loss", "cosine_loss"):
        sums, _ = metrics[name]
        assert sums[-1] < 0.5 * sums[0]


def test_a_temperature_is_above_zero():
    with pytest.raises(ValueError, match=r"distilbert\.Config\.temperature must be above 0"):
        dataclasses.replace(TINY, temperature=0.0)
