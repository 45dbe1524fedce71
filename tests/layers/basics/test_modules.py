import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from t5x_like.core.partitioning import make_layout
from t5x_like.layers.basics.modules import (
    Embedding,
    LayerNorm,
    Linear,
    Logits,
    RMSNorm,
    next_key,
    param,
)

ONES = nnx.initializers.ones


def test_parameter_keeps_its_axis_names_when_layers_are_stacked():
    def make(key):
        return Linear((3, 4), ("embed", "mlp"), init=ONES, dtype="float32", rngs=nnx.Rngs(key))

    stacked = jax.vmap(make)(jax.random.split(jax.random.key(0), 5))
    assert stacked.kernel.shape == (5, 3, 4)
    assert stacked.kernel.get_metadata("axes") == ("embed", "mlp")


def test_parameter_needs_a_name_for_each_dimension():
    with pytest.raises(ValueError, match="as many axis names"):
        param(ONES, (2, 3), axes=("embed",), rngs=nnx.Rngs(0))


@pytest.mark.parametrize("streams", [{"default": 3}, {"params": 3, "dropout": 4}])
def test_keys_are_those_of_flax(streams):
    ours, theirs = nnx.Rngs(**streams), nnx.Rngs(**streams)
    for _ in range(3):
        assert next_key(ours) == theirs.params()
    assert ours.params() == theirs.params()


def test_building_without_values_asks_no_traced_array_for_its_sharding(monkeypatch):
    """Each answer would be an error about the whole trace."""

    def sharding(tracer):
        raise AssertionError(tracer)

    monkeypatch.setattr(jax.core.Tracer, "sharding", property(sharding))
    layer = {"init": ONES, "dtype": "float32"}
    abstract = nnx.eval_shape(lambda: Linear((3, 4), ("embed", "mlp"), **layer, rngs=nnx.Rngs(0)))
    assert abstract.kernel.shape == (3, 4)


def test_norm_of_zeros_is_zeros_and_of_anything_else_has_unit_root_mean_square():
    norm = RMSNorm(8, dtype="float32", rngs=nnx.Rngs(0))
    np.testing.assert_array_equal(norm(jnp.zeros((2, 8))), 0)
    # Not centred: a constant vector stays constant.
    x = jnp.stack([jnp.full(8, 3.0), jnp.arange(8.0)])
    np.testing.assert_allclose(jnp.square(norm(x)).mean(-1), 1, rtol=1e-5)
    np.testing.assert_allclose(norm(x)[0], 1, rtol=1e-6)


def test_norm_takes_its_mean_in_float32():
    x = jnp.full((4096,), 1.0, jnp.bfloat16)  # a bfloat16 sum of squares would stop at 256
    norm = RMSNorm(4096, dtype="bfloat16", rngs=nnx.Rngs(0))
    assert norm(x).dtype == jnp.bfloat16
    np.testing.assert_array_equal(norm(x).astype(jnp.float32), 1)


def test_products_are_in_the_computation_dtype_and_gradients_in_float32():
    layer = Linear((4, 2), ("embed", "mlp"), init=ONES, dtype="bfloat16", rngs=nnx.Rngs(0))
    assert layer(jnp.ones((3, 4))).dtype == jnp.bfloat16
    grads = jax.grad(lambda layer: layer(jnp.ones((3, 4))).sum().astype(jnp.float32))(layer)
    assert grads.kernel[...].dtype == jnp.float32


def test_embedding_gradients_of_repeated_tokens_add_up_in_float32():
    table = Embedding(3, 1, init=ONES, rngs=nnx.Rngs(0))
    tokens = jnp.ones((1, 1000), jnp.int32)  # in bfloat16 a sum of ones stops at 256
    grads = jax.grad(lambda t: t(tokens, dtype=jnp.bfloat16).astype(jnp.float32).sum())(table)
    np.testing.assert_array_equal(grads.table[...][:, 0], [0, 1000, 0])


