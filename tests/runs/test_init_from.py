"""A run that starts from a stored model: a student's layers, more ids, longer rows, refusals."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
import stored_berts

from t5x_like.config import gin_config, gin_files
from t5x_like.core.partitioning import make_layout
from t5x_like.interop.hugging_face import longformer as family
from t5x_like.interop.hugging_face import model_directory
from t5x_like.interop.tokenizers import to_files
from t5x_like.models import longformer
from t5x_like.runs import saved_model
from t5x_like.runs.init_from import InitFrom
from t5x_like.runs.program import build_program
from t5x_like.runs.settings import gin_run, starting_model
from t5x_like.training import step
from t5x_like.training.checkpointing.checkpoint_items import CheckpointError
from t5x_like.training.optimization import optimizers
from t5x_like.training.optimization.parameter_paths import by_path
from t5x_like.vocabularies import loading
from t5x_like.vocabularies.characters import CharacterVocabulary


def test_a_longer_student_of_more_ids_starts_from_its_teacher(tmp_path: Path) -> None:
    """Like DistilBERT, without token types and sentence head; its head's layer is initialised."""
    teacher = stored_berts.write(tmp_path)
    program = stored_berts.student(
        make_layout({"data": 4, "tensor": 2}), vocab_size=56, max_positions=16
    )
    fresh = stored_berts.sevens(program.abstract_state.params)
    lines: list[str] = []
    init_from = InitFrom(directory=str(tmp_path), layers=(3, 1), skip=(r"^mlm\.(dense|norm)",))
    init_from.check(program)
    log: Any = SimpleNamespace(message=lines.append)
    params = init_from.apply(fresh, program=program, log=log)

    same = np.testing.assert_array_equal
    ours, theirs = params["encoder"]["embedding"], teacher["encoder"]["embedding"]
    for mine, old in (
        (ours["tokens"]["table"], theirs["tokens"]["table"]),
        (ours["positions"], theirs["positions"]),
        (params["mlm"]["bias"], teacher["mlm"]["bias"]),
    ):
        same(mine[: len(old)], old)
        same(mine[len(old) :], 7)
    same(params["mlm"]["dense"]["kernel"], 7)
    jax.tree.map(
        lambda mine, old: same(mine, old[[3, 1]]),
        params["encoder"]["trunk"],
        teacher["encoder"]["trunk"],
    )
    jax.tree.map(
        lambda leaf, want: None if leaf.sharding == want.sharding else pytest.fail(str(want)),
        params,
        program.abstract_state.params,
    )
    assert lines[0] == f"Starting from step 0 of {tmp_path}."
    assert "(50, 16) -> (56, 16)" in lines[2]
    assert "fresh: mlm.dense.bias, mlm.dense.kernel, mlm.norm.bias, mlm.norm.scale" in lines[3]
    assert "left over: encoder.embedding.types, mlm.dense.bias" in lines[4]


def test_a_longformer_starts_from_a_roberta(tmp_path: Path) -> None:
    """Positions are repeated, and projections copied for global tokens (Longformer, section 5)."""
    roberta = {"padding_position": 1, "type_vocab_size": 1, "sentence_head": False}
    old = by_path(stored_berts.write(tmp_path, num_layers=2, max_positions=14, **roberta))
    config = longformer.Config(
        **stored_berts.SIZES | roberta | {"num_layers": 2, "max_positions": 2 + 30}
    )
    program = step.build(
        functools.partial(longformer.Longformer, config),
        optimizers.adamw(1e-3),
        make_layout({"data": 8}),
        step.StepOptions(batch_size=8),
    )
    init_from = InitFrom(directory=str(tmp_path), rename=family.COPIES, repeat_positions=(2, 12))
    fresh = stored_berts.sevens(program.abstract_state.params)
    log: Any = SimpleNamespace(message=lambda line: None)
    new = by_path(init_from.apply(fresh, program=program, log=log))
    positions = "encoder.embedding.positions"
    saved = old.pop(positions)
    want = np.concatenate([saved, saved[2:], saved[2:8]])
    np.testing.assert_array_equal(new.pop(positions), want)
    assert len(new) == len(old) + 6
    for path, x in new.items():
        np.testing.assert_array_equal(x, old[path.replace("_global", "")], err_msg=path)
    new = by_path(
        dataclasses.replace(init_from, repeat_positions=(2, 12, 0)).apply(
            fresh, program=program, log=log
        )
    )
    np.testing.assert_array_equal(new[positions], np.concatenate([saved[2:]] * 3)[:32])
    with pytest.raises(CheckpointError, match=r"13 rows from 2 on, but the saved table .* has 14"):
        dataclasses.replace(init_from, repeat_positions=(2, 13)).check(program)
    with pytest.raises(ValueError, match="a number of at most the first"):
        dataclasses.replace(init_from, repeat_positions=(2, 12, 3))


