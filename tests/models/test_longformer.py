"""Longformer's windows and global tokens, against a RoBERTa of the same weights."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from t5x_like.core.abilities import ALL
from t5x_like.core.counter_random import COUNTER
from t5x_like.interop import mapping
from t5x_like.layers.attention.attention_kernels import plain
from t5x_like.models import bert, longformer

WINDOW, VOCAB = 4, 40
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "d_model": 16,
    "d_ff": 24,
    "num_heads": 2,
    "num_layers": 2,
    "max_positions": 202,
    "init_std": 0.3,
    "norm_epsilon": 1e-5,
    "padding_position": 1,
    "type_vocab_size": 1,
    "sentence_head": False,
    "dropout_rate": 0.0,
    "attention_dropout_rate": 0.0,
}
ROBERTA = bert.Config(**SIZES)
PROJECTIONS = ("query", "key", "value")


def config(**more: Any) -> longformer.Config:
    return longformer.Config(**SIZES | {"window": WINDOW} | more)


@functools.cache
def made(**more: Any) -> longformer.Longformer:
    model = nnx.jit(lambda: longformer.Longformer(config(**more), rngs=nnx.Rngs(0)))()
    # No bias is zero, so that projections differ in them, too.
    flat = mapping.flat(nnx.to_pure_dict(nnx.state(model, nnx.Param)))
    draw = np.random.default_rng(1)
    flat = {name: x + draw.normal(0, 0.1, x.shape).astype(x.dtype) for name, x in flat.items()}
    return of(nnx.graphdef(model), flat)


def of(graph: Any, flat: dict[str, Any]) -> Any:
    return nnx.merge(graph, mapping.nested(flat))


def roberta(model: longformer.Longformer, *, end: str = "") -> bert.Bert:
    """A RoBERTa that has the projections of a Longformer whose names end so."""
    graph = nnx.graphdef(nnx.eval_shape(lambda: bert.Bert(ROBERTA, rngs=nnx.Rngs(0))))
    flat = mapping.flat(nnx.to_pure_dict(nnx.state(model, nnx.Param)))
    if end:
        for name in PROJECTIONS:
            flat |= {
                path.replace(f"{name}{end}", name): x
                for path, x in flat.items()
                if f"{name}{end}/" in path
            }
    return of(graph, {path: x for path, x in flat.items() if "_global" not in path})


def batch(length: int, rows: int = 2, **more: Any) -> dict[str, Any]:
    """Rows of which the second is padded by three tokens."""
    rng = np.random.default_rng(0)
    counts = np.ones((rows, length), np.int32)
    counts[1, -3:] = 0
    tokens = np.where(counts, rng.integers(5, VOCAB, counts.shape), 1).astype(np.int32)
    made = {"encoder_input_tokens": tokens, "encoder_attention_mask": counts, **more}
    return {name: jnp.asarray(x) for name, x in made.items()}


def states(model: Any, given: dict[str, Any]) -> np.ndarray:
    """Those of tokens, without padding."""
    found = jax.jit(lambda model, given: model.encoder.hidden(given).last)(model, given)
    return np.asarray(found)[np.asarray(given["encoder_attention_mask"]) > 0]


def test_it_is_a_roberta_where_a_window_shows_all() -> None:
    """Up to half of Hugging Face's window and one more."""
    model = made()
    for length, same in ((WINDOW + 1, True), (WINDOW + 2, False)):
        given = batch(length)
        apart = np.abs(states(model, given) - states(roberta(model), given)).max()
        assert (apart < 1e-5) == same, apart


def test_it_is_full_attention_where_all_tokens_are_global() -> None:
    """With the projections of global tokens alone."""
    given = batch(20)
    theirs = states(roberta(made(), end="_global"), given)
    given["encoder_global_mask"] = jnp.ones((2, 20), jnp.int32)
    np.testing.assert_allclose(states(made(), given), theirs, atol=1e-5)


def test_tied_projections_are_those_of_all_tokens() -> None:
    given = batch(20)
    given["encoder_global_mask"] = jnp.ones((2, 20), jnp.int32)
    model = made(tied_global=True)
    np.testing.assert_allclose(states(model, given), states(roberta(model), given), atol=1e-5)


def test_a_token_sees_its_window_and_what_is_global() -> None:
    """By the probabilities of every layer; layers may have windows of their own."""
    given = batch(20)
    given["encoder_global_mask"] = jnp.zeros((2, 20), jnp.int32).at[:, 9].set(1)
    model = made(window=(4, 2))
    found = jax.jit(lambda given: model.encoder.hidden(given, want=ALL).attention)(given)
    places = np.arange(20)
    for p_BHLM, side in zip(np.asarray(found), (4, 2), strict=True):
        near = np.abs(places[:, None] - places) <= side
        near[9], near[:, 9] = True, True
        np.testing.assert_array_equal((p_BHLM[0] > 0).all(axis=0), near)
        np.testing.assert_array_equal((p_BHLM[0] > 0).any(axis=0), near)
        np.testing.assert_allclose(p_BHLM.sum(axis=-1), 1, rtol=1e-5)
        assert not p_BHLM[1, :, :17, 17:].any()


