import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tiny_models import initialised, logits_of, loss_and_grads, loss_of, trained

from t5x_like.core.counter_random import COUNTER
from t5x_like.core.partitioning import make_layout, map_parameters
from t5x_like.layers.attention.attention_kernels import blocked, plain
from t5x_like.layers.attention.gpu_attention import gpu
from t5x_like.layers.attention.tpu_attention import tpu
from t5x_like.layers.basics.mlp import GatedMlp
from t5x_like.models import t5

UNTIED = {"mlp": GatedMlp, "tied_logits": False}


def make(config, **changes):
    return initialised(t5.T5, dataclasses.replace(config, **changes))


@jax.jit
def loss_metrics_carry(model, batch, weights):
    return model.loss(batch, None, model.initial_carry(len(weights)), weights)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, UNTIED], ids=["1.0", "1.1"])
def test_a_fresh_model_has_logits_of_unit_variance(changes, tiny, padded_batch):
    config = dataclasses.replace(tiny, vocab_size=4000, d_model=128, d_kv=32, d_ff=256)
    model = make(config, **changes)
    np.testing.assert_allclose(logits_of(model, padded_batch).var(), 1, rtol=0.15)
    _, metrics, _ = loss_metrics_carry(model, padded_batch, model.weights(padded_batch))
    loss, weight = metrics["loss"]
    np.testing.assert_allclose(loss / weight, np.log(4000) + 0.5, rtol=0.1)


@pytest.mark.slow
def test_initial_scales(tiny):
    model = make(tiny, vocab_size=2000, d_model=64, d_ff=256, **UNTIED)
    sizes = {
        "embedding": (model.embedding.table, 1.0),
        "wi_0": (model.encoder.layers.mlp.wi_0.kernel, 64**-0.5),
        "wo": (model.decoder.layers.mlp.wo.kernel, 256**-0.5),
        "output": (model.output.kernel, 64**-0.5),
    }
    for name, (param, std) in sizes.items():
        np.testing.assert_allclose(param[...].std(), std, rtol=0.03, err_msg=name)
    for name in ("wi_0", "wo", "output"):  # truncated at two deviations of the uncut normal
        param, std = sizes[name]
        assert np.abs(param[...]).max() < 2 / 0.87 * std
    np.testing.assert_array_equal(model.encoder.layers.mlp_norm.scale[...], 1)


def distinct_batch(packed: bool) -> dict[str, jax.Array]:
    """Two rows with no token in common, as two examples each or with padding."""
    encoder = jnp.array([[1, 1, 1, 1, 2, 2, 2, 0, 0]] * 2)
    decoder = jnp.array([[1, 1, 1, 2, 2, 2, 0]] * 2)
    inputs, targets = jnp.arange(1, 19).reshape(2, 9), jnp.arange(21, 35).reshape(2, 7)
    batch = {
        "encoder_input_tokens": inputs,
        "decoder_input_tokens": jnp.arange(41, 55).reshape(2, 7),
        "decoder_target_tokens": targets,
        "decoder_loss_weights": (decoder > 0).astype(jnp.float32),
    }
    if packed:
        return {**batch, "encoder_segment_ids": encoder, "decoder_segment_ids": decoder}
    hidden = {"encoder_input_tokens": inputs * (encoder > 0)}
    return {**batch, **hidden, "decoder_target_tokens": targets * (decoder > 0)}


@jax.jit
@jax.grad
def logit_grads(model, batch, position):
    return jnp.square(model.logits(batch)[0, position]).sum()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("packed", "position", "seen"),
    [
        (False, 2, {*range(1, 8), 41, 42, 43}),  # row 0: its inputs but padding, targets so far
        (False, 0, {*range(1, 8), 41}),
        (True, 2, {*range(1, 5), 41, 42, 43}),  # the first example of row 0
        (True, 4, {5, 6, 7, 44, 45}),  # the second
    ],
)
def test_logits_have_gradients_of_the_tokens_they_may_see_and_no_others(
    packed, position, seen, tiny
):
    model = make(tiny, vocab_size=60, **UNTIED)
    batch = distinct_batch(packed)
    grads = logit_grads(model, batch, position)
    rows = np.abs(grads.embedding.table[...]).max(axis=1)
    assert set(np.flatnonzero(rows)) == seen


