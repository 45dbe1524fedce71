"""Every command on every kind of hostile directory: nothing of the reader's is read or written."""

from __future__ import annotations

import contextlib
import io
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from tiny_run import HERE, Result, write_text

from t5x_like.cli import main
from t5x_like.core.protocols.data import Vocabulary
from t5x_like.data.cache import location
from t5x_like.data.cache.records.metric_names import MetricNames
from t5x_like.data.task import Task
from t5x_like.data.task_files import evaluation_files, task_records
from t5x_like.evaluation.task_metrics import exact_match
from t5x_like.objectives.span_corruption import SpanCorruption
from t5x_like.vocabularies.byte import ByteVocabulary

sys.path.insert(0, str(Path(__file__).parent))
from directories import OF_BOTH, OF_CACHE, OF_RUN, World
from watching import contents, memory, watched

pytestmark = pytest.mark.slow

LENGTHS = {"inputs": 64, "targets": 24}
CACHE = "--gin.CACHE_DIR={theirs}/cache"
TRAIN = (
    *(f"--gin_file={HERE / 'tiny.gin'}", "--gin.TRAIN_STEPS=1", "--gin.EVAL_PERIOD=1"),
    *("--gin.MIXTURE_OR_TASK_NAME='hello'", CACHE),
)
ON_RUN: Mapping[str, tuple[str, ...]] = {
    "inspect": ("inspect", "{theirs}"),
    "eval": ("eval", "{theirs}", "--batches=1"),
    "eval with my text": ("eval", "{theirs}", "--corpus", "{out}/mine.txt", "--batches=1"),
    "language": ("language", "{theirs}", "pairs", "{out}/pairs.tsv"),
    "predict": ("predict", "{theirs}", "the ___ of", "--max_new_tokens=2"),
    "predict held-out text": ("predict", "{theirs}", "--held_out=1", "--max_new_tokens=2"),
    "export": ("export", "--from", "{theirs}", "--to", "{out}/exported"),
    "merge": ("merge", "{theirs}", "--to", "{out}/merged"),
    "import": ("import", "--from", "{theirs}", "--to", "{out}/imported"),
    "finetune": (
        *("finetune", "{theirs}", "--train", "{out}/labelled.tsv", "--model_dir={out}/tuned"),
        *("--cache_dir={out}/cache", "--epochs=1"),
    ),
    "sweep": (
        *("sweep", "{theirs}", "--train", "{out}/labelled.tsv", "--model_dir={out}/swept"),
        *("--cache_dir={out}/cache", "--epochs=1", "--seeds=1"),
    ),
    "report": ("report", "{theirs}", "--samples=1"),
    "plot": ("plot", "{theirs}"),
}
ON_CACHE: Mapping[str, tuple[str, ...]] = {
    "eval with their task": ("eval", "{theirs}", "--task=hello", "--batches=1", CACHE),
    "vocab": (
        *("vocab", "--extend", "{theirs}/vocabulary", "--output", "{out}/vocabulary"),
        *("--corpus", "{out}/mine.txt"),
    ),
    "cache": (
        *("cache", "--corpus", "{out}/other.txt", "--vocabulary=bytes", "--separator=line"),
        "--cache_dir={theirs}/cache",
    ),
    "show": ("show", "hello", "--cache_dir={theirs}/cache"),
    "doctor": ("doctor", *TRAIN, "--gin.MODEL_DIR={out}/mine"),
    "train with their cache": ("train", *TRAIN, "--gin.MODEL_DIR={out}/mine"),
    "train there": ("train", *TRAIN, "--gin.MODEL_DIR={theirs}", "--allow_change=data"),
}
WITHOUT_DIRECTORY = ("plan", "devices", "recipes", "objectives", "launch", "align")
"""Commands that open no directory of a run, an import or a cache."""
MEMORY = 1 << 30
"""Bytes that a command may take beyond those of the process before."""
_PATHS, _CALLS = {"eval": "--allow_paths"}, {"inspect": "makes no part of a run"}
SAYS: Mapping[str, Mapping[str, str]] = {
    "text of my home, cache elsewhere": _PATHS,
    "text of my home, cache in a bucket": {"predict": "CACHE_DIR='s3://attacker/loot'"},
    "a mixture of my home and the web": _PATHS,
    "a task of their cache": {"eval with my text": "cache', which is not used"},
    "a module": {"predict": "runs no code that it names"},
    "a program": {"export": "names module 'subprocess'"},
    "a huge table": _CALLS,
    "huge copies": _CALLS,
    "huge n-grams": _CALLS,
    "a record with a function of a library": {
        "eval with their task": "add --module pygments",
        "train with their cache": "add --module pygments",
    },
    "a record with a function of ours": {"eval with their task": "lists no such metric"},
    "a record with a lazy module": dict.fromkeys(
        ("eval with their task", "show", "train with their cache"), "if you trust its module"
    ),
    "examples that unpack": {"eval with their task": "is larger than"},
    "links in place of files and folders": dict.fromkeys(
        (
            *("eval with my text", "report", "plot"),
            *("cache", "train with their cache", "train there"),
        ),
        "is a link",
    ),
}
"""For each kind, commands and words of what they say."""


def _argv(command: tuple[str, ...], **places: Path) -> list[str]:
    """The words of a command; those that set gin macros get quotes."""
    words = []
    for word in command:
        filled = word.format(**places)
        if word.startswith("--gin.") and "{" in word:
            name, _, value = filled.partition("=")
            filled = f"{name}={value!r}"
        words.append(filled)
    return words


