"""What a run's configuration says about paths outside of its directory."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from tiny_run import Result, Tiny, write_text

from t5x_like.api.loading import load
from t5x_like.data.dataset import Data
from t5x_like.data.dataset_names import Withheld
from t5x_like.runs.checks import outside_paths
from t5x_like.runs.completers.teacher import Teacher
from t5x_like.runs.run import Options, Run


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this account notes with what it has trained."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "t5x_like"


def run_of(completer: Teacher | None = None, **data: object) -> Run:
    """A run of which only the paths count."""
    part = SimpleNamespace(kind="encoder", mesh=None)
    return Run(
        model_dir=None,
        model=SimpleNamespace,
        data=Data(**data),
        feature_converter=part,
        optimizer=None,
        layout=part,
        options=Options(train_steps=1, batch_size=1),
        completer=completer,
    )


def withheld(run: Run, *bindings: str, allow: bool = False) -> tuple[Run, list[str]]:
    said: list[str] = []
    found = outside_paths.withhold(
        run, "theirs", bindings=bindings, allow=allow, report=said.append
    )
    return found, said


def test_paths_with_which_this_account_has_trained_may_be_named() -> None:
    mine = run_of(corpus=["a.txt", "gs://b/c.txt"], cache_dir="cache")
    outside_paths.remember(mine)
    outside_paths.remember(mine)
    assert len(outside_paths.known_paths().read_text().splitlines()) == 1
    for run in (mine, run_of(corpus=["a.txt", "gs://b/c.txt"]), run_of(cache_dir="cache")):
        assert withheld(run) == (run, [])
    # Together alone: text of one run does not go into the cache of another.
    outside_paths.remember(run_of(corpus="b.txt", cache_dir="s3://theirs/cache"))
    other, said = withheld(run_of(corpus=["a.txt", "gs://b/c.txt"], cache_dir="s3://theirs/cache"))
    assert isinstance(other.data.corpus, Withheld)
    assert other.data.cache_dir is None
    assert "CACHE_DIR='s3://theirs/cache', which is not used" in said[0]


def test_other_paths_are_named_by_the_command_or_allowed() -> None:
    teacher = Teacher(directory="teacher")
    run = run_of(teacher, corpus="/home/me/*.txt", cache_dir="/elsewhere")
    found, said = withheld(run)
    assert len(said) == 1
    with pytest.raises(ValueError, match=r"CORPUS='/home/me/\*\.txt' and TEACHER=.*--allow_paths"):
        found.data.open()
    with pytest.raises(outside_paths.OutsidePathError, match=r"TEACHER='.*/teacher'"):
        found.completer.open(None)
    # By any setting that has just this path.
    given = (
        "CORPUS='/home/me/*.txt'",
        "TEACHER_DIR='teacher'",
        "dataset.Data.cache_dir='/elsewhere'",
    )
    assert withheld(run, *given) == (run, [])
    other = ("SEED=3", "init_from.InitFrom.directory='x'", "CORPUS=%NAME", "X=(1, None)")
    assert len(withheld(run, *other)[1]) == 1
    assert isinstance(withheld(run, *other, *given[1:])[0].data.corpus, Withheld)
    allowed, said = withheld(run, allow=True)
    assert (allowed.data.corpus, allowed.completer) == ("/home/me/*.txt", teacher)
    assert allowed.data.cache_dir is None, "caches are written"
    assert "reads CORPUS='/home/me/*.txt' and TEACHER=" in said[1]


def test_a_completer_of_a_user_says_what_it_reads() -> None:
    """By whatever names; one that says nothing is refused, and not taken to read nothing."""
    index = dataclasses.make_dataclass("Index", [], bases=(Teacher,), frozen=True)
    index.paths = {"INDEX": "/home/me/index", "WORDS": "/home/me/words"}
    found, _ = withheld(run_of(index(directory=None)))
    with pytest.raises(outside_paths.OutsidePathError, match=r"INDEX='.*' and WORDS='.*/words'"):
        found.completer.open(None)
    assert (
        withheld(run_of(index(directory=None)), "A='/home/me/index'", "B='/home/me/words'")[1] == []
    )
    silent = SimpleNamespace(**dict.fromkeys(("check", "check_model", "added", "identity", "open")))
    with pytest.raises(ValueError, match=r"has no paths: protocols\.BatchCompleter says"):
        withheld(run_of(silent))


@pytest.mark.parametrize("content", ["[1]\n", "{\n", "\xff\n", "null\n" * 3, '{"CORPUS": 1}\n'])
def test_a_damaged_list_allows_nothing(content: str, state: Path) -> None:
    state.mkdir(parents=True)
    (state / "known_paths.jsonl").write_text(content, encoding="latin-1")
    assert isinstance(withheld(run_of(corpus="a.txt"))[0].data.corpus, Withheld)


@pytest.mark.slow
def test_the_text_of_a_run_of_mine_is_read_and_that_of_a_stranger_is_not(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tiny.trained("run", TRAIN_STEPS=1)
    shutil.move(run, tmp_path / "moved")
    run = tmp_path / "moved"

    def evaluated(*flags: str) -> Result:
        return tiny.cli("eval", str(run), "--batches=1", *flags)

    mine = evaluated()
    assert mine.status == 0, mine.err
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "of somebody else"))
    refused = evaluated()
    assert refused.status == 1
    assert "--allow_paths" in refused.err
    allowed = evaluated("--allow_paths")
    assert (allowed.status, allowed.out.splitlines()[-5:]) == (0, mine.out.splitlines()[-5:])
    text = write_text(tmp_path / "other.txt", 90)
    named = evaluated(f"--gin.CORPUS={str(text)!r}")
    assert named.status == 0, named.err
    with pytest.raises(ValueError, match="allow_paths=True"):
        load(run).evaluate(batches=1)
