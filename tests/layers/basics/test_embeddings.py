import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st

from t5x_like.layers.basics.dropout import Dropouts
from t5x_like.layers.basics.embeddings import (
    InputEmbedding,
    check_length,
    positions_in_row,
    positions_of_tokens,
)
from t5x_like.layers.basics.modules import LayerNorm

VOCAB, WIDTH, POSITIONS = 11, 6, 9
NORMAL = nnx.initializers.normal(1.0)
TOKENS = jnp.array([[1, 2, 3, 4], [5, 5, 2, 0]])


def make(*, types=2, norm=True, rate=0.0):
    rngs = nnx.Rngs(0)
    return InputEmbedding(
        VOCAB,
        WIDTH,
        max_positions=POSITIONS,
        type_vocab_size=types,
        init=NORMAL,
        rngs=rngs,
        norm=LayerNorm(WIDTH, dtype="float32", rngs=rngs) if norm else None,
        dropouts=Dropouts(hidden=rate),
    )


@settings(deadline=None)
@given(
    st.lists(st.lists(st.booleans(), min_size=5, max_size=5), min_size=1, max_size=3),
    st.integers(0, 3),
)
def test_tokens_are_numbered_from_the_position_after_padding(rows, pad_id):
    got = positions_of_tokens(jnp.asarray(rows, jnp.int32), pad_id=pad_id)
    assert got.dtype == jnp.int32
    for row, positions in zip(rows, np.asarray(got), strict=True):
        counted = positions[np.asarray(row, bool)]
        np.testing.assert_array_equal(counted, pad_id + 1 + np.arange(len(counted)))
        assert (positions[~np.asarray(row, bool)] == pad_id).all()


def test_places_in_a_row_count_from_zero_whatever_is_there():
    np.testing.assert_array_equal(positions_in_row(TOKENS), [[0, 1, 2, 3]])


@pytest.mark.parametrize("types", [None, jnp.array([[0, 0, 1, 1], [1, 0, 1, 0]])])
def test_vectors_of_token_position_and_type_add_up(types):
    embedding = make(norm=False)
    positions = jnp.array([[0, 1, 2, 3], [8, 7, 7, 0]])
    got = embedding(TOKENS, positions, types, dtype="float32")
    want = np.asarray(embedding.tokens.table[...])[TOKENS]
    want = want + np.asarray(embedding.positions[...])[positions]
    want = want + np.asarray(embedding.types[...])[0 if types is None else np.asarray(types)]
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


def test_a_position_beyond_the_table_is_not_a_number_and_teaches_nothing():
    embedding = make(norm=False)
    positions = jnp.array([[0, 1, POSITIONS - 1, POSITIONS]])
    read = jax.jit(lambda e: e(TOKENS[:1], positions, dtype="float32"))
    np.testing.assert_array_equal(np.isfinite(read(embedding)).all(-1), [[True, True, True, False]])
    grads = jax.grad(lambda e: read(e)[:, :3].sum())(embedding)
    assert (
        grads.positions[...][:, 0] == jnp.zeros(POSITIONS).at[jnp.array([0, 1, 8])].set(1)
    ).all()


def test_rows_that_positions_do_not_suffice_for_are_refused():
    check_length(9, max_positions=9)
    check_length(10**6, max_positions=None)
    with pytest.raises(ValueError, match="rows of 10 tokens do not fit max_positions: at most 9"):
        check_length(10, max_positions=9)


def test_the_norm_and_then_dropout_come_last():
    embedding = make(rate=0.5)
    positions = positions_in_row(TOKENS)
    x = np.asarray(embedding(TOKENS, positions, dtype="float32"))
    np.testing.assert_allclose(x.mean(-1), 0, atol=1e-6)
    np.testing.assert_allclose(x.var(-1), 1, rtol=1e-5)
    y = np.asarray(embedding(TOKENS, positions, dtype="float32", key=jax.random.key(0)))
    kept = y != 0
    assert 0 < kept.sum() < kept.size
    np.testing.assert_allclose(y[kept], 2 * x[kept], rtol=1e-6)


def test_gradients_are_counts_of_what_was_read():
    embedding = make(norm=False)
    types = jnp.array([[0, 0, 1, 1], [1, 0, 1, 1]])

    @jax.grad
    def grad(embedding):
        return embedding(TOKENS, positions_in_row(TOKENS), types, dtype="float32").sum()

    grads = grad(embedding)
    np.testing.assert_array_equal(grads.tokens.table[...][:, 0], [1, 1, 2, 1, 1, 2, 0, 0, 0, 0, 0])
    np.testing.assert_array_equal(grads.positions[...][:, 0], [2, 2, 2, 2, 0, 0, 0, 0, 0])
    np.testing.assert_array_equal(grads.types[...][:, 0], [3, 5])


def test_computation_is_in_the_dtype_and_parameters_in_float32():
    embedding = make(norm=False)
    x = embedding(TOKENS, positions_in_row(TOKENS), dtype="bfloat16")
    assert x.dtype == jnp.bfloat16
    assert {leaf.dtype for leaf in jax.tree.leaves(embedding)} == {jnp.dtype("float32")}


def test_without_types_there_is_no_table_of_them():
    assert make(types=0).types is None