@pytest.mark.parametrize(
    ("settings", "sizes", "message"),
    [
        ({}, {}, r"of which `layers` must name 2"),
        ({"layers": (0, 1)}, {"d_ff": 64}, r"\(4, 16, 32\) saved, \(2, 16, 64\) in this run"),
        ({"layers": (0, 1)}, {"vocab_size": 48}, "cannot have fewer rows"),
        ({"step": 7}, {}, "No step 7"),
        ({"directory": "nowhere"}, {}, "holds no run"),
        (
            {"directory": "runs/bert-mini"},
            {},
            "train it first: `t5x_like train --recipe bert-mini`",
        ),
        ({"directory": None}, {}, "names no directory"),
    ],
)
def test_errors_come_from_shapes_alone(
    settings: dict[str, Any], sizes: dict[str, int], message: str, stored_bert: Path
) -> None:
    program = stored_berts.student(make_layout({"data": 8}), **sizes)
    with pytest.raises((ValueError, CheckpointError), match=message):
        InitFrom(**{"directory": str(stored_bert), **settings}).check(program)


@pytest.fixture(scope="module")
def stored_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("bert")
    stored_berts.write(directory, vocabulary=CharacterVocabulary("abcdef", extra_ids=0))
    return directory


def test_the_vocabulary_beside_it_is_found(stored_bert: Path, tmp_path: Path) -> None:
    found = InitFrom(directory=str(stored_bert)).vocabulary()
    assert found == CharacterVocabulary("abcdef", extra_ids=0)
    assert InitFrom(directory=str(tmp_path)).vocabulary() is None


def test_ids_must_mean_what_they_did(tmp_path: Path) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdef"]

    def vocabulary(*tokens: str) -> Any:
        folder = tmp_path / "".join(tokens[-2:])
        folder.mkdir(exist_ok=True)
        (folder / "vocab.txt").write_text("\n".join(tokens))
        return loading.load(str(folder))

    stored_berts.write(tmp_path / "bert", vocabulary=vocabulary(*words))
    program = stored_berts.student(make_layout({"data": 8}))
    tables = {"layers": (3, 1), "directory": str(tmp_path / "bert")}
    init_from = InitFrom(**tables)
    init_from.check_vocabulary(vocabulary(*words), program)
    init_from.check_vocabulary(vocabulary(*words, "g", "h"), program)
    other = vocabulary(*words[:-2], "f", "e")
    with pytest.raises(ValueError, match=r"2 of 11 ids .* 9 is '.*f' here and '.*e' there"):
        init_from.check_vocabulary(other, program)
    InitFrom(**tables, skip=("tokens", "mlm")).check_vocabulary(other, program)


@pytest.mark.parametrize("settings", [{"skip": "mlm"}, {"skip": ("(",)}, {"rename": {"(": ""}}])
def test_patterns_are_checked_at_once(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="InitFrom"):
        InitFrom(directory="anywhere", **settings)


def test_a_directory_gives_its_sizes_too(stored_bert: Path, tmp_path: Path) -> None:
    settings = [f"INIT_FROM={str(stored_bert)!r}", f"MODEL_DIR={str(tmp_path / 'run')!r}"]

    def loaded(recipe: str, *more: str) -> Any:
        with gin_config.temporary_configuration():
            return gin_run.load([str(gin_files.find_recipe(recipe))], [*settings, *more])

    run, notes = loaded("bert-mini", "bert.Config.dropout_rate=0.2")
    config = run.model.keywords["config"]
    assert config == dataclasses.replace(
        saved_model.constructor(str(stored_bert)).keywords["config"],
        dropout_rate=0.2,
        init_std=0.1,
        scan_unroll=config.scan_unroll,
    )
    assert run.init_from == InitFrom(directory=str(stored_bert), model=True)
    assert any("d_model 16, d_ff 32" in note for note in notes)
    with pytest.raises(ValueError, match=r"of the family t5, and .* family bert"):
        loaded("t5-mini")
    with pytest.raises(ValueError, match=r"bert\.Config\.d_model is given, and is 16"):
        loaded("bert-mini", "bert.Config.d_model=64")
    with pytest.raises(ValueError, match="VOCAB_SIZE has no effect"):
        loaded("bert-mini", "VOCAB_SIZE=99")