@pytest.mark.slow
def test_padding_and_other_segments_leave_logits_bit_equal(tiny):
    model = make(tiny, vocab_size=60, **UNTIED)
    batch = distinct_batch(packed=True)
    first = {
        "encoder": batch["encoder_segment_ids"] == 1,
        "decoder": batch["decoder_segment_ids"] == 1,
    }
    changed = {
        **batch,
        "encoder_input_tokens": jnp.where(first["encoder"], batch["encoder_input_tokens"], 57),
        "decoder_input_tokens": jnp.where(first["decoder"], batch["decoder_input_tokens"], 58),
        "decoder_target_tokens": jnp.where(first["decoder"], batch["decoder_target_tokens"], 59),
    }
    a, b = logits_of(model, batch), logits_of(model, changed)
    np.testing.assert_array_equal(a[:, :3], b[:, :3])
    assert np.abs(a[:, 3:] - b[:, 3:]).min(axis=-1).max() > 0


def test_packed_examples_score_as_each_does_alone(tiny):
    model = make(tiny, vocab_size=60, **UNTIED)
    batch = distinct_batch(packed=True)
    packed = logits_of(model, batch)
    alone = {name: x[:, 4:7] for name, x in batch.items() if name == "encoder_input_tokens"}
    alone |= {
        name: x[:, 3:6]
        for name, x in batch.items()
        if name.startswith("decoder") and "ids" not in name
    }
    np.testing.assert_allclose(logits_of(model, alone), packed[:, 3:6], atol=1e-5)


@pytest.mark.slow
def test_dropout_needs_a_key_and_differs_by_key(tiny, padded_batch):
    model = make(tiny, dropout_rate=0.3)
    plain = logits_of(model, padded_batch)
    np.testing.assert_array_equal(plain, logits_of(make(tiny), padded_batch))
    one, other = (logits_of(model, padded_batch, jax.random.key(i)) for i in (0, 1))
    assert not np.allclose(one, plain, atol=0.1)
    assert not np.allclose(one, other, atol=0.1)
    np.testing.assert_array_equal(one, logits_of(model, padded_batch, jax.random.key(0)))


def test_dropout_sites(tiny, padded_batch, monkeypatch):
    sites = []

    def record(x, key, *, rate, shared=()):
        assert key is not None
        sites.append((x.shape, shared))
        return x

    for module in ("dropout", "mlp"):
        monkeypatch.setattr(f"t5x_like.layers.basics.{module}.dropout", record)
    model = make(tiny, dropout_rate=0.1)
    jax.eval_shape(model.logits, padded_batch, jax.random.key(0))
    x, y = (3, 12, 16), (3, 9, 16)
    assert sites == [
        (x, (1,)),  # embedded inputs, then a layer (scanned: traced once), then the last norm
        ((3, 4, 12, 12), (2,)),
        (x, (1,)),
        ((3, 12, 32), (1,)),
        (x, (1,)),
        (x, (1,)),
        (y, (1,)),
        ((3, 4, 9, 9), (2,)),
        (y, (1,)),
        ((3, 4, 9, 12), (2,)),
        (y, (1,)),
        ((3, 9, 32), (1,)),
        (y, (1,)),
        (y, (1,)),
    ]


@pytest.mark.slow
def test_loss_and_metrics_are_the_definition(tiny, padded_batch):
    model = make(tiny, z_loss=0.01)
    weights = model.weights(padded_batch)
    loss, metrics, carry = loss_metrics_carry(model, padded_batch, weights)
    logits = np.asarray(logits_of(model, padded_batch), np.float64)
    log_z = np.log(np.exp(logits).sum(-1))
    targets, w = (padded_batch[f"decoder_{n}"] for n in ("target_tokens", "loss_weights"))
    nll = log_z - np.take_along_axis(logits, np.asarray(targets)[..., None], -1)[..., 0]
    assert carry == ()
    assert weights["tokens"] == w.sum() == metrics["loss"][1] == 21
    np.testing.assert_allclose(metrics["loss"][0], (nll * w).sum(), rtol=1e-5)
    np.testing.assert_allclose(metrics["z_loss"][0], (0.01 * log_z**2 * w).sum(), rtol=1e-5)
    np.testing.assert_allclose(loss, ((nll + 0.01 * log_z**2) * w).sum() / 21, rtol=1e-5)
    np.testing.assert_allclose(metrics["perplexity"], ((nll * w).sum(), 21), rtol=1e-5)
    assert metrics["accuracy"][0] == ((logits.argmax(-1) == targets) * w).sum()
    assert metrics["tokens"] == (30 + 21, 1)


