import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st

from t5x_like.layers.basics.modules import LayerNorm, Linear
from t5x_like.layers.losses import accounting
from t5x_like.layers.losses.accounting import Term

numbers = st.integers(0, 40)


@settings(deadline=None, max_examples=50)
@given(
    parts=st.lists(st.tuples(numbers, numbers, numbers, numbers), min_size=1, max_size=4),
    coefficient=st.sampled_from([1.0, 50.0]),
)
def test_terms_with_their_own_denominators_add_up_over_microbatches(parts, coefficient):
    def combined(parts, weights):
        masked, tokens, paired, rows = (jnp.float32(sum(x)) for x in zip(*parts, strict=True))
        terms = {"mlm": Term(masked, tokens), "sentence": Term(paired, rows, coefficient)}
        return accounting.combine(terms, weights)

    weights = {
        "mlm": jnp.float32(sum(p[1] for p in parts)),
        "sentence": jnp.float32(sum(p[3] for p in parts)),
    }
    whole = combined(parts, weights)
    summed = jax.tree.map(lambda *xs: sum(xs), *(combined([p], weights) for p in parts))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), summed, whole)
    # The whole matches the definition.
    masked, tokens, paired, rows = (sum(x) for x in zip(*parts, strict=True))
    want = masked / (tokens or 1) + coefficient * paired / (rows or 1)
    np.testing.assert_allclose(whole[0], want, rtol=1e-6)


def test_metrics_of_several_terms_hold_each_and_the_whole():
    terms = {"a": Term(jnp.float32(6), jnp.float32(2)), "b": Term(jnp.float32(5), jnp.float32(1))}
    weights = {"a": jnp.float32(4), "b": jnp.float32(10)}  # over other microbatches too
    scalar, metrics = accounting.combine(terms, weights)
    assert scalar == 6 / 4 + 5 / 10
    sums, own = metrics.pop("loss")
    assert (sums.tolist(), own.tolist()) == ([6, 5], [2, 1])
    assert metrics == {"a_loss": (6, 2), "b_loss": (5, 1)}


def test_a_single_term_weighs_by_its_own_weight():
    term = Term(jnp.float32(6), jnp.float32(2), 50.0)
    scalar, metrics = accounting.combine({"mlm": term}, {"mlm": jnp.float32(4)})
    assert scalar == 50 * 6 / 4
    assert metrics == {"loss": (300, 2), "mlm_loss": (6, 2)}


def test_nothing_weighted_gives_zero():
    nothing = Term(jnp.float32(0), jnp.float32(0))
    scalar, _ = accounting.combine({"mlm": nothing}, {"mlm": jnp.float32(0)})
    assert scalar == 0


def test_counts_and_totals():
    assert accounting.count(jnp.array([[2, 0], [1, 0]])) == 2
    assert accounting.count(jnp.array([0.5, -1.0])) == 1
    got = accounting.totals(tokens=jnp.float32(3), flops=jnp.float32(9), share=jnp.float32(0.5))
    assert got == {"tokens": (3, 0.5), "flops": (9, 0.5)}


def test_kernels_alone_are_multiplied_with():
    rngs = nnx.Rngs(0)
    ones = nnx.initializers.ones
    linear = Linear((3, 4), ("embed", "mlp"), init=ones, dtype="float32", rngs=rngs, bias=True)
    norm = LayerNorm(3, dtype="float32", rngs=rngs)
    assert accounting.matrix_size(linear, norm) == 12
    assert accounting.matrix_size(linear, linear) == 24
    assert accounting.matrix_size() == 0


@pytest.mark.parametrize("causal", [False, True])
def test_products_of_a_stack_are_counted_for_tokens_and_visible_pairs(causal):
    linear = Linear(
        (3, 4), ("embed", "mlp"), init=nnx.initializers.ones, dtype="float32", rngs=nnx.Rngs(0)
    )
    counts = jnp.array([[1, 1, 1, 0], [1, 1, 0, 0]])
    pairs = 6 + 3 if causal else 9 + 4
    products = accounting.encoder_products(linear, counts, num_layers=5, width=7, causal=causal)
    assert products == 12 * 5 + 2 * 7 * 5 * pairs
    assert accounting.step_flops(products) == 6 * products