def gradients(model: Any, given: dict[str, Any], key: jax.Array | None = None) -> Any:
    def weighed(model: Any) -> jax.Array:
        x_BLD = model.encoder.hidden(given, key).last
        x_BLD = jnp.where(given["encoder_attention_mask"][..., None] > 0, x_BLD, 0)
        return (x_BLD * jnp.cos(jnp.arange(x_BLD.size)).reshape(x_BLD.shape)).sum()

    loss, grads = jax.jit(jax.value_and_grad(weighed))(model)
    return loss, nnx.to_pure_dict(nnx.state(grads, nnx.Param))


def test_long_rows_are_computed_block_by_block_with_dropout() -> None:
    """As if all pairs were formed: values and gradients, the same units dropped."""
    given = batch(200)
    given["encoder_global_mask"] = jnp.zeros((2, 200), jnp.int32).at[:, jnp.array([0, 77])].set(1)
    key = jax.random.key(3, impl=COUNTER)
    rates = {"attention_dropout_rate": 0.2, "max_global": 4}
    got, want = (
        gradients(nnx.merge(nnx.graphdef(made(**rates, **kind)), nnx.state(made())), given, key)
        for kind in ({}, {"kernel": plain})
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=3e-4), got, want)


def test_memory_grows_with_the_length() -> None:
    """There and back, with a global token: nothing has a number for each pair of tokens."""

    def peak(length: int) -> int:
        model = nnx.eval_shape(
            lambda: longformer.Longformer(
                config(num_layers=1, max_positions=length + 2, max_global=8), rngs=nnx.Rngs(0)
            )
        )
        given = {
            name: jax.ShapeDtypeStruct((1, length), jnp.int32)
            for name in (
                *("encoder_input_tokens", "encoder_attention_mask"),
                "encoder_global_mask",
            )
        }

        def loss(model: Any, given: dict[str, Any]) -> jax.Array:
            return model.encoder.hidden(given).last.sum()

        compiled = jax.jit(jax.grad(loss)).lower(model, given).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert peak(4096) < 2.2 * peak(2048) < 4 * 2048**2


def test_without_global_tokens_nothing_is_computed_for_them() -> None:
    def text(given: dict[str, Any]) -> str:
        return str(jax.make_jaxpr(lambda given: made().encoder.hidden(given).last)(given))

    given = batch(20)
    assert "top_k" not in text(given)
    assert "top_k" in text(given | {"encoder_global_mask": given["encoder_attention_mask"]})


def test_more_global_tokens_than_promised_show() -> None:
    given = batch(20)
    mask = jnp.zeros((2, 20), jnp.int32).at[0, :3].set(1).at[1, :2].set(1)
    found = made(max_global=2).encoder.hidden(given | {"encoder_global_mask": mask}).last
    assert np.isnan(found[0]).all()
    assert np.isfinite(found[1]).all()


@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        ("first", [[1, 0, 0, 0, 0, 0, 0, 0, 0]]),
        ("question", [[1, 1, 1, 0, 0, 0, 0, 0, 0]]),
        ("choice", [[0, 0, 0, 0, 0, 1, 1, 1, 0]]),
    ],
)
def test_tasks_have_global_tokens(where: Any, wanted: list[list[int]]) -> None:
    """<s> question </s> </s> text </s> and padding, whose id may be any."""
    tokens = jnp.array([[0, 7, 8, 2, 2, 9, 9, 2, 2]])
    given = {"encoder_input_tokens": tokens, "encoder_attention_mask": (jnp.arange(9) < 8)[None]}
    found = longformer.global_tokens(config(global_tokens=where), given)
    np.testing.assert_array_equal(found, wanted)


def test_packed_texts_are_read_as_alone() -> None:
    tokens = jax.random.randint(jax.random.key(0), (1, 20), 5, VOCAB)
    packed = {
        "encoder_input_tokens": tokens,
        "encoder_attention_mask": jnp.ones((1, 20), jnp.int32),
        "encoder_segment_ids": jnp.asarray([[1] * 7 + [2] * 13]),
        "encoder_positions": jnp.asarray([[*range(7), *range(13)]]),
    }
    alone = {name: packed[name][:, 7:] for name in [*packed][:2]}
    np.testing.assert_allclose(states(made(), packed)[7:], states(made(), alone), atol=1e-5)


def test_settings_that_are_none_say_so() -> None:
    for changes, message in (
        ({"window": 0}, "window must be at least 1"),
        ({"window": (4, 0)}, "window must be a number of at least 1"),
        ({"window": (4, 4, 4)}, "one for each of the 2 layers"),
        ({"global_tokens": "all"}, "given, first, question, choice"),
        ({"relative_buckets": 32}, "relative_buckets must be 0"),
    ):
        with pytest.raises(ValueError, match=message):
            config(**changes)