@pytest.mark.slow
def test_unequal_microbatches_add_up_to_the_whole_batch(tiny, padded_batch):
    model = make(tiny)
    weights = model.weights(padded_batch)
    whole = loss_metrics_carry(model, padded_batch, weights)
    first = {name: x[:1] for name, x in padded_batch.items()}
    rest = {name: x[1:] for name, x in padded_batch.items()}
    parts = [loss_metrics_carry(model, batch, weights) for batch in (first, rest)]
    summed = jax.tree.map(lambda *xs: sum(xs), *parts)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), summed, whole)


@pytest.mark.slow
def test_a_batch_without_a_scored_token_has_loss_zero_and_finite_gradients(tiny, padded_batch):
    batch = {**padded_batch, "decoder_loss_weights": jnp.zeros((3, 9))}
    batch["encoder_input_tokens"] = jnp.zeros((3, 12), jnp.int32)
    loss, grads = loss_and_grads(make(tiny), batch)
    assert loss == 0
    assert all(np.all(x == 0) for x in jax.tree.leaves(grads))


@pytest.mark.slow
def test_flops_count_what_a_row_without_padding_computes(tiny):
    config = dataclasses.replace(tiny, **UNTIED)
    batch = {
        "encoder_input_tokens": jnp.ones((2, 10), jnp.int32),
        "decoder_target_tokens": jnp.ones((2, 7), jnp.int32),
    }
    d, f, j, v = 16, 32, 24, config.vocab_size
    per_input = 3 * (4 * d * j + 3 * d * f) + 2 * 2 * d * j  # 3 encoder, 2 decoder layers
    per_target = 2 * (6 * d * j + 3 * d * f) + d * v
    pairs = 3 * 10 * 10 + 2 * (7 * 8 // 2 + 7 * 10)
    forward = 2 * 2 * (10 * per_input + 7 * per_target + 2 * j * pairs)
    model = make(config)
    flops = model.flops(batch)
    assert flops == 3 * forward
    padded = jax.tree.map(lambda x: jnp.pad(x, ((0, 0), (0, 5))), batch)
    assert model.flops(padded) == flops


KERNELS = {
    "tpu": functools.partial(tpu, interpret=True),
    "gpu": functools.partial(gpu, interpret=True),
    "blocks": functools.partial(blocked, block=6),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mesh", "kernels"),
    [
        ({"fsdp": 4, "tensor": 2}, ["plain"]),
        ({"data": 2, "sequence": 2, "tensor": 2}, ["plain", *KERNELS]),
    ],
    ids=["fsdp", "sequence"],
)
def test_every_mesh_and_kernel_gives_the_same_loss_and_gradients(tiny, mesh, kernels):
    config = dataclasses.replace(tiny, vocab_size=64, d_kv=16, dropout_rate=0.1)
    tokens = jax.random.randint(jax.random.key(0), (8, 16), 1, 64)
    names = ("encoder_input_tokens", "decoder_input_tokens", "decoder_target_tokens")
    batch = dict.fromkeys(names, tokens) | {"decoder_loss_weights": jnp.ones((8, 16))}
    state = nnx.state(make(config))
    params = nnx.to_pure_dict(state)

    def step(params, batch, graph):
        return jax.value_and_grad(
            lambda params: loss_of(nnx.merge(graph, params), batch, jax.random.key(1, impl=COUNTER))
        )(params)

    want = jax.jit(step)(params, batch, nnx.graphdef(make(config)))
    layout = make_layout(mesh)
    shardings = map_parameters(layout.sharding, state)
    rows = {k: layout.sharding(("batch", "length"), x.shape) for k, x in batch.items()}
    given = jax.device_put(params, shardings), jax.device_put(batch, rows)
    for name in kernels:
        graph = nnx.graphdef(make(config, kernel=KERNELS.get(name, plain)))
        with layout.active():
            # A separate program: a layout is read when tracing.
            got = jax.jit(functools.partial(step, graph=graph))(*given)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6), got, want)


@pytest.mark.slow
def test_one_batch_overfits(tiny, padded_batch):
    losses, _ = trained(make(tiny), padded_batch, steps=100, rate=1e-2)
    assert losses[-1] < 0.1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_heads": 0}, "num_heads must be at least 1"),
        ({"scan_unroll": -1}, "scan_unroll must be at least 0"),
        ({"dropout_rate": 1.0}, r"dropout_rate must be in \[0, 1\)"),
        ({"label_smoothing": -0.1}, r"label_smoothing must be in \[0, 1\)"),
    ],
)
def test_impossible_configurations_are_refused(changes, message, tiny):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(tiny, **changes)