@pytest.mark.parametrize("mesh", [{"fsdp": 4}, {"data": 2, "fsdp": 2}, {"fsdp": 2, "tensor": 2}])
def test_a_table_that_is_split_by_columns_is_never_whole(mesh):
    table = Embedding(96, 32, init=nnx.initializers.normal(1.0), rngs=nnx.Rngs(0))
    tokens = jax.random.randint(jax.random.key(0), (8, 6), 0, 96)
    weights = jax.random.normal(jax.random.key(1), (8, 6, 32))

    graphdef, state = nnx.split(table)

    def loss(values_VD):
        table = nnx.merge(graphdef, jax.tree.map(lambda _: values_VD, state))
        x_BLD = table(tokens, dtype=jnp.float32)
        return (x_BLD * weights).sum(), x_BLD

    values_VD = table.table[...]
    want_grads, want = jax.grad(loss, has_aux=True)(values_VD)
    layout = make_layout(mesh, devices=jax.devices()[:4])
    with layout.active():
        split = layout.sharding(("vocab", "embed"), values_VD.shape)
        run = (
            jax.jit(jax.grad(loss, has_aux=True), in_shardings=split, out_shardings=(split, None))
            .lower(values_VD)
            .compile()
        )
        grads, got = run(jax.device_put(values_VD, split))
    np.testing.assert_allclose(got, want)
    np.testing.assert_allclose(grads, want_grads, rtol=1e-5, atol=1e-6)
    tensor = mesh.get("tensor", 1)
    assert f"f32[{96 // tensor},{32 // mesh['fsdp']}]" in run.as_text()
    assert f"f32[{96 // tensor},32]" not in run.as_text()


def layer_norm(x, scale, bias, epsilon):
    x = np.asarray(x, np.float64)
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon) * scale + bias


@pytest.mark.parametrize("epsilon", [1e-12, 1e-5, 0.1])
def test_layer_norm_is_the_definition_in_float64(epsilon):
    norm = LayerNorm(24, dtype="float32", rngs=nnx.Rngs(0), epsilon=epsilon)
    norm.scale[...] = jax.random.normal(jax.random.key(1), (24,))
    norm.bias[...] = jax.random.normal(jax.random.key(2), (24,))
    # Far from zero: the mean must be subtracted before squaring.
    x = 50 + jax.random.normal(jax.random.key(0), (3, 5, 24))
    want = layer_norm(x, norm.scale[...], norm.bias[...], epsilon)
    np.testing.assert_allclose(norm(x), want, atol=3e-5)


def test_layer_norm_of_bfloat16_has_float32_statistics():
    # Each is a bfloat16 number; their sum and the sum of their squares are not near one.
    x = (256 + 2.0 * jnp.arange(128)).astype(jnp.bfloat16)
    norm = LayerNorm(128, dtype="bfloat16", rngs=nnx.Rngs(0))
    got = norm(x)
    assert got.dtype == jnp.bfloat16
    want = layer_norm(x.astype(jnp.float32), 1.0, 0.0, 1e-12)
    np.testing.assert_allclose(got.astype(jnp.float32), want, rtol=2**-8)


def test_layer_norm_of_a_constant_is_its_bias_with_finite_gradients():
    norm = LayerNorm(8, dtype="float32", rngs=nnx.Rngs(0))
    norm.bias[...] = jnp.arange(8.0)
    np.testing.assert_array_equal(norm(jnp.full((8,), 3.0)), jnp.arange(8.0))
    assert np.isfinite(jax.grad(lambda x: jnp.square(norm(x)).sum())(jnp.full((8,), 3.0))).all()


@pytest.mark.parametrize(
    ("axes", "of_bias"),
    [
        (("embed", "mlp"), ("mlp",)),
        (("embed", "joined_kv"), ("joined_kv",)),
        (("mlp", "embed"), (None,)),  # what every device needs in full
        (("embed", None), (None,)),
    ],
)
def test_a_bias_is_split_as_the_output_is(axes, of_bias):
    layer = Linear((3, 4), axes, init=ONES, dtype="float32", rngs=nnx.Rngs(0), bias=True)
    assert layer.bias.get_metadata("axes") == of_bias
    layer.bias[...] = jnp.arange(4.0)
    np.testing.assert_array_equal(layer(jnp.ones((2, 3))), 3 + jnp.arange(4.0) + jnp.zeros((2, 4)))


def test_without_a_bias_there_is_no_such_parameter():
    layer = Linear((3, 4), ("embed", "mlp"), init=ONES, dtype="float32", rngs=nnx.Rngs(0))
    assert set(nnx.to_pure_dict(nnx.state(layer))) == {"kernel"}


def test_tied_and_untied_logits_are_float32_products():
    table = Embedding(5, 3, init=nnx.initializers.normal(1.0), rngs=nnx.Rngs(0))
    out = Logits(3, 5, init=ONES, rngs=nnx.Rngs(0))
    x = jax.random.normal(jax.random.key(0), (2, 4, 3), jnp.bfloat16)
    exact = np.asarray(x, np.float64)
    tied, untied = (scores.logits() for scores in (table.token_scores(x), out.token_scores(x)))
    assert tied.dtype == untied.dtype == jnp.float32
    np.testing.assert_allclose(tied, exact @ np.asarray(table.table[...]).T, atol=1e-5)
    np.testing.assert_allclose(untied, exact @ np.ones((3, 5)), atol=1e-5)
