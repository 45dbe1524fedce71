import jax.numpy as jnp
import numpy as np

from t5x_like.layers.attention import masks

SEGMENTS = jnp.array([[1, 1, 2, 0], [1, 2, 2, 2]])


def test_padding_is_hidden_from_every_query():
    mask = masks.not_padding(jnp.array([[5, 6, 0], [7, 0, 0]]))
    np.testing.assert_array_equal(mask[:, 0, 0], [[1, 1, 0], [1, 0, 0]])


def test_causal_mask_shows_what_is_not_later():
    np.testing.assert_array_equal(masks.causal(3)[0, 0], [[1, 0, 0], [1, 1, 0], [1, 1, 1]])


def test_segments_see_themselves_alone():
    mask = masks.same_segment(SEGMENTS[:1], jnp.array([[2, 1, 0]]))
    np.testing.assert_array_equal(mask[0, 0], [[0, 1, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1]])


def test_visible_pairs_are_those_the_masks_leave():
    mask = masks.same_segment(SEGMENTS, SEGMENTS) & (SEGMENTS > 0)[:, None, None, :]
    assert masks.visible_pairs(SEGMENTS, SEGMENTS) == mask.sum() == 15
    causal = mask & masks.causal(4)
    assert masks.visible_pairs(SEGMENTS, SEGMENTS, causal=True) == causal.sum() == 11
