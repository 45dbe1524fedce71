"""First parameters from a checkpoint: the plan, from shapes alone, and the values it takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_model as tiny
from flax import nnx

from t5x_like.training.checkpointing import initial_parameters
from t5x_like.training.checkpointing.checkpoint_items import CheckpointError
from t5x_like.training.checkpointing.checkpoints import Checkpoints
from t5x_like.training.checkpointing.initial_plan import Plan, Selection, Wanted, make_plan
from t5x_like.training.optimization.parameter_paths import by_path
from t5x_like.training.step import TrainState

WANTED = {
    "tokens": Wanted((50, 16), ("vocab", "embed")),
    "bias": Wanted((50,), ("vocab",)),
    "positions": Wanted((12, 16), ("positions", "embed")),
    "stack.wi": Wanted((2, 16, 32), ("embed", "mlp"), np.arange(2)),
}
SAVED = {path: leaf.shape for path, leaf in WANTED.items()}


def plan(saved: dict[str, tuple[int, ...]], **selection: Any) -> Plan:
    return make_plan(WANTED, saved, Selection(**selection))


def test_all_that_fits_is_taken_and_the_rest_is_named() -> None:
    saved = SAVED | {"pooler": (16, 16), "bias": (40,), "positions": (8, 16)}
    del saved["stack.wi"]
    found = plan(saved)
    assert {path: source.path for path, source in found.sources.items()} == {
        name: name for name in ("tokens", "bias", "positions")
    }
    assert found.report() == [
        "3 of 4 parameters taken",
        "with new rows: bias (40,) -> (50,), positions (8, 16) -> (12, 16)",
        "fresh: stack.wi",
        "left over: pooler",
    ]


def test_renames_apply_in_order_and_skipped_ones_stay_fresh() -> None:
    saved = {f"body.{path}": shape for path, shape in SAVED.items()}
    found = plan(saved, rename={r"^body\.": "x.", r"^x\.(stack|tokens)": r"\1"}, skip=["stack"])
    assert {path: source.path for path, source in found.sources.items()} == {
        "tokens": "body.tokens"
    }
    assert found.left_over == ["body.bias", "body.positions", "body.stack.wi"]


def test_a_parameter_may_go_to_several_places() -> None:
    wanted = dict.fromkeys(("a.bias", "b.bias", "c.bias"), WANTED["bias"])
    rename = {r"^bias": ["a.bias", "b.bias"], "^old": "c"}
    found = make_plan(wanted, {"bias": (50,), "old.bias": (50,)}, Selection(rename=rename))
    sources = {path: source.path for path, source in found.sources.items()}
    assert sources == {"a.bias": "bias", "b.bias": "bias", "c.bias": "old.bias"}
    assert not found.left_over
    ones, old = jnp.ones(50), jnp.zeros(50)
    fresh = {name: {"bias": jnp.full(50, 2.0)} for name in "abc"}
    taken = by_path(initial_parameters.take(found, fresh, {"bias": ones, "old": {"bias": old}}))
    assert [float(taken[name].sum()) for name in wanted] == [50, 50, 0]
    # Steps give the memory of each away.
    assert taken["a.bias"].unsafe_buffer_pointer() != taken["b.bias"].unsafe_buffer_pointer()


@pytest.mark.parametrize(
    ("changes", "selection", "message"),
    [
        ({"tokens": (50, 24)}, {}, r"tokens: \(50, 24\) saved, \(50, 16\) in this run, .* `skip`"),
        ({"tokens": (60, 16)}, {}, r"\(60, 16\) saved, .* cannot have fewer rows"),
        ({"positions": (24, 16)}, {}, r"\(24, 16\) saved, .* cannot have fewer rows"),
        ({"bias": ()}, {}, r"bias: \(\) saved, \(50,\) in this run"),
        ({"stack.wi": (6, 16, 32)}, {}, r"\(6, 16, 32\) saved, .* of which `layers` must name 2"),
        ({"stack.wi": (6, 16, 32)}, {"layers": [0, 1, 2]}, "`layers` must name 2"),
        ({"stack.wi": (6, 16, 32)}, {"layers": [0, 6]}, r"has no `layers` \[0, 6\]"),
        ({"stack.wi": (6, 16, 32)}, {"layers": [0, -1]}, r"has no `layers` \[0, -1\]"),
        ({"stack.wi": (2, 32, 16)}, {}, r"stack.wi: \(2, 32, 16\) saved"),
        ({}, {"rename": {"token$": ""}}, "'token\\$', which changes no path of the checkpoint"),
        ({}, {"rename": {"tokens": "bias"}}, "makes bias of both"),
        ({}, {"skip": ["head"]}, "'head', which is in no path of this run: tokens, bias, "),
        ({}, {"skip": [""]}, "no parameter of the checkpoint fits"),
        ({}, {"rename": {"^": "body."}}, r"fits: it has body.tokens, .* and 1 more; this run has"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    changes: dict[str, tuple[int, ...]], selection: dict[str, Any], message: str
) -> None:
    with pytest.raises(CheckpointError, match=message):
        plan(SAVED | changes, **selection)


def test_averages_are_taken_onto_another_mesh_under_other_names(tmp_path: Path) -> None:
    """Some layers of a deeper stack are taken too, in the wanted order."""
    program = tiny.build(where=tiny.layout(data=4, tensor=2))
    fresh = jax.tree.map(
        lambda leaf: jax.device_put(np.full(leaf.shape, 7, leaf.dtype), leaf.sharding),
        program.abstract_state.params,
    )
    rng = np.random.default_rng(0)
    deeper = {
        name: rng.normal(size=(6, *fresh[name].shape[1:])).astype(np.float32)
        for name in ("wi", "wo")
    }
    ema = {"old": deeper, "gone": np.ones(3, jnp.bfloat16)}
    saved = TrainState(np.int32(3), jax.tree.map(np.zeros_like, ema), (), (), ema)
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(3, jax.tree.map(jnp.asarray, saved), metadata={})
    checkpoints.close()

    abstract = checkpoints.abstract_params()
    shapes = {path: leaf.shape for path, leaf in by_path(abstract).items()}
    selection = Selection(rename={r"^old\.": ""}, layers=(5, 0, 2))
    model = nnx.merge(program.graphdef, program.abstract_state.params)
    found = make_plan(initial_parameters.wanted_parameters(model), shapes, selection)
    laid_out = initial_parameters.laid_out(found, abstract, program.abstract_state.params)
    params = initial_parameters.take(found, fresh, checkpoints.restore_params(laid_out).state)
    picked = {name: x[[5, 0, 2]] for name, x in deeper.items()}
    tiny.assert_same(params, {"scale": fresh["scale"], **picked})
    for leaf, want in zip(
        jax.tree.leaves(params), jax.tree.leaves(program.abstract_state.params), strict=True
    ):
        assert leaf.sharding == want.sharding
    assert found.left_over == ["gone"]


def test_some_layers_of_a_stack_stay_fresh() -> None:
    found = plan(SAVED, skip=["^stack@1"])
    assert found.report() == ["4 of 4 parameters taken", "fresh in some layers: stack.wi@1"]
    fresh = {path: jnp.full(leaf.shape, 7.0) for path, leaf in WANTED.items()}
    saved = {path: jnp.ones(shape) for path, shape in SAVED.items()}
    taken = initial_parameters.take(found, fresh, saved)
    np.testing.assert_array_equal(taken["stack.wi"][:, 0, 0], [1, 7])
    assert (taken["tokens"] == 1).all()
    whole = plan(SAVED, skip=["^stack@0-1"])
    assert whole.report()[1:] == ["fresh: stack.wi", "left over: stack.wi"]
    for pattern, problem in (("stack@1-2", "last layer is 1"), ("tokens@0", "none of them is in")):
        with pytest.raises(CheckpointError, match=problem):
            plan(SAVED, skip=[pattern])