def hugging_face(folder: Path) -> Any:
    """A BERT with words of its own, as transformers saves one; returns its parameters."""
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "xy", "##lo", "##graph", "[", "]"]
    (folder / "words").mkdir(parents=True)
    (folder / "words" / "vocab.txt").write_text("\n".join(vocab))
    words = loading.load(str(folder / "words"))
    params = stored_berts.write(folder / "bert", vocabulary=words)
    saved = saved_model.read(str(folder / "bert"))
    model_directory.write(folder / "theirs", saved.model, params, ids=words.token_ids)
    to_files.write(words, folder / "theirs", model_type="bert")
    return params


def test_a_model_of_hugging_face_gets_tokens(tmp_path: Path) -> None:
    old = hugging_face(tmp_path)
    (tmp_path / "tokens.txt").write_text("xylograph\n\n the \n[E1]\n")
    given = {
        "INIT_FROM": tmp_path / "theirs",
        "ADD_TOKENS": tmp_path / "tokens.txt",
        "CACHE_DIR": tmp_path / "cache",
        "MODEL_DIR": tmp_path / "run",
    }

    def loaded(**more: Any) -> Any:
        with gin_config.temporary_configuration():
            settings = [f"{name}={str(value)!r}" for name, value in (given | more).items()]
            return gin_run.load([str(gin_files.find_recipe("bert-mini"))], settings)

    run, notes = loaded()
    said = "\n".join(notes)
    assert f"Imported {tmp_path / 'theirs'} as {run.init_from.directory}." in said
    assert "Adds 2 of the 3 tokens in" in said
    assert "from id 11; 1 were one id already." in said
    # The table has rows to spare, so that it does not grow.
    assert run.model.keywords["config"].vocab_size == stored_berts.VOCAB
    again, notes = loaded()
    assert again.init_from == run.init_from
    assert any(note.startswith("Starts from") for note in notes)

    vocabulary = starting_model.vocabulary(run)
    assert vocabulary is not None
    assert [*vocabulary.encode("the xylograph [E1]")] == [5, 11, 12]
    program = build_program(run)
    run.init_from.check_vocabulary(vocabulary, program)
    fresh = stored_berts.sevens(program.abstract_state.params)
    log: Any = SimpleNamespace(message=lambda line: None)
    params = run.init_from.apply(fresh, program=program, vocabulary=vocabulary, log=log)
    theirs, ours = (
        (one["encoder"]["embedding"]["tokens"]["table"], one["mlm"]["bias"])
        for one in (old, params)
    )
    for before, after in zip(theirs, ours, strict=True):
        expected = before.copy()
        expected[11] = before[[6, 7, 8]].mean(0)
        expected[12] = before[[9, 10]].mean(0)  # [ and ]: it knows nothing of E1
        np.testing.assert_allclose(after, expected, rtol=1e-6)

    (tmp_path / "many.txt").write_text("\n".join(f"w{n}" for n in range(60)))
    larger, _ = loaded(ADD_TOKENS=tmp_path / "many.txt")
    assert larger.model.keywords["config"].vocab_size == 71
    with pytest.raises(FileNotFoundError, match="none, the file of tokens to add"):
        loaded(ADD_TOKENS="none")
    with pytest.raises(ValueError, match=r"ADD_TOKENS has no effect: .* INIT_FROM"):
        loaded(VOCABULARY=tmp_path / "words")


def test_a_checkpoint_may_be_named_by_its_directory() -> None:
    of_step = InitFrom(directory="runs/one", step=20, model=True)
    for written in ("runs/one/checkpoints/20", "runs/one/checkpoints/20/"):
        assert InitFrom(directory=written, model=True) == of_step
    bucket = InitFrom(directory="gs://mine/one/checkpoints/5")
    assert (bucket.directory, bucket.step) == ("gs://mine/one", 5)
    assert InitFrom(directory="checkpoints/5").step is None