def _run(argv: Sequence[str]) -> Result:
    """What a command says and returns; a traceback fails the test."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main.main([*argv])
        except SystemExit as left:
            status = int(left.code or 0)
    return Result(status, out.getvalue(), err.getvalue())


def _add_task(cache: Path, vocabulary: Vocabulary) -> None:
    """Puts the record of a task `hello`, and its examples, into a cache."""
    (tokens,) = (cache / "tokens").iterdir()
    task = Task(
        name="hello",
        directory=f"tokens/{tokens.name}",
        objective=SpanCorruption(),
        eos={},
        metrics=MetricNames.of([exact_match], None),
    )
    task_records.save(location.record_file(cache, "hello"), [task])
    file = location.evaluation_file(
        cache, "hello", vocabulary=vocabulary.fingerprint, split="validation", lengths=LENGTHS
    )
    example = {name: np.array([100, 101, 1], np.int32) for name in LENGTHS}
    dtypes = dict.fromkeys(LENGTHS, "int32")
    evaluation_files.write(file, [example] * 2, dtypes=dtypes, fingerprint="")


@contextlib.contextmanager
def _world(folder: Path, theirs: Path) -> Iterator[World]:
    """A copy of a stranger's run, and the reader's own folders."""
    for name in ("home", "elsewhere", "out", "scratch", "own"):
        (folder / name).mkdir()
    write_text(folder / "home" / "a.txt", 30)
    for name in ("mine.txt", "other.txt"):
        write_text(folder / "out" / name, 60)
    (folder / "out" / "labelled.tsv").write_text("text\tlabel\na word\tyes\na list\tno\n")
    (folder / "out" / "pairs.tsv").write_text("good\tbad\na word\ta list\n")
    (folder / "home" / "rc").write_text("mine\n")
    shutil.copytree(theirs, folder / "theirs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(folder / "scratch"))
        patch.setattr(sys, "dont_write_bytecode", True)  # of what a command is first to import
        patch.setenv("T5X_LIKE_CACHE", str(folder / "own"))
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        patch.chdir(folder / "out")
        yield World(folder / "theirs", folder / "home", folder / "elsewhere")


def _run_all(world: World, commands: Mapping[str, tuple[str, ...]]) -> dict[str, Result]:
    """What each command says, once it is sure that it touched nothing else."""
    folder = world.theirs.parent
    before = {one: contents(one) for one in (world.home, world.elsewhere)}
    writable = [folder / name for name in ("theirs", "out", "scratch", "own", "state")]
    found = {}
    for name, command in commands.items():
        argv = _argv(command, theirs=world.theirs, out=folder / "out")
        resident = memory()
        with watched(writable=writable, private=[world.home]) as watch:
            found[name] = _run(argv)
        assert watch.seen == [], (name, found[name])
        assert memory(peak=True) - resident < MEMORY, (name, found[name])
        assert {one: contents(one) for one in before} == before, (name, found[name])
    return found


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run without malice, whose cache has the record of a task with metrics."""
    import matplotlib.font_manager  # noqa: F401  (the first import asks programs for fonts)
    import numpy.testing  # noqa: F401  (the first import asks lscpu; scikit-learn imports it)

    folder = tmp_path_factory.mktemp("stranger")
    text = write_text(folder / "text.txt", 60)
    run = folder / "theirs"
    given = {"MODEL_DIR": str(run), "CACHE_DIR": str(run / "cache"), "CORPUS": str(text)}
    bindings = [f"--gin.{name}={value!r}" for name, value in given.items()]
    assert _run(["train", f"--gin_file={HERE / 'tiny.gin'}", *bindings]).status == 0
    _add_task(run / "cache", ByteVocabulary())
    return run


@pytest.fixture(scope="module")
def without_malice(theirs: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Result]:
    """What commands say of the run as it is; all that they import is imported then."""
    with _world(tmp_path_factory.mktemp("reader"), theirs) as world:
        return _run_all(world, {**ON_RUN, **ON_CACHE})


def test_every_command_is_in_the_table() -> None:
    covered = {command[0] for command in (*ON_RUN.values(), *ON_CACHE.values())}
    assert covered | {*WITHOUT_DIRECTORY} == {*main.COMMANDS}


def test_a_run_without_malice_opens(without_malice: Mapping[str, Result]) -> None:
    refused = {name: one for name, one in without_malice.items() if one.status}
    # A run is not a folder of Hugging Face's, bytes cannot be extended, and this account has not
    # trained the run.
    assert refused.keys() == {"import", "vocab", "eval", "predict held-out text"}
    for name in ("eval", "predict held-out text"):
        assert "--allow_paths" in refused[name].err


@pytest.mark.parametrize("kind", [*OF_RUN, *OF_CACHE, *OF_BOTH])
def test_nothing_outside_is_touched(
    kind: str, theirs: Path, without_malice: Mapping[str, Result], tmp_path: Path
) -> None:
    commands = {
        **(ON_RUN if kind not in OF_CACHE else {}),
        **(ON_CACHE if kind not in OF_RUN else {}),
    }
    imported = {*sys.modules}
    with _world(tmp_path, theirs) as world:
        {**OF_RUN, **OF_CACHE, **OF_BOTH}[kind](world)
        found = _run_all(world, commands)
    added = {name for name in {*sys.modules} - imported if not name.startswith("t5x_like.")}
    assert not added
    assert {one.status for one in found.values()} <= {0, 1}
    for command, words in SAYS[kind].items():
        assert words in found[command].out + found[command].err, command
