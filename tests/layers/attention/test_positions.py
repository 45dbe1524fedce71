import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st

from t5x_like.layers.attention.positions import RelativeBias, relative_bucket

# The first distance of each bucket; buckets before these hold one distance each.
ENCODER_STARTS = {8: 8, 9: 12, 10: 16, 11: 23, 12: 32, 13: 46, 14: 64, 15: 91}
DECODER_STARTS = dict(
    enumerate((16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113), start=16)
)


def buckets_from(starts: dict[int, int], distances: np.ndarray) -> np.ndarray:
    """Buckets of distances to earlier keys, from the table of starts."""
    first_far = min(starts)
    edges = list(starts.values())
    far = first_far + np.searchsorted(edges, distances, side="right") - 1
    return np.where(distances < first_far, distances, far)


def test_encoder_buckets_are_the_published_ones():
    n = np.arange(300)
    want = buckets_from(ENCODER_STARTS, n)
    np.testing.assert_array_equal(relative_bucket(-n, bidirectional=True), want)
    np.testing.assert_array_equal(relative_bucket(n[1:], bidirectional=True), want[1:] + 16)


def test_decoder_buckets_are_the_published_ones_and_later_keys_share_the_first():
    n = np.arange(300)
    want = buckets_from(DECODER_STARTS, n)
    np.testing.assert_array_equal(relative_bucket(-n, bidirectional=False), want)
    np.testing.assert_array_equal(relative_bucket(n, bidirectional=False), 0)


@pytest.fixture
def bias():
    return RelativeBias(3, bidirectional=True, rngs=nnx.Rngs(0))


@pytest.mark.slow
@settings(deadline=None, max_examples=5)
@given(
    queries=st.integers(1, 12),
    keys=st.integers(1, 12),
    bidirectional=st.booleans(),
    scale=st.sampled_from([1.0, 4.0]),
)
def test_bias_is_the_table_at_the_bucket_of_each_pair(queries, keys, bidirectional, scale):
    bias = RelativeBias(2, bidirectional=bidirectional, scale=scale, rngs=nnx.Rngs(1))
    distance = np.arange(keys)[None, :] - np.arange(queries)[:, None]
    want = scale * bias.table[...][:, relative_bucket(distance, bidirectional=bidirectional)]
    np.testing.assert_array_equal(bias(queries, keys)[0], want)


@pytest.mark.slow
def test_gradient_of_the_table_counts_the_pairs_in_each_bucket(bias):
    distance = np.arange(40)[None, :] - np.arange(30)[:, None]
    grads = jax.grad(lambda bias: bias(30, 40).sum())(bias)
    counts = np.bincount(np.ravel(relative_bucket(distance, bidirectional=True)), minlength=32)
    np.testing.assert_array_equal(grads.table[...], np.broadcast_to(counts, (3, 32)))


def test_the_row_of_one_query_is_that_row_of_the_whole(bias):
    for position in (0, 5, 19):
        row = bias.row(jnp.asarray(position), 20)
        np.testing.assert_array_equal(row[0, :, 0], bias(20, 20)[0, :, position])


def test_table_is_uniform_over_heads_and_buckets_together():
    table = np.asarray(RelativeBias(512, bidirectional=True, rngs=nnx.Rngs(0)).table[...])
    limit = np.sqrt(3 / ((512 + 32) / 2))
    assert table.shape == (512, 32)
    assert 0.99 * limit < np.abs(table).max() <= limit
    np.testing.assert_allclose(table.std(), limit / np.sqrt(3), rtol=0.02)
