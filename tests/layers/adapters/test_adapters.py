"""Small new modules in every family: what they change at first, what learns, and their merging."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx

from t5x_like.layers.adapters import bottleneck, ia3, lora, merging, places, prefix, prompt
from t5x_like.layers.basics import dropout
from t5x_like.layers.basics.modules import Linear
from t5x_like.models import bert, t5
from t5x_like.training.optimization.parameter_paths import by_path

SIZES = {"vocab_size": 40, "d_model": 16, "d_ff": 24, "num_heads": 4}
BERT = functools.partial(
    bert.Bert,
    bert.Config(
        num_layers=2,
        max_positions=12,
        dropout_rate=0.0,
        attention_dropout_rate=0.0,
        init_std=0.3,
        sentence_head=False,
        **SIZES,
    ),
)
T5 = functools.partial(
    t5.T5, t5.Config(d_kv=4, num_encoder_layers=2, num_decoder_layers=2, dropout_rate=0.0, **SIZES)
)
WAYS: Mapping[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "lora": (functools.partial(lora.adapt, rank=3), lora.TRAINED),
    "rslora": (functools.partial(lora.adapt, rank=4, rank_stabilised=True), lora.TRAINED),
    "dora": (functools.partial(lora.adapt, rank=3, magnitudes=True), lora.TRAINED),
    "by_layer": (
        functools.partial(
            lora.adapt, rank={"": 2, "query$": [1, 4]}, alpha={"": 4, "value": [2, 6]}
        ),
        lora.TRAINED,
    ),
    "ia3": (ia3.adapt, ia3.TRAINED),
    "adapters": (functools.partial(bottleneck.adapt, width=5), bottleneck.TRAINED),
}
L, D, F = 2, 16, 24


def batch() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    tokens = rng.integers(4, 40, (3, 10)).astype(np.int32)
    return {
        "encoder_input_tokens": tokens,
        "encoder_attention_mask": np.ones_like(tokens),
        "decoder_input_tokens": tokens[:, :6],
        "decoder_target_tokens": tokens[:, 1:7],
        "decoder_loss_weights": np.ones((3, 6), np.float32),
        "masked_positions": np.array([[1, 3], [2, 4], [5, 6]], np.int32),
        "masked_targets": tokens[:, :2],
        "masked_loss_weights": np.ones((3, 2), np.float32),
    }


def loss(model: Any) -> jax.Array:
    read = batch()
    value: jax.Array = model.loss(read, None, (), model.weights(read))[0]
    return value


def made(make: functools.partial[Any], way: str | None = None) -> Any:
    model = make(rngs=nnx.Rngs(0))
    return model if way is None else WAYS[way][0](model, rngs=nnx.Rngs(1))


def stirred(model: Any, names: tuple[str, ...]) -> Any:
    """The model with other values of its new parameters."""
    rng = np.random.default_rng(2)
    for path, leaf in nnx.iter_graph(model):
        if isinstance(leaf, nnx.Param) and path[-1] in names:
            leaf[...] = leaf[...] + rng.normal(0, 0.2, leaf.shape).astype(np.float32)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("make", [BERT, T5], ids=["bert", "t5"])
@pytest.mark.parametrize("way", WAYS)
def test_at_first_it_is_the_base_and_every_part_learns(
    way: str, make: functools.partial[Any]
) -> None:
    names = WAYS[way][1]
    model = made(make, way)
    atol = 1e-4 if way == "adapters" else 1e-6
    np.testing.assert_allclose(loss(model), loss(made(make)), atol=atol)
    gradients = by_path(
        nnx.to_pure_dict(nnx.state(nnx.jit(nnx.grad(loss))(stirred(model, names)), nnx.Param))
    )
    new = {path for path in gradients if path.rpartition(".")[2] in names}
    still = [path for path in new if not np.any(np.asarray(gradients[path]))]
    assert all(path.endswith("lora_scale") for path in still)
    base = by_path(nnx.to_pure_dict(nnx.state(made(make), nnx.Param)))
    assert gradients.keys() - new == base.keys()  # all others keep their paths


@pytest.mark.parametrize("make", [BERT, T5], ids=["bert", "t5"])
@pytest.mark.parametrize("way", ["lora", "rslora", "dora", "by_layer", "ia3"])
def test_merged_matrices_give_the_same(way: str, make: functools.partial[Any]) -> None:
    model = stirred(made(make, way), WAYS[way][1])
    params = merging.merged(model, nnx.to_pure_dict(nnx.state(model, nnx.Param)))
    plain = nnx.merge(nnx.graphdef(made(make)), params)
    changed = loss(model)
    assert abs(changed - loss(made(make))) > 1e-3
    np.testing.assert_allclose(loss(plain), changed, rtol=2e-5)


def test_they_have_as_many_parameters_as_the_papers_count() -> None:
    def count(way: str) -> int:
        state = by_path(nnx.to_pure_dict(nnx.state(made(BERT, way), nnx.Param)))
        return sum(x.size for path, x in state.items() if path.rpartition(".")[2] in WAYS[way][1])

    assert count("lora") == L * 2 * 3 * (D + D)
    assert count("dora") == L * 2 * (3 * (D + D) + D)
    assert count("ia3") == L * (2 * D + F)
    assert count("adapters") == L * 2 * (2 * D * 5 + D + 5)

    def added(
        adapt: Callable[..., Any], make: functools.partial[Any], names: tuple[str, ...]
    ) -> int:
        model = nnx.eval_shape(lambda: adapt(make(rngs=nnx.Rngs(0)), rngs=nnx.Rngs(1)))
        state = by_path(nnx.to_pure_dict(nnx.state(model, nnx.Param)))
        return sum(math.prod(x.shape) for p, x in state.items() if p.rpartition(".")[2] in names)

    of_bert = functools.partial(prefix.adapt, virtual_tokens=7)
    assert added(of_bert, BERT, prefix.TRAINED) == 2 * L * 7 * D  # Li and Liang, section 4.2
    assert added(of_bert, T5, prefix.TRAINED) == 2 * (2 + 2) * 7 * D  # both stacks
    of_t5 = functools.partial(prompt.adapt, virtual_tokens=100)
    small = functools.partial(t5.T5, t5.Config(d_model=768, d_kv=64, num_heads=12))
    assert added(of_t5, small, prompt.TRAINED) == 76_800  # Lester et al., T5 base
    base = functools.partial(bert.Encoder, bert.Config())
    # Layers have 12 (4 768 + 3072 + 768 + 2 768), the norm of the embeddings 768 (BitFit).
    assert added(lambda model, rngs: model, base, ("bias",)) == 101_376 + 768
    roberta = functools.partial(lora.adapt, rank=8)
    assert added(roberta, base, lora.TRAINED) == 294_912  # LoRA, table 2: 0.3 million


def test_lora_and_dora_are_as_their_papers_say() -> None:
    rng = np.random.default_rng(0)
    old = Linear((6, 5), (None, None), init=nnx.initializers.normal(1.0), dtype="float32",
                 rngs=nnx.Rngs(0), bias=True)  # fmt: skip
    x = rng.normal(size=(4, 6)).astype(np.float32)
    kernel, bias = np.asarray(old.kernel[...]), rng.normal(size=5).astype(np.float32)
    old.bias[...] = bias  # type: ignore[index]
    new = lora.LowRank(
        old,
        ranks=np.array(2),
        scales=np.array(8 / math.sqrt(2)),
        magnitudes=True,
        rngs=nnx.Rngs(1),
    )
    a = np.asarray(new.lora_a[...])
    assert np.abs(a).max() <= 1 / math.sqrt(6)
    np.testing.assert_allclose(new(x), x @ kernel + bias, rtol=1e-5, atol=1e-5)
    b = rng.normal(size=(2, 5)).astype(np.float32)
    extra = rng.normal(size=5).astype(np.float32)
    new.lora_b[...], new.lora_magnitude[...] = b, extra  # type: ignore[index]
    changed = kernel + 8 / math.sqrt(2) * (a @ b)
    norms = np.linalg.norm(changed, axis=0)
    want = x @ (changed / norms * (np.linalg.norm(kernel, axis=0) + extra)) + bias
    np.testing.assert_allclose(new(x), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("magnitudes", [False, True])
def test_dropout_is_of_what_the_first_matrix_reads(magnitudes: bool) -> None:
    rng, size, rate = np.random.default_rng(0), 40, 0.25
    init = nnx.initializers.normal(1.0)
    old = Linear((size, size), (None, None), init=init, dtype="float32", rngs=nnx.Rngs(0))
    of_each: dict[str, Any] = {"ranks": np.array(size), "scales": np.array(2.0)}
    new = lora.LowRank(old, **of_each, magnitudes=magnitudes, input_dropout=rate, rngs=nnx.Rngs(1))
    x, kernel = rng.uniform(1, 2, (100, size)).astype(np.float32), np.asarray(old.kernel[...])
    # Both matrices together change nothing, so that what A has read is seen.
    new.lora_a[...] = new.lora_b[...] = np.eye(size, dtype=np.float32)  # type: ignore[index]
    in_evaluation = new(x)
    dropout.give_keys(new, jax.random.key(0))
    ratio = np.float32(1)
    if magnitudes:
        ratio = np.linalg.norm(kernel, axis=0) / np.linalg.norm(kernel + 2 * np.eye(size), axis=0)
    np.testing.assert_allclose(in_evaluation, (x @ kernel + 2 * x) * ratio, rtol=1e-3, atol=1e-3)
    # The published code of DoRA: x W, and all else of what is kept.
    changes = kernel * (ratio - 1) + 2 * np.eye(size) * ratio
    read = np.linalg.solve(changes.T, (new(x) - x @ kernel).T).T
    kept = read > 0.5
    np.testing.assert_allclose(read, np.where(kept, x / (1 - rate), 0), atol=2e-3)
    assert abs(1 - kept.mean() - rate) < 4 * math.sqrt(rate * (1 - rate) / kept.size)
    assert np.ptp(kept.mean(0)) > 0
    with pytest.raises(ValueError, match="lora_dropout is a rate from 0 to below 1, not 1"):
        lora.adapt(made(BERT), rngs=nnx.Rngs(0), lora_dropout=1)


def test_what_cannot_be_adapted_is_refused() -> None:
    with pytest.raises(ValueError, match="no matrix of a layer is named 'q': the names are query"):
        lora.adapt(made(BERT), rngs=nnx.Rngs(0), places=("q",))
    with pytest.raises(ValueError, match="a Bert has no wi_0 in its layers"):
        lora.adapt(made(BERT), rngs=nnx.Rngs(0), places=("wi_0",))
    with pytest.raises(ValueError, match="the rank of LoRA is at least 1 in one matrix, not 0 in"):
        lora.adapt(made(BERT), rngs=nnx.Rngs(0), rank=0)
    with pytest.raises(ValueError, match="query has 2 layers, and rank has 3 numbers"):
        lora.adapt(made(BERT), rngs=nnx.Rngs(0), rank=[1, 2, 3])
    with pytest.raises(ValueError, match="no rank is given for encoder"):
        lora.adapt(made(BERT), rngs=nnx.Rngs(0), rank={"query": 2})
    model = made(BERT, "adapters")
    with pytest.raises(ValueError, match="cannot be merged into it"):
        merging.merged(model, nnx.to_pure_dict(nnx.state(model, nnx.Param)))
    assert set(places.NAMES) >= {"query", "wo"}


def test_a_layer_of_a_lower_rank_keeps_it() -> None:
    model = made(BERT, "by_layer")
    query = model.encoder.trunk.stack.layers.attention.query
    assert (query.ranks, query.lora_scale[...].tolist()) == ((1, 4), [4, 1])
    gradients = nnx.jit(nnx.grad(loss))(stirred(model, ("lora_b",)))
    a = gradients.encoder.trunk.stack.layers.attention.query.lora_a[...]
    assert np.asarray(np.abs(a).max(1) > 0).tolist()[1] == [True] * 4
    zero_b = nnx.jit(nnx.grad(loss))(made(BERT, "by_layer"))
    b = zero_b.encoder.trunk.stack.layers.attention.query.lora_b[...]
    assert np.asarray(np.abs(b).max(-1) > 0).tolist() == [[True] + [False] * 3, [True] * 4]
