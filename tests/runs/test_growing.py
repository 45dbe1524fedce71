"""Larger models from smaller ones, and other vocabularies than the saved one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import stored_berts

from t5x_like.config import gin_config, gin_files
from t5x_like.core.protocols.data import Vocabulary
from t5x_like.runs.init_from import InitFrom
from t5x_like.runs.program import build_program
from t5x_like.runs.run import Run
from t5x_like.runs.settings import gin_run, starting_model
from t5x_like.training.checkpointing.checkpoint_items import CheckpointError
from t5x_like.training.checkpointing.initial_plan import Selection, Wanted, make_plan
from t5x_like.training.optimization.parameter_paths import by_path
from t5x_like.vocabularies import loading

HEAD = 4
"""The width of a head of the stored models."""
LARGER = {"d_model": 24, "d_ff": 49, "num_heads": 6, "num_layers": 6, "max_positions": 16}
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def wordpiece(folder: Path, words: list[str]) -> Vocabulary:
    folder.mkdir(parents=True)
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *words]))
    return loading.load(str(folder))


def loaded(*bindings: str) -> Run:
    with gin_config.temporary_configuration():
        run, _ = gin_run.load([str(gin_files.find_recipe("bert-mini"))], bindings)
    return run


def started(run: Run, vocabulary: Vocabulary) -> tuple[dict[str, np.ndarray], list[str]]:
    """The first parameters of a run, and what is said of them. All that is fresh is 7."""
    program, said = build_program(run), []
    log: Any = SimpleNamespace(message=said.append)
    assert run.init_from
    run.init_from.check(program)
    run.init_from.check_vocabulary(vocabulary, program)
    fresh = stored_berts.sevens(program.abstract_state.params)
    params = run.init_from.apply(fresh, program=program, vocabulary=vocabulary, log=log)
    return {path: np.asarray(x) for path, x in by_path(params).items()}, said


def test_norms_that_the_first_layer_lacks_come_from_the_layers_of_the_rest() -> None:
    """As a ModernBERT's, of 28 layers from 22: each takes those of one layer."""
    norm = Wanted((27, 8), (None,), np.arange(1, 28))
    matrix = Wanted((28, 8, 8), ("embed", "mlp"), np.arange(28))
    saved = {"norm": (21, 8), "matrix": (22, 8, 8)}
    whole = [0, 1, 2, 2, 3, 4, 5, 6, 6, 7, 8, 9, 9, 10, 11, 12, 13, 13, 14, 15, 16, 16, 17, 18, 19]
    whole += [20, 20, 21]
    for selection in (Selection(head_width=4), Selection(layers=whole)):
        plan = make_plan({"norm": norm, "matrix": matrix}, saved, selection)
        assert plan.sources["matrix"].layers == whole
        assert plan.sources["norm"].layers == [layer - 1 for layer in whole[1:]]


def test_a_larger_model_has_the_smaller_one_in_its_middle(tmp_path: Path) -> None:
    words = wordpiece(tmp_path / "words", ["a", "b"])
    saved = by_path(stored_berts.write(tmp_path / "small", vocabulary=words))
    sizes = [f"bert.Config.{name}={value}" for name, value in LARGER.items()]
    grow = [
        f"INIT_FROM={str(tmp_path / 'small')!r}",
        "GROW=True",
        f"bert.Config.vocab_size={stored_berts.VOCAB}",
    ]
    run = loaded(*grow, *sizes)
    params, said = started(run, words)
    assert f"{len(saved)} of {len(saved)} parameters taken" in said[1]
    layers = [0, 1, 1, 2, 3, 3]
    for path, old in saved.items():
        new = params[path]
        if path.startswith("encoder.trunk"):
            old = old[layers]
        pads = []
        for before, after in zip(old.shape, new.shape, strict=True):
            start = (after - before) // 2
            pads.append((start, after - before - start))
        if path.endswith("positions"):  # new rows are fresh
            np.testing.assert_array_equal(new[old.shape[0] :], 7)
            new, pads[0] = new[: old.shape[0]], (0, 0)
        np.testing.assert_array_equal(new, np.pad(old, pads, mode="wrap"), err_msg=path)
    assert params["encoder.trunk.stack.layers.attention.query.kernel"].shape == (6, 24, 24)

    wider = loaded(*grow, "bert.Config.d_model=32", "bert.Config.num_heads=4")
    with pytest.raises(ValueError, match="heads of the same width: 8 in this run, and 4 in"):
        starting_model.check_heads(wider)
    with pytest.raises(ValueError, match=r"InitFrom\.grow is for a model of larger sizes"):
        InitFrom(directory="small", grow=True, model=True)
    with pytest.raises(ValueError, match="GROW has no effect"):
        loaded("GROW=True")
    narrower = loaded(*grow, *sizes, "bert.Config.d_ff=16")
    with pytest.raises(CheckpointError, match="which cannot be made to fit"):
        started(narrower, words)
    shallower = loaded(*grow, *sizes, "bert.Config.num_layers=3")
    with pytest.raises(CheckpointError, match=r"cannot be made to fit|`layers` must name 3"):
        started(shallower, words)


