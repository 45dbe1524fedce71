"""T5's logits against the same architecture written in NumPy, in float64."""

import dataclasses
import operator

import jax
import numpy as np
import pytest
from flax import nnx

from t5x_like.layers.basics.mlp import GatedMlp
from t5x_like.models import t5

EDGES_ENCODER = [8, 12, 16, 23, 32, 46, 64, 91]  # first distances of buckets 8 to 15
EDGES_DECODER = [16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113]  # 16 to 31


def norm(x, scale):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * scale


def relative_bias(table, length, *, encoder):
    bias = np.zeros((table.shape[0], length, length))
    for i in range(length):
        for j in range(length):
            n, edges = (abs(i - j), EDGES_ENCODER) if encoder else (max(i - j, 0), EDGES_DECODER)
            far = edges[0] + np.searchsorted(edges, n, side="right") - 1
            bucket = n if n < edges[0] else far
            bias[:, i, j] = table[:, bucket + (16 if encoder and j > i else 0)]
    return bias


def attention(p, x, memory, *, heads, mask, bias):
    def split(y):
        return y.reshape(*y.shape[:2], heads, -1).transpose(0, 2, 1, 3)

    q, k, v = (
        split(y @ p[name]["kernel"])
        for name, y in (("query", x), ("key", memory), ("value", memory))
    )
    logits = np.where(mask, q @ k.transpose(0, 1, 3, 2) + bias, -1e10)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    y = (weights @ v).transpose(0, 2, 1, 3)
    return y.reshape(*x.shape[:2], -1) @ p["out"]["kernel"]


def mlp(p, x):
    if "wi" in p:
        return np.maximum(x @ p["wi"]["kernel"], 0) @ p["wo"]["kernel"]
    a, b = x @ p["wi_0"]["kernel"], x @ p["wi_1"]["kernel"]
    gelu = 0.5 * a * (1 + np.tanh(np.sqrt(2 / np.pi) * (a + 0.044715 * a**3)))
    return gelu * b @ p["wo"]["kernel"]


def layers(p, side, count):
    """Each layer's parameters and its table: its own, or the one that its side shares."""
    for i in range(count):
        layer = jax.tree.map(operator.itemgetter(i), p[side]["layers"])
        table = layer["relative"] if "relative" in layer else p[f"{side}_relative"]
        yield layer, table["table"]


def logits(p, config, batch):
    inputs, targets = batch["encoder_input_tokens"], batch["decoder_target_tokens"]
    segments = batch.get("encoder_segment_ids", np.ones_like(inputs))
    target_segments = batch.get("decoder_segment_ids", np.ones_like(targets))
    embedding, heads = p["embedding"]["table"], config.num_heads

    def sees(queries, keys, tokens):
        return ((queries[:, :, None] == keys[:, None]) & (tokens > 0)[:, None])[:, None]

    mask = sees(segments, segments, inputs)
    x = embedding[inputs]
    for layer, table in layers(p, "encoder", config.num_encoder_layers):
        h = norm(x, layer["attention_norm"]["scale"])
        bias = relative_bias(table, x.shape[1], encoder=True)
        x = x + attention(layer["attention"], h, h, heads=heads, mask=mask, bias=bias)
        x = x + mlp(layer["mlp"], norm(x, layer["mlp_norm"]["scale"]))
    encoded = norm(x, p["encoder_norm"]["scale"])

    self_mask = np.tril(sees(target_segments, target_segments, targets))
    cross_mask = sees(target_segments, segments, inputs)
    x = embedding[batch["decoder_input_tokens"]]
    for layer, table in layers(p, "decoder", config.num_decoder_layers):
        h = norm(x, layer["self_norm"]["scale"])
        bias = relative_bias(table, x.shape[1], encoder=False)
        x = x + attention(layer["self_attention"], h, h, heads=heads, mask=self_mask, bias=bias)
        h = norm(x, layer["cross_norm"]["scale"])
        cross = layer["cross_attention"]
        x = x + attention(cross, h, encoded, heads=heads, mask=cross_mask, bias=0)
        x = x + mlp(layer["mlp"], norm(x, layer["mlp_norm"]["scale"]))
    x = norm(x, p["decoder_norm"]["scale"])
    if "output" in p:
        return x @ p["output"]["kernel"]
    return x @ embedding.T / np.sqrt(config.d_model)


VARIANTS = {
    "1.0": {},
    "1.1": {"mlp": GatedMlp, "tied_logits": False},
    "umT5": {"mlp": GatedMlp, "tied_logits": False, "relative_bias_per_layer": True},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variant", "batch"),
    [
        ("1.0", "padded_batch"),
        ("1.0", "long_batch"),
        ("1.1", "packed_batch"),
        ("umT5", "padded_batch"),
    ],
)
def test_logits_equal_those_of_the_numpy_forward_pass(variant, batch, tiny, request):
    batch = request.getfixturevalue(batch)
    config = dataclasses.replace(tiny, **VARIANTS[variant])
    graph = nnx.graphdef(nnx.eval_shape(lambda: t5.T5(config, rngs=nnx.Rngs(0))))
    params = jax.jit(lambda: nnx.to_pure_dict(nnx.state(t5.T5(config, rngs=nnx.Rngs(0)))))()

    def perturbed(path, x):  # scales are ones otherwise
        noise = jax.random.normal(jax.random.key(len(jax.tree_util.keystr(path))), x.shape)
        return x * (1 + 0.3 * noise)

    params = jax.jit(lambda p: jax.tree_util.tree_map_with_path(perturbed, p))(params)
    got = jax.jit(lambda params: nnx.merge(graph, params).logits(batch))(params)
    exact = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
    want = logits(exact, config, jax.tree.map(np.asarray, batch))
    scored = np.asarray(batch["decoder_loss_weights"]) > 0
    assert want[scored].std() > 0.5
    np.testing.assert_allclose(got[scored], want[scored], rtol=1e-5, atol=1e-5)


@pytest.fixture
def long_batch():
    """Long enough for the last buckets of both sides."""
    rng = np.random.default_rng(2)
    inputs, targets = rng.integers(2, 50, (1, 110)), rng.integers(2, 50, (1, 125))
    return {
        "encoder_input_tokens": inputs,
        "decoder_input_tokens": np.pad(targets, ((0, 0), (1, 0)))[:, :-1],
        "decoder_target_tokens": targets,
        "decoder_loss_weights": np.ones(targets.shape, np.float32),
    }
