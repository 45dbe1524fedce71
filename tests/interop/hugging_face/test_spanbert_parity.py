"""SpanBERT is exported as a BERT, and imported from one."""

import encoders
import jax
import numpy as np
import parity
import pytest
import torch
import transformers
from flax import nnx

from t5x_like.interop.hugging_face import model_directory
from t5x_like.models import bert, spanbert

pytestmark = pytest.mark.slow
SIZES = {
    "vocab_size": encoders.VOCAB,
    "d_model": 16,
    "d_ff": 24,
    "num_heads": 4,
    "num_layers": 2,
    "max_positions": 12,
}


@pytest.fixture
def model():
    config = spanbert.Config(**SIZES, init_std=0.3)
    return jax.jit(lambda: spanbert.SpanBert(config, rngs=nnx.Rngs(0)))()


def exported(model, directory):
    """What transformers opens: our model without the boundary head."""
    ((name, (plain, params)),) = model_directory.halves(model, parity.params_of(model)).items()
    assert name == ""
    graph = nnx.graphdef(plain)
    return parity.exported(nnx.merge(graph, params), directory)


def test_a_spanbert_goes_out_as_a_bert(model, tmp_path):
    back = exported(model, tmp_path)
    assert type(back) is transformers.BertForMaskedLM
    inputs, batch = encoders.read()
    out = back(**inputs, output_hidden_states=True, output_attentions=True)
    parity.close(jax.jit(model.logits)(batch), out.logits)
    back.set_attn_implementation("eager")
    out = back(**inputs, output_hidden_states=True, output_attentions=True)
    encoders.same_states(model.encoder, batch, out)


def test_the_masked_term_has_their_gradients(model, tmp_path):
    their_model = exported(model, tmp_path)
    inputs, batch = encoders.read()
    batch, labels = encoders.masked(batch)
    out = their_model(**inputs, labels=labels)
    plain = parity.ours_of(their_model, tmp_path / "again")
    assert type(plain) is bert.Bert
    parity.same_loss(plain, batch, their_model, out)
    edges = {
        "boundary_left_positions": np.maximum(batch["masked_positions"] - 1, 0),
        "boundary_right_positions": batch["masked_positions"] + 1,
        "boundary_offsets": np.zeros((5, 3), int),
        "boundary_loss_weights": batch["masked_loss_weights"],
    }
    _, metrics, _ = model.loss(batch | edges, None, (), model.weights(batch | edges))
    loss, weight = metrics["mlm_loss"]
    np.testing.assert_allclose(loss / weight, out.loss.item(), rtol=1e-5)


def test_the_boundary_head_is_that_of_the_published_code(model):
    """Two layers, each dense, gelu, norm; then the token table and its own bias."""
    _, batch = encoders.read(full=True)
    rng = np.random.default_rng(0)
    left, right, offsets = (rng.integers(0, size, (5, 3)) for size in (12, 12, 15))
    states = torch.tensor(np.array(model.encoder.hidden(batch).last))
    params = jax.tree.map(lambda x: torch.tensor(np.array(x)), parity.params_of(model))
    head, rows = params["boundary"], torch.arange(5)[:, None]
    x = torch.cat([states[rows, left], states[rows, right], head["offsets"][offsets]], dim=-1)
    for layer in (head, head["head"]):
        x = torch.nn.functional.gelu(x @ layer["dense"]["kernel"] + layer["dense"]["bias"])
        norm = layer["norm"]
        x = torch.nn.functional.layer_norm(x, (16,), norm["scale"], norm["bias"], eps=1e-12)
    want = x @ params["encoder"]["embedding"]["tokens"]["table"].T + head["head"]["bias"]
    edges = {"left_positions": left, "right_positions": right, "offsets": offsets}
    boundary = {f"boundary_{name}": x for name, x in edges.items()}
    got = model.boundary(model.encoder.hidden(batch).last, model.encoder.tokens, batch=boundary)
    parity.close(got, want)