def test_heads_stay_whole(tmp_path: Path) -> None:
    """One head more: the saved ones are first, and the first is repeated."""
    words = wordpiece(tmp_path / "words", ["a", "b"])
    saved = by_path(stored_berts.write(tmp_path / "small", vocabulary=words))
    run = loaded(
        f"INIT_FROM={str(tmp_path / 'small')!r}",
        "GROW=True",
        f"bert.Config.vocab_size={stored_berts.VOCAB}",
        *(f"bert.Config.{name}={x}" for name, x in (LARGER | {"d_model": 20}).items()),
        "bert.Config.num_heads=5",
        "bert.Config.num_layers=4",
    )
    params, _ = started(run, words)
    path = "encoder.trunk.stack.layers.attention.value.bias"
    want = np.concatenate([saved[path], saved[path][:, :HEAD]], axis=1)
    np.testing.assert_array_equal(params[path], want)


def test_rows_are_carried_over_to_another_vocabulary(tmp_path: Path) -> None:
    old = wordpiece(tmp_path / "old", ["the", "xy", "##lo", "##graph", "a", "##b"])
    saved = by_path(stored_berts.write(tmp_path / "bert", vocabulary=old))
    # Not in the old order: specials last. "b" alone and "q" are unknown there.
    tokens = ["xylograph", "##lo", "the", "##graphlo", "q", "ab", *SPECIAL[1:], "[PAD]"]
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "vocab.txt").write_text("\n".join(tokens))
    new = loading.load(str(tmp_path / "new"))
    given = [
        f"INIT_FROM={str(tmp_path / 'bert')!r}",
        f"VOCABULARY={str(tmp_path / 'new')!r}",
    ]
    run = loaded(*given, "EXCHANGE_VOCABULARY=True")
    params, said = started(run, new)
    of = {
        0: [6, 7, 8],  # xylograph
        1: [7],
        2: [5],
        3: [8, 7],  # ##graphlo
        5: [9, 10],  # ab
        6: [1],
        7: [2],
        8: [3],
        9: [4],
        10: [0],
    }
    for path in ("encoder.embedding.tokens.table", "mlm.bias"):
        assert len(params[path]) == 50  # few are to spare
        for i, ids in of.items():
            np.testing.assert_allclose(params[path][i], saved[path][ids].mean(0), rtol=1e-6)
        fresh = [i for i in range(50) if i not in of]
        np.testing.assert_array_equal(params[path][fresh], 7)
    path = "mlm.dense.kernel"
    np.testing.assert_array_equal(params[path], saved[path])
    assert (
        "of 11 ids 7 have the row of one that was there, 3 the mean of several, and 1" in said[-1]
    )
    with pytest.raises(ValueError, match="EXCHANGE_VOCABULARY = True"):
        started(loaded(*given), new)
    with pytest.raises(ValueError, match="EXCHANGE_VOCABULARY has no effect"):
        loaded(given[0], "EXCHANGE_VOCABULARY=True")
