"""What a description of a mask leaves to be seen."""

import jax.numpy as jnp
import numpy as np

from t5x_like.layers.attention.masks import Mask, Traits, near_pairs, visible_pairs

SEGMENTS = jnp.array([[1, 1, 2, 0], [1, 2, 2, 2]])
PACKED = Traits(segments=SEGMENTS)


def seen(mask, queries=4, keys=4, row=0):
    return mask.dense(queries, keys)[row, 0].astype(int).tolist()


def test_padding_is_hidden_from_every_query():
    mask = Mask(present=jnp.array([[5, 6, 0], [7, 0, 0]])).dense(4, 3)
    np.testing.assert_array_equal(mask[:, 0, 0], [[1, 1, 0], [1, 0, 0]])


def test_without_conditions_there_is_no_mask():
    assert Mask().dense(4, 4) is None


def test_a_causal_mask_shows_what_is_not_later_and_inside_a_prefix_everything():
    assert seen(Mask(causal=True), 3, 3) == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    prefix = Traits(prefix=jnp.array([[True, True, False]]))
    mask = Mask(causal=True, queries=prefix, keys=prefix)
    assert seen(mask, 3, 3) == [[1, 1, 0], [1, 1, 0], [1, 1, 1]]


def test_segments_see_themselves_alone():
    mask = Mask(queries=Traits(segments=SEGMENTS[:1]), keys=Traits(segments=jnp.array([[2, 1, 0]])))
    assert seen(mask, 4, 3) == [[0, 1, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1]]


def test_a_window_is_left_by_chosen_positions_alone():
    assert seen(Mask(window=(1, 0))) == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]
    chosen = Traits(chosen=jnp.array([[False, True, False, False]]))
    mask = Mask(window=(0, 0), queries=chosen, keys=chosen)
    assert seen(mask) == [[1, 1, 0, 0], [1, 1, 1, 1], [0, 1, 1, 0], [0, 1, 0, 1]]


def test_a_query_sees_a_lower_order_and_itself_where_it_may():
    order = Traits(order=jnp.array([[2, 0, 1]]))
    assert seen(Mask(queries=order, keys=order), 3, 3) == [[0, 1, 1], [0, 0, 0], [0, 1, 0]]
    mask = Mask(queries=order, keys=order, itself=True, present=jnp.array([[1, 1, 0]]))
    assert seen(mask, 3, 3) == [[1, 1, 0], [0, 1, 0], [0, 1, 1]]


def test_positions_say_where_queries_and_keys_are():
    """Of a query that decoding asks with, and of a memory before the row."""
    mask = Mask(causal=True, queries=Traits(positions=jnp.array([1])))
    assert seen(mask, 1, 4) == [[1, 1, 0, 0]]
    mask = Mask(window=(2, 0), keys=Traits(positions=jnp.arange(-2, 2)))
    assert seen(mask, 2, 4) == [[1, 1, 1, 0], [0, 1, 1, 1]]


def test_visible_pairs_are_those_the_masks_leave():
    mask = Mask(present=SEGMENTS, queries=PACKED, keys=PACKED)
    assert visible_pairs(SEGMENTS, SEGMENTS) == mask.dense(4, 4).sum() == 15
    mask = Mask(present=SEGMENTS, queries=PACKED, keys=PACKED, causal=True)
    assert visible_pairs(SEGMENTS, SEGMENTS, causal=True) == mask.dense(4, 4).sum() == 11


def test_near_pairs_are_those_that_a_window_leaves():
    segments = jnp.array([[1] * 5 + [2] * 6 + [0] * 2, [3] * 13])
    packed = Traits(segments=segments)
    mask = Mask(present=segments, queries=packed, keys=packed, window=(3, 2))
    assert near_pairs(segments, (3, 2)) == mask.dense(13, 13).sum()
