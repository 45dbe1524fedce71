"""Layerwise learning rates and decayed parameters, in every published family."""

from __future__ import annotations

import functools
import re
from typing import Any

import gin
import jax
import numpy as np
import optax
import pytest
import tiny_model as tiny
from flax import nnx

from t5x_like.config import gin_config, gin_files
from t5x_like.core.partitioning import map_parameters
from t5x_like.models import bart, t5
from t5x_like.training.optimization import layerwise, optimizers, weight_decay
from t5x_like.training.optimization.parameter_paths import by_path

# Parameters of all families that no layer reads.
HEADS = re.compile(
    r"(discriminator\.head|generator\.mlm|(generator\.)?positions|mlm|sentence|boundary|output|bias"
    r"|norm|encoder_norm|decoder_norm|encoder\.norm)(\.|$)"
)
FAMILIES = {one.family.stem: one.name for one in gin_files.published_models().values()}
"""{family: a size of it}."""
del FAMILIES["awd_lstm"]  # whose layers, each of another size, are not stacked: test_awd_lstm.py
del FAMILIES["skip_gram"]  # which has no layers
del FAMILIES["canine"]  # whose layers are of three stacks: test_canine.py


def of_model(name: str) -> tuple[Any, Any, dict[str, tuple[Any, int, tuple]]]:
    """A published model: shapes, depths, {path: (shape, number of stacked dimensions, axes)}."""
    gin_config.load([name])
    make = gin_config.macro("MODEL")
    found = of_constructor(make)
    gin.clear_config()
    return found


def of_constructor(make: Any) -> tuple[Any, Any, dict[str, tuple[Any, int, tuple]]]:
    """The same of a function from random numbers to a model."""
    _, state = nnx.split(nnx.eval_shape(lambda: make(rngs=nnx.Rngs(0))))
    axes = map_parameters(lambda axes, shape: [axes], state)
    shapes = nnx.to_pure_dict(state)
    own = jax.tree.leaves(axes, is_leaf=lambda leaf: isinstance(leaf, tuple))
    return (
        shapes,
        layerwise.depths(state),
        {
            name: (leaf.shape, len(leaf.shape) - len(a), a)
            for (name, leaf), a in zip(by_path(shapes).items(), own, strict=True)
        },
    )


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family(family: str) -> None:
    """Decay leaves out the names of the published code; every parameter has a depth."""
    shapes, depths, parameters = of_model(FAMILIES[family])
    for path, decayed in by_path(weight_decay.decay_mask(shapes)).items():
        assert decayed == (len(parameters[path][2]) > 1), path
    stacked = jax.tree.unflatten(
        jax.tree.structure(shapes), [depth for _, depth, _ in parameters.values()]
    )
    scales = by_path(layerwise.layer_scales(shapes, stacked, depths, decay=0.5))
    sizes = {name.split(".")[0]: s[0] for name, (s, depth, _) in parameters.items() if depth}
    for name, (shape, depth, axes) in parameters.items():
        scale = scales[name]
        if depth:
            np.testing.assert_array_equal(scale.ravel(), 0.5 ** np.arange(shape[0], 0, -1.0))
            assert scale.shape == (shape[0], *[1] * len(axes)), name
        else:
            own = sizes.get(re.split("[._]", name)[0], max(sizes.values()))
            assert scale == (1 if HEADS.match(name) else 0.5 ** (own + 1)), name


