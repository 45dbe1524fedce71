import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tiny_models import loss_and_grads, maker, metrics_of, trained

from t5x_like.models import bert, spanbert
from t5x_like.objectives import spanbert as objective

TINY = spanbert.Config(
    vocab_size=50,
    d_model=16,
    d_ff=32,
    num_heads=4,
    num_layers=2,
    max_positions=12,
    max_boundary_targets=3,
    d_offset=6,
    dropout_rate=0.0,
    attention_dropout_rate=0.0,
)


make = maker(spanbert.SpanBert, TINY)


def dense_gelu_norm(x, dense, norm):
    """Dense, gelu, norm for a vector, float64: the activation comes before the norm."""
    x = x @ np.asarray(dense.kernel[...], np.float64) + dense.bias[...]
    x = np.asarray(jax.nn.gelu(x, approximate=False), np.float64)
    return (x - x.mean()) / x.std() * norm.scale[...] + norm.bias[...]


def log_softmax(x):
    return x - np.log(np.exp(x).sum())


def test_the_boundary_term_is_its_definition(encoder_batch):
    model, batch = make(), encoder_batch
    loss, metrics, _ = metrics_of(model, batch)
    states = np.asarray(model.encoder.hidden(batch).last, np.float64)
    head, table = model.boundary, np.asarray(model.encoder.tokens.table[...], np.float64)
    nll = []
    # (row, masked slot): the others have no weight, or are in the middle of a cut-off span
    for row, slot in [(0, 0), (1, 0), (2, 0), (2, 2), (3, 0)]:
        left = states[row, batch["boundary_left_positions"][row, slot]]
        right = states[row, batch["boundary_right_positions"][row, slot]]
        offset = head.offsets[...][batch["boundary_offsets"][row, slot]]
        x = dense_gelu_norm(np.concatenate([left, right, offset]), head.dense, head.norm)
        x = dense_gelu_norm(x, head.head.dense, head.head.norm)
        logits = x @ table.T + head.head.bias[...]
        nll.append(-log_softmax(logits)[batch["masked_targets"][row, slot]])
    np.testing.assert_allclose(metrics["boundary_loss"], (sum(nll), 5), rtol=1e-5)
    mlm, masked = metrics["mlm_loss"]
    assert masked == 7
    np.testing.assert_allclose(loss, mlm / 7 + np.mean(nll), rtol=1e-5)
    assert set(metrics) == {
        *("loss", "mlm_loss", "mlm_accuracy", "mlm_pseudo_perplexity"),
        *("boundary_loss", "boundary_accuracy"),
        *("tokens", "flops"),
    }


@pytest.mark.slow
def test_the_boundary_term_alone_reads_its_head(encoder_batch):
    _, grads = loss_and_grads(make(), encoder_batch)
    rows = np.abs(grads.boundary.offsets[...]).max(axis=1)
    assert set(np.flatnonzero(rows)) == {0, 1}  # offset 2 is only in a slot without weight
    nothing = {**encoder_batch, "boundary_loss_weights": jnp.zeros((5, 3))}
    loss, grads = loss_and_grads(make(), nothing)
    assert all(np.all(x == 0) for x in jax.tree.leaves(grads.boundary))
    np.testing.assert_allclose(
        loss, bert.EncoderPretraining.loss(*bert_of(make(), nothing))[0], rtol=1e-6
    )


def bert_of(model, batch):
    """Arguments of a BERT's loss, with the same body and head."""
    plain = bert.Bert(TINY, rngs=nnx.Rngs(0))
    plain.encoder, plain.mlm = model.encoder, model.mlm
    return plain, batch, None, (), plain.weights(batch)


def test_flops_are_a_berts_and_those_of_the_boundaries(encoder_batch):
    model = make()
    own = 5 * ((2 * 16 + 6) * 16 + 16 * 16 + 16 * 50)
    plain = bert.EncoderPretraining.flops(model, encoder_batch)
    assert model.flops(encoder_batch) == plain + 3 * 2 * own


@pytest.mark.slow
def test_a_few_steps_lower_both_terms(encoder_batch):
    _, metrics = trained(make(), encoder_batch, steps=60, rate=3e-3)
    for name in ("mlm_loss", "boundary_loss"):
        sums, _ = metrics[name]
        assert sums[-1] < 0.1 * sums[0]


def test_the_model_reads_what_the_objective_makes():
    lengths = {"inputs": 24}
    features = objective.SpanBERT().features(lengths)
    batch = {
        name: jnp.zeros((2, *([] if spec.length is None else [spec.length])), spec.dtype)
        for name, spec in features.items()
    }
    batch["encoder_input_tokens"] = batch["encoder_attention_mask"] = batch.pop("inputs")
    batch["encoder_token_type_ids"] = batch.pop("token_type_ids")
    scalar, *_ = jax.eval_shape(lambda: metrics_of(make(max_positions=24), batch))
    assert scalar.shape == ()
    assert spanbert.Config().max_boundary_targets == objective.SpanBERT().max_pair_targets
