import jax.numpy as jnp
import numpy as np
import pytest

from t5x_like.layers.attention import relative_attention as relative


@pytest.mark.parametrize(("length", "memory"), [(1, 0), (5, 0), (1, 3), (6, 4)])
def test_rows_and_positions_find_the_distance_between_query_and_key(length, memory):
    num_keys, rng = memory + length, np.random.default_rng(0)
    x = rng.normal(size=(2, 3, length, num_keys + length))
    x = jnp.asarray(x, jnp.float32)
    # Row c is for a key num_keys - c before the query, which is at memory + i among the keys.
    i, j = np.mgrid[:length, :num_keys]
    want = np.take_along_axis(
        np.asarray(x), (num_keys - (memory + i - j))[None, None] * np.ones((2, 3, 1, 1), int), -1
    )
    np.testing.assert_array_equal(relative.of_row(x, num_keys), want)
    at = rng.integers(0, length, (2, 4))
    rows = np.asarray(x)[np.arange(2)[:, None], :, at].swapaxes(1, 2)
    want = want[np.arange(2)[:, None], :, at].swapaxes(1, 2)
    got = relative.of_positions(jnp.asarray(rows), jnp.asarray(at), num_keys)
    np.testing.assert_array_equal(got, want)


def test_vectors_are_sines_and_cosines_of_the_distance():
    positions = relative.relative_positions(3, 5, width=4)
    assert positions.vectors.shape == (1, 8, 4)
    for row, distance in enumerate(range(5, -3, -1)):
        angles = distance * np.array([1.0, 0.01])
        want = np.concatenate([np.sin(angles), np.cos(angles)])
        np.testing.assert_allclose(positions.vectors[0, row], want, atol=1e-6)


def test_in_backward_rows_the_distance_changes_sign():
    backward = jnp.array([False, True])
    forward, reverse = relative.relative_positions(
        3, 5, width=4, backward_B=backward, clamp=2
    ).vectors
    np.testing.assert_allclose(reverse, forward * jnp.array([-1.0, -1.0, 1.0, 1.0]), atol=1e-6)
    # Distances from 5 down to -2; those beyond 2 count as 2.
    np.testing.assert_array_equal(forward[:4], jnp.broadcast_to(forward[3], (4, 4)))
    assert jnp.all(jnp.any(forward[3:-1] != forward[4:], axis=1))