def test_each_stack_counts_from_its_own_top() -> None:
    shape = functools.partial(jax.ShapeDtypeStruct, dtype=np.float32)
    shapes = {
        "discriminator": {
            "encoder": {
                "embedding": {"table": shape((9, 2))},
                "layers": {"kernel": shape((3, 2, 2)), "bias": shape((3, 2))},
            },
            "head": {"kernel": shape((2, 1))},
        },
        "generator": {"encoder": {"project": shape((2, 2)), "layers": shape((2, 1, 5))}},
    }
    stacked = jax.tree.map(lambda _: 0, shapes)
    stacked["discriminator"]["encoder"]["layers"] = {"kernel": 1, "bias": 1}
    stacked["generator"]["encoder"]["layers"] = 2  # groups of layers
    depths = jax.tree.map(lambda _: "below", shapes)
    depths["discriminator"]["head"]["kernel"] = "above"
    got = by_path(layerwise.layer_scales(shapes, stacked, depths, decay=0.5))
    want = {
        "discriminator.encoder.embedding.table": 0.5**4,
        "discriminator.encoder.layers.kernel": np.reshape([0.5**3, 0.5**2, 0.5], (3, 1, 1)),
        "discriminator.encoder.layers.bias": np.reshape([0.5**3, 0.5**2, 0.5], (3, 1)),
        "discriminator.head.kernel": 1,
        "generator.encoder.project": 0.5**3,
        "generator.encoder.layers": np.reshape([0.5**2, 0.5], (2, 1, 1)),
    }
    for name, scale in want.items():
        np.testing.assert_array_equal(got[name], np.float32(scale), strict=True, err_msg=name)


SIDES = {"vocab_size": 8, "d_model": 4, "num_encoder_layers": 3, "num_decoder_layers": 2}


@pytest.mark.parametrize(
    ("make", "of_side"),
    [
        (functools.partial(t5.T5, t5.Config(**SIDES)), "relative.table"),
        (functools.partial(bart.Bart, bart.Config(num_heads=2, **SIDES)), "entry.positions"),
    ],
    ids=["t5", "bart"],
)
def test_each_side_has_its_own_depth(make: Any, of_side: str) -> None:
    shapes, depths, parameters = of_constructor(make)
    stacked = jax.tree.unflatten(
        jax.tree.structure(shapes), [depth for _, depth, _ in parameters.values()]
    )
    scales = by_path(layerwise.layer_scales(shapes, stacked, depths, decay=0.5))
    assert scales[f"encoder_{of_side}"] == 0.5**4
    assert scales[f"decoder_{of_side}"] == 0.5**3
    assert scales["embedding.table"] == 0.5**4  # both sides read it


@pytest.mark.slow
def test_a_step_is_scaled_decay_and_all() -> None:
    where = tiny.layout(data=2, tensor=2)
    optimizer = optimizers.adam_uncorrected(0.1, weight_decay=0.5)
    moved = []
    for decay in (None, 0.5):
        program = tiny.build(optimizer, where, dropout=0.0, layer_decay=decay)
        state = program.init(jax.random.key(0))
        before = jax.device_get(state.params)
        state, _ = program.step(state, tiny.batch(where, 0), jax.random.key(1))
        moved.append(jax.tree.map(np.subtract, jax.device_get(state.params), before))
    whole, scaled = moved
    by_layer = 0.5 ** np.arange(tiny.LAYERS, 0, -1.0).reshape(-1, 1, 1)
    for name in ("wi", "wo"):
        np.testing.assert_allclose(scaled[name], whole[name] * by_layer, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(scaled["scale"], whole["scale"], rtol=1e-5)


@pytest.mark.parametrize("decay", [0.0, 1.5, -1])
def test_a_decay_out_of_range_is_refused(decay: float) -> None:
    with pytest.raises(ValueError, match="above 0 and at most 1"):
        tiny.build(optax.sgd(0.1), layer_decay=decay)


def test_a_model_without_layers_is_refused() -> None:
    shapes = {"w": jax.ShapeDtypeStruct((2,), np.float32)}
    with pytest.raises(ValueError, match="a model with layers"):
        layerwise.layer_scales(shapes, {"w": 0}, {"w": "below"}, decay=0.5)


def test_a_parameter_that_does_not_say_where_it_is_has_no_rate() -> None:
    """Such a parameter of a new family, of any name, would train wrongly without an error."""
    shapes = {n: jax.ShapeDtypeStruct((2, 2), np.float32) for n in ("layers", "embedding")}
    stacked = {"layers": 1, "embedding": 0}
    with pytest.raises(ValueError, match="parameter embedding does not say"):
        layerwise.layer_scales(shapes, stacked, {"layers": "", "embedding": ""}, decay=0.5)
    marks = {"layers": "", "embedding": "below decoder"}
    with pytest.raises(ValueError, match="one of the stack 'decoder', but the stacks are layers"):
        layerwise.layer_scales(shapes, stacked, marks, decay=0.5)
