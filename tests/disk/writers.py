"""Commands that write, what they write, and what they must say when they cannot."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

from tiny_run import HERE, write_text

_TINY = f"--gin_file={HERE / 'tiny.gin'}"


@dataclasses.dataclass(frozen=True)
class Writer:
    """A command. Its words may name `{out}`, which is new, and what `prepare` has made.

    Attributes:
      argv: the words of the command.
      names: what the error names, or what the command says about its going on.
      where: a pattern of the paths that cannot be written.
      since: a file from whose appearance on they cannot.
      goes_on: whether the command ends well without what it cannot write, and says so.
    """

    argv: tuple[str, ...]
    names: str
    where: str = "{out}/*"
    since: str = ""
    goes_on: bool = False


def _train(**macros: object) -> tuple[str, ...]:
    given = {
        "MODEL_DIR": "{out}/run",
        "CACHE_DIR": "{cache}",
        "CORPUS": "{text}",
        **macros,
    }
    return ("train", _TINY, *(f"--gin.{name}={value!r}" for name, value in given.items()))


_SAVING = _train(TRAIN_STEPS=6, CHECKPOINT_PERIOD=2)
_CACHE = ("cache", "--corpus", "{text}", "--vocabulary=bytes", "--separator=line")
_SHOW = ("show", "--vocabulary=bytes", "--cache_dir={out}/cache", "--corpus")
WRITERS: Mapping[str, Writer] = {
    "vocabulary": Writer(
        ("vocab", "--corpus", "{text}", "--size=40", "--output={out}/v.model"), "{out}/v.model"
    ),
    "vocabulary folder": Writer(
        ("vocab", "--corpus", "{text}", "--type=wordpiece", "--size=200", "--output={out}/v"),
        "{out}/v",
    ),
    "cache": Writer((*_CACHE, "--workers=1", "--cache_dir={out}/cache"), "{out}/cache"),
    "cache by workers": Writer((*_CACHE, "--workers=2", "--cache_dir={out}/cache"), "{out}/cache"),
    "cache by a run": Writer(_train(CACHE_DIR="{out}/cache"), "{out}/cache", where="{out}/cache/*"),
    "plan of samples": Writer(
        (*_SHOW, "{rows}", "--pack", "--lengths=inputs=64,targets=16"),
        "plans for this cache cannot be kept",
        where="{out}/cache/*.plan-*",
        goes_on=True,
    ),
    "run's folder": Writer(_train(), "{out}/run"),
    "checkpoint": Writer(
        _SAVING, "{out}/run", where="{out}/run/checkpoints/*", since="{out}/run/checkpoints/2"
    ),
    "log": Writer(
        _SAVING,
        "Cannot write",
        where="{out}/run/[!c]*",
        since="{out}/run/checkpoints/2",
        goes_on=True,
    ),
    "export": Writer(("export", "--from={run}", "--to={out}/hf"), "{out}/hf"),
    "import": Writer(("import", "--from={hf}", "--to={out}/imported"), "{out}/imported"),
    "predictions": Writer(
        ("predict", "{run}", "--input={rows}", "--max_new_tokens=2", "--output={out}/p.jsonl"),
        "{out}/p.jsonl",
    ),
    "vectors": Writer(
        ("predict", "{run}", "--input={rows}", "--embed", "--output={out}/p.npy"), "{out}/p.npy"
    ),
    "metrics": Writer(
        ("eval", "{run}", "--batches=1", "--output={out}/eval.json"), "{out}/eval.json"
    ),
    "predictions of a task": Writer(
        ("eval", "{run}", "--corpus={rows}", "--batches=1", "--predictions={out}/p.jsonl"),
        "{out}/p.jsonl",
    ),
    "report": Writer(
        ("report", "{run}", "--samples=0", "--output={out}/report.html"), "{out}/report.html"
    ),
    "plot": Writer(("plot", "{run}", "--output={out}/loss.png"), "{out}/loss.png"),
    "page of examples": Writer(
        (*_SHOW, "{text}", "--html={out}/s.html"), "{out}/s.html", where="{out}/s.html*"
    ),
}


def prepare(folder: Path, run) -> dict[str, Path]:
    """Makes what commands read, by `run(*argv)`: {name: path}."""
    rows = [{"inputs": f"the {n} of", "targets": "a module"} for n in range(4)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_text(folder / "text.txt", 60)
    made = {name: folder / name for name in ("cache", "run", "hf")}
    made |= {"text": folder / "text.txt", "rows": folder / "rows.jsonl"}
    for argv in (_train(MODEL_DIR=str(made["run"]), SEED=1), WRITERS["export"].argv):
        result = run(*(word.format(out=folder, **made) for word in argv))
        assert result is not None
        assert result.status == 0, result.err
    return made
