"""Checkpoints without what never trains, which they leave to the model that a run starts from."""

from __future__ import annotations

import dataclasses
import functools
import json
import shutil
from pathlib import Path
from typing import Any

import jax
import lora
import numpy as np
import pytest
from small_bert import OPTIONS, made

import t5x_like
from t5x_like.runs import pretraining, saved_model
from t5x_like.runs.init_from import InitFrom
from t5x_like.runs.run import Phase, Run
from t5x_like.training.checkpointing.checkpoint_items import CheckpointError
from t5x_like.training.optimization.parameter_paths import by_path


def trained(run: Run, *, until: int) -> Any:
    """The parameters after some steps, at which the run is left."""
    for taken in pretraining.steps(run):
        params = jax.device_get(taken.state.params)
        if taken.step == until:
            break
    return params


def stored(run: Run, step: int) -> set[str]:
    """The paths of the parameters that are in a checkpoint itself, as Orbax lists them."""
    folder = Path(run.model_dir) / "checkpoints" / str(step) / "params"
    listed = json.loads((folder / "_METADATA").read_text())["tree_metadata"].values()
    return {".".join(part["key"] for part in leaf["key_metadata"]) for leaf in listed}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory, text: Path) -> Path:
    root = tmp_path_factory.mktemp("base")
    trained(made(root, text, "base"), until=1)
    return root


@pytest.fixture
def run(base: Path, text: Path, tmp_path: Path) -> Run:
    shutil.copytree(base / "base", tmp_path / "base")
    return made(
        base,
        text,
        "run",
        model_dir=str(tmp_path / "run"),
        init_from=InitFrom(directory=str(tmp_path / "base")),
        options=dataclasses.replace(OPTIONS, train_steps=4, checkpoint_frozen=False),
        phases=(Phase(steps=2, frozen=("^encoder",)), Phase(frozen=("^encoder.embedding",))),
    )


@pytest.mark.slow
def test_only_what_trains_is_saved_and_all_is_opened(run: Run, text: Path, tmp_path: Path) -> None:
    straight = trained(run, until=4)
    whole = dataclasses.replace(
        run,
        model_dir=str(tmp_path / "whole"),
        options=dataclasses.replace(run.options, checkpoint_frozen=True),
    )
    jax.tree.map(np.testing.assert_array_equal, trained(whole, until=4), straight)
    every = by_path(straight).keys()
    assert stored(whole, 4) == every
    assert stored(run, 4) == {path for path in every if "embedding" not in path}
    # Resumed, within the first phase, bit for bit, also if the base has trained on meanwhile.
    again = dataclasses.replace(run, model_dir=str(tmp_path / "again"))
    trained(again, until=1)
    longer = dataclasses.replace(OPTIONS, train_steps=2)
    trained(made(tmp_path, text, "base", options=longer, data=run.data), until=2)
    for until in (3, 4):
        params = trained(again, until=until)
    jax.tree.map(np.testing.assert_array_equal, params, straight)
    # Predicted from, exported from, and started from, with the same base in turn.
    opened = by_path(t5x_like.load(run.model_dir).run.params)
    lazily = by_path(saved_model.read(run.model_dir).params)
    for path, want in by_path(straight).items():
        np.testing.assert_array_equal(opened[path], want, err_msg=path)
        np.testing.assert_array_equal(np.asarray(lazily[path]), want, err_msg=path)
    opened_again = by_path(t5x_like.load(again.model_dir).run.params)
    jax.tree.map(np.testing.assert_array_equal, opened_again, opened)
    second = dataclasses.replace(
        run, model_dir=str(tmp_path / "second"), init_from=InitFrom(directory=run.model_dir)
    )
    first = by_path(trained(second, until=1))
    np.testing.assert_array_equal(
        first["encoder.embedding.positions"], by_path(straight)["encoder.embedding.positions"]
    )


@pytest.mark.slow
def test_another_base_or_none_is_refused(run: Run, tmp_path: Path) -> None:
    trained(run, until=1)
    place = tmp_path / "base" / "checkpoints"
    place.rename(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match=r"do not train and are in .*/1, which is missing"):
        t5x_like.load(run.model_dir)
    shutil.copytree(tmp_path / "elsewhere", place)
    list_of_files = next((place / "1").glob("checksums.*"))
    list_of_files.write_text(list_of_files.read_text().replace('"params/', '"params/_'))
    with pytest.raises(CheckpointError, match="has other files now: its digest is"):
        t5x_like.load(run.model_dir)


def test_there_must_be_a_base(run: Run) -> None:
    with pytest.raises(ValueError, match="CHECKPOINT_FROZEN is False, but there is no INIT_FROM"):
        trained(dataclasses.replace(run, init_from=None), until=1)


@pytest.mark.slow
def test_adapters_alone_train_and_are_saved(run: Run, tmp_path: Path) -> None:
    """LoRA as a stranger writes it; the base keeps its parameters under their paths."""
    run = dataclasses.replace(run, adapt=functools.partial(lora.adapt, rank=2), phases=())
    run = dataclasses.replace(
        run, options=dataclasses.replace(run.options, frozen=(r"^(?!.*\.[ab]$)",))
    )
    straight = by_path(trained(run, until=4))
    own = {path for path in straight if path.endswith((".a", ".b"))}
    assert len(own) == 4
    assert stored(run, 4) == own
    again = dataclasses.replace(run, model_dir=str(tmp_path / "again"))
    for until in (2, 4):
        resumed = by_path(trained(again, until=until))
    base = by_path(t5x_like.load(str(tmp_path / "base")).run.params)
    model = t5x_like.load(run.model_dir, modules=[str(Path(lora.__file__))])
    for path, value in straight.items():
        np.testing.assert_array_equal(resumed[path], value)
        np.testing.assert_array_equal(by_path(model.run.params)[path], value)
        if path in own:
            assert (value != 0).any(), path
        else:
            np.testing.assert_array_equal(base[path], value)
    assert model.fill("the [MASK] returns")
    assert (
        "fresh: encoder.trunk.stack.layers.attention.query.a"
        in (tmp_path / "run" / "log.txt").read_text()
    )
