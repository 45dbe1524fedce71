import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from t5x_like.core.devices.memory import SUMMED_AT_ONCE
from t5x_like.core.partitioning import make_layout
from t5x_like.layers.basics.dropout import dropout
from t5x_like.layers.basics.modules import Linear
from t5x_like.layers.stacks.stack import Stack

NUM_LAYERS = 5
NORMAL = nnx.initializers.normal(0.5)


def make_layer(rngs):
    return Linear((4, 4), ("embed", "mlp"), init=NORMAL, dtype="float32", rngs=rngs)


def body(layer, x, key):
    x = dropout(jnp.tanh(layer(x)), key, rate=0.3)
    return x, x.sum()


def run(*, key=None, **options):
    """Output, sums after each layer, gradient of the stacked kernels."""
    stack = Stack(make_layer, NUM_LAYERS, rngs=nnx.Rngs(0), **options)
    keys = None if key is None else jax.random.split(key, NUM_LAYERS)

    @jax.jit
    def loss(stack):
        x, sums = stack(body, jnp.ones((2, 4)), keys)
        return jnp.square(x).sum(), (x, sums)

    grads, (x, sums) = jax.grad(loss, has_aux=True)(stack)
    return x, sums, grads.layers.kernel[...], jax.tree.structure(nnx.to_pure_dict(nnx.state(stack)))


@pytest.mark.slow
@pytest.mark.parametrize("key", [None, jax.random.key(1)], ids=["deterministic", "dropout"])
@pytest.mark.parametrize("unroll", [2, 0, NUM_LAYERS, 99])
def test_unrolling_changes_neither_values_nor_gradients_nor_parameters(unroll, key):
    *want, tree = run(key=key)
    *got, same_tree = run(key=key, unroll=unroll)
    assert tree == same_tree
    for a, b in zip(got, want, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("remat", [None, "nothing"])
def test_gradients_of_what_all_layers_read_are_summed_as_many_as_fit(remat, monkeypatch):
    """In an unrolled stack; XLA would add up all at the end, and keep them until then."""
    bias = jnp.linspace(-1.0, 1.0, 4)
    layout = make_layout({"data": 2}, devices=jax.devices()[:2])

    def gradient(unroll):
        stack = Stack(make_layer, NUM_LAYERS, rngs=nnx.Rngs(0), unroll=unroll, remat=remat)

        def loss(bias):
            x, _ = stack(lambda layer, x, _: (jnp.tanh(layer(x) + bias), None), jnp.ones((2, 4)))
            return jnp.square(x).sum()

        return jax.grad(loss)

    def sums(fitting):
        memory = fitting * bias.nbytes / SUMMED_AT_ONCE
        monkeypatch.setattr("t5x_like.layers.stacks.stack.usable_bytes", lambda mesh: memory)
        with layout.active():
            np.testing.assert_allclose(gradient(0)(bias), gradient(1)(bias), rtol=1e-5)
            return str(jax.make_jaxpr(gradient(0))(bias)).count("optimization_barrier")

    assert (sums(0.1), sums(2), sums(4), sums(5)) == (5, 3, 2, 1)


def test_layers_start_different():
    kernels = Stack(make_layer, NUM_LAYERS, rngs=nnx.Rngs(0)).layers.kernel[...]
    assert len(np.unique(np.asarray(kernels).reshape(NUM_LAYERS, -1), axis=0)) == NUM_LAYERS


def count_products(jaxpr) -> int:
    """Matrix products in a program and in all programs inside it."""
    count = 0
    for equation in jaxpr.eqns:
        count += equation.primitive.name == "dot_general"
        for inner in jax.tree.leaves(equation.params, is_leaf=is_jaxpr):
            if is_jaxpr(inner):
                count += count_products(getattr(inner, "jaxpr", inner))
    return count


def is_jaxpr(x) -> bool:
    return hasattr(x, "eqns")


@pytest.mark.parametrize("unroll", [1, 0])
def test_remat_policy_decides_which_products_are_computed_again(unroll):
    def products(policy):
        stack = Stack(make_layer, NUM_LAYERS, rngs=nnx.Rngs(0), unroll=unroll, remat=policy)
        grad = jax.grad(lambda stack, x: stack(body, x)[0].sum())
        return count_products(jax.make_jaxpr(grad)(stack, jnp.ones((2, 4))).jaxpr)

    plain = products(None)
    assert products(jax.checkpoint_policies.dots_saveable) == plain
    assert products(jax.checkpoint_policies.nothing_saveable) > plain


def test_a_stack_needs_layers():
    with pytest.raises(ValueError, match="num_layers >= 1"):
        Stack(make_layer, 0, rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match="unroll >= 0"):
        Stack(make_layer, 1, rngs=nnx.Rngs(0), unroll=-1)
