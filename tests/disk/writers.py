"""Commands that write, what they write, and what they must say when they cannot."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from injector import Injector
from tiny_run import HERE, Result, write_text
from warm import SECONDS

from t5x_like.core import exit_status
from t5x_like.core.whole_files import ADVICE, FULL

Run = Callable[..., Result | None]


@dataclasses.dataclass(frozen=True)
class Writer:
    """A command. Its words may name `{out}`, a new folder, and what `prepare` has made.

    Attributes:
      argv: the words of the command.
      names: what its error names, or what it says about going on.
      where: a pattern of the paths that cannot be written.
      since: a file from whose appearance on they cannot.
      until: a file from whose appearance on they can again.
      goes_on: whether the command ends well without what it cannot write, and says so.
    """

    argv: tuple[str, ...]
    names: str
    where: str = "{out}/*"
    since: str = ""
    until: str = ""
    goes_on: bool = False


def _train(**macros: object) -> tuple[str, ...]:
    given = {"MODEL_DIR": "{out}/run", "CACHE_DIR": "{cache}", "CORPUS": "{text}", **macros}
    bindings = (f"--gin.{name}={value!r}" for name, value in given.items())
    return ("train", f"--gin_file={HERE / 'tiny.gin'}", *bindings)


_SAVING = _train(TRAIN_STEPS=6, CHECKPOINT_PERIOD=2)
_SAVED = "{out}/run/checkpoints/"
_CACHE = ("cache", "--corpus={text}", "--vocabulary=bytes", "--separator=line")
_SHOW = ("show", "--vocabulary=bytes", "--cache_dir={out}/cache")
_EXPORT = ("export", "--from={run}", "--to={out}/hf")
WRITERS: Mapping[str, Writer] = {
    "vocabulary": Writer(
        ("vocab", "--corpus={text}", "--size=40", "--output={out}/v.model"), "{out}/v.model"
    ),
    "vocabulary's folder": Writer(
        ("vocab", "--corpus={text}", "--type=wordpiece", "--size=200", "--output={out}/v"),
        "{out}/v",
    ),
    "cache": Writer((*_CACHE, "--workers=1", "--cache_dir={out}/cache"), "{out}/cache"),
    "cache by workers": Writer((*_CACHE, "--workers=2", "--cache_dir={out}/cache"), "{out}/cache"),
    "cache by a run": Writer(_train(CACHE_DIR="{out}/cache"), "{out}/cache", where="{out}/cache/*"),
    "cache's index": Writer(
        (*_CACHE, "--workers=1", "--cache_dir={out}/cache"),
        "{out}/cache",
        where="{out}/cache/*.npy.*",
    ),
    "plan of samples": Writer(
        (*_SHOW, "--corpus={rows}", "--pack", "--lengths=inputs=64,targets=16"),
        "plans for this cache cannot be kept",
        where="{out}/cache/*.plan-*",
        goes_on=True,
    ),
    "plan of a run": Writer(
        ("plan", "bert-mini", "--topology=v5e:2x2", "--memory_only"),
        "{tmp}/t5x_like-plan-",
        where="{tmp}/t5x_like-plan-*",
    ),
    "run's folder": Writer(_train(), "{out}/run"),
    "checkpoint": Writer(_SAVING, _SAVED.rstrip("/"), where=f"{_SAVED}*", since=f"{_SAVED}2"),
    "log": Writer(
        _SAVING,
        "Cannot write the log in {out}/run",
        where="{out}/run/[!c]*",
        since=f"{_SAVED}2",
        until=f"{_SAVED}4",
        goes_on=True,
    ),
    "export": Writer(_EXPORT, "{out}/hf"),
    "import": Writer(("import", "--from={hf}", "--to={out}/imported"), "{out}/imported"),
    "predictions": Writer(
        ("predict", "{run}", "--input={rows}", "--max_new_tokens=2", "--output={out}/p.jsonl"),
        "{out}/p.jsonl",
    ),
    "vectors": Writer(
        ("predict", "{run}", "--input={rows}", "--embed", "--output={out}/p.npy"), "{out}/p.npy"
    ),
    "predictions of a task": Writer(
        ("eval", "{run}", "--corpus={rows}", "--batches=1", "--predictions={out}/p.jsonl"),
        "{out}/p.jsonl",
    ),
    "metrics": Writer(
        ("eval", "{run}", "--batches=1", "--output={out}/eval.json"), "{out}/eval.json"
    ),
    "report": Writer(
        ("report", "{run}", "--samples=0", "--output={out}/report.html"), "{out}/report.html"
    ),
    "plot": Writer(("plot", "{run}", "--output={out}/loss.png"), "{out}/loss.png"),
    "page of examples": Writer(
        (*_SHOW, "--corpus={text}", "--html={out}/s.html"), "{out}/s.html", where="{out}/s.html*"
    ),
}


def prepare(folder: Path, run: Run) -> dict[str, Path]:
    """Makes what the commands read: {name: path}."""
    rows = [{"inputs": f"the {n} of", "targets": "a module"} for n in range(4)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_text(folder / "text.txt", 60)
    made = {name: folder / name for name in ("cache", "run", "hf")}
    for left in made.values():
        shutil.rmtree(left, ignore_errors=True)
    made |= {"text": folder / "text.txt", "rows": folder / "rows.jsonl"}
    made["tmp"] = Path(tempfile.gettempdir())
    for argv in (_train(MODEL_DIR=str(made["run"]), SEED=1), _EXPORT):
        _works(run(*(word.format(out=folder, **made) for word in argv)))
    return made


def attempt(
    writer: Writer,
    number: int,
    *,
    run: Run,
    injector: Injector,
    made: Mapping[str, Path],
    out: Path,
    spared: int = 0,
) -> str:
    """What became of a command whose writes fail with an errno, and of the same command afterwards.

    Args:
      writer: the command.
      number: the errno.
      run: runs a command.
      injector: makes its writes fail.
      made: what `prepare` has made.
      out: a folder, which is emptied.
      spared: the number of calls that work before one fails.

    Raises:
      AssertionError: it is not as it should be.
    """
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()

    def filled(text: str) -> str:
        return text.format(out=out, **made)

    argv = [filled(word) for word in writer.argv]
    times = {"since": filled(writer.since), "until": filled(writer.until), "spared": spared}
    with injector.failing(number, filled(writer.where), **times):
        result = run(*argv)
        failed = injector.failed
    assert result is not None, f"it does not end in {SECONDS} s"
    assert "Traceback" not in result.err, result.err
    if not failed:
        _works(result)
        return "nothing was left to fail"
    if writer.goes_on or result.status == 0:
        _works(result)
        assert not writer.goes_on or filled(writer.names) in result.err or spared, result.err
        outcome = "it goes on"
    else:
        _explains(result, number, filled(writer.names))
        again = run(*argv)
        outcome = f"status {result.status}, and then it works"
        if again is not None and "is there already" in again.err:
            outcome = f"status {result.status}, but what it writes is whole"
        else:
            _works(again)
    if writer.argv[0] == "train":
        _has_all_steps(out / "run")
    return outcome


def _explains(result: Result, number: int, names: str) -> None:
    """Checks the end of a command whose writes failed."""
    wanted = exit_status.NO_ROOM if number in FULL else exit_status.ERROR
    assert result.status == wanted, f"status {result.status}, not {wanted}: {result.err}"
    lines = result.err.splitlines()
    assert [line for line in lines if line.startswith("error: ")] == lines[-1:], result.err
    assert os.strerror(number) in lines[-1], lines[-1]
    # The folder is tried first.
    assert names in lines[-1] or f"'{Path(names).parent}/'" in lines[-1], f"no {names}: {lines[-1]}"
    said = ADVICE[number] in lines[-1] or (number in FULL and "Make room" in lines[-1])
    assert said, f"no advice: {lines[-1]}"
    assert ".tmp" not in lines[-1], lines[-1]


def _works(result: Result | None) -> None:
    assert result is not None, f"it does not end in {SECONDS} s"
    assert result.status == 0, f"status {result.status}: {result.err}"


def _has_all_steps(run: Path) -> None:
    """Checks that the log of a run is whole, and that its last checkpoint is there."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [line["step"] for line in lines if "train/loss" in line]
    assert steps == [1, 2, 3, 4, 5, 6], f"the log has steps {steps}"
    assert (run / "checkpoints" / "6").is_dir()
