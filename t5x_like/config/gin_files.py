"""Finds gin files, and the rows of their tables of sizes; each family has one file.

The file of a family of models or recipes, such as gin/models/bert.gin, has what all sizes share,
and a statement that gin does not know: `SIZES`, a table whose rows can be named like gin files. So
`bert_base`, on the command line, in `include 'models/bert_base'` and for `t5x_like inspect`, is the
family's file followed by the values of its row. The columns of a table are:

- `include`: gin files. Models come before the family's own file, others after it. A recipe whose
  cell names no model includes the model of its own name.
- `parameters`, `hardware`, `result`, `note`: for people. A test checks `parameters`.
- All others are macros (`TRAIN_STEPS`), or parameters of the class that heads the first column. An
  empty cell sets nothing.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from t5x_like.config import former_names
from t5x_like.core.spelling import alike, nearest
from t5x_like.objectives import presets

_PACKAGE = Path(__file__).resolve().parent.parent
_SIZES = re.compile(r'^SIZES = """\n(.*?)"""\n', re.M | re.S)
_IMPORT = re.compile(r"^(?:import|from) .*\n", re.M)
_FOR_PEOPLE = ("parameters", "hardware", "result", "note")
_KINDS = ("models", "recipes")


class ConfigError(ValueError):
    """A wrong configuration; the message says what, where, the nearest names and what to do."""


@dataclasses.dataclass(frozen=True)
class GinFile:
    """A published model or recipe.

    Attributes:
      name: its name, such as `bert_base`.
      path: its path. A row of a table has the folder of its family and its own name without `.gin`.
      family: the file that holds it.
      text: the text that gin reads.
      parameters: the stated number of the model's parameters, or for a recipe that of the model
        it includes.
    """

    name: str
    path: Path
    family: Path
    text: str
    parameters: int


def gin_root() -> Path:
    """The folder of gin files: in an installed package, or beside the package in a checkout."""
    installed = _PACKAGE / "gin"
    return installed if installed.is_dir() else _PACKAGE.parent / "gin"


def search_path(extra: Sequence[str] = ()) -> list[Path]:
    """The folders with gin files, in order: the current one, `extra`, gin/, gin/models/."""
    return [Path("."), *map(Path, extra), gin_root(), gin_root() / "models"]


def published_models() -> dict[str, GinFile]:
    """The models of the package by name, such as `t5_1_1_xxl`."""
    return catalogue(gin_root() / "models")


def published_recipes() -> dict[str, GinFile]:
    """The pretraining runs of the package by name, such as `bert_base`."""
    recipes = catalogue(gin_root() / "recipes")
    models = published_models()
    for name, file in recipes.items():
        if not file.parameters:
            included = re.findall(r"^include 'models/(\w+)", file.text, re.M)
            count = next((models[model].parameters for model in included if model in models), 0)
            recipes[name] = dataclasses.replace(file, parameters=count)
    return recipes


def find(name: str, extra: Sequence[str] = ()) -> Path:
    """The published model called `name`, else the first file or row on the search path.

    Args:
      name: the name of a model, a file or a row: `bert_base`, `runs/pretrain.gin`, `bert/base.gin`.
      extra: folders that are searched before the package's own.

    Raises:
      ConfigError: there is none; the message gives the nearest names.
    """
    models = published_models()
    if name in models:
        return models[name].path
    folders = search_path(extra)
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    for folder in folders:
        if (row := _row(folder / name)) is not None:
            return row.path
    if not name.endswith(".gin") and "/" not in name:
        raise ConfigError(f"no model or gin file {name!r}" + nearest(name, models, of="models"))
    objective = Path(name).stem
    if name.startswith("objectives/") and objective in presets():
        raise ConfigError(
            f"no gin file {name!r}: an objective is named, --gin.OBJECTIVE=\"'{objective}'\", and "
            "its fields are set by its class (`t5x_like objectives` lists them)"
        )
    known = {str(f.relative_to(d)) for d in folders[1:] if d.is_dir() for f in d.rglob("*.gin")}
    meant = name.removesuffix(".gin").removeprefix("models/").replace("/", "_")
    if alike(meant, models):
        raise ConfigError(f"no gin file {name!r}" + nearest(meant, models))
    raise ConfigError(f"no gin file {name!r}" + nearest(name, sorted(known), of="gin files"))


def find_recipe(name: str) -> Path:
    """The gin file of a published pretraining run.

    Raises:
      ConfigError: there is none of that name; the message gives the nearest names.
    """
    recipes = published_recipes()
    if name not in recipes:
        advice = nearest(name, recipes, of="recipes")
        raise ConfigError(f"no recipe {name!r}{advice}; `t5x_like recipes` lists all")
    return recipes[name].path


def recipe_into(directory: str) -> str | None:
    """The published recipe whose run has this directory, such as `runs/bert-mini`."""
    line = f"\nMODEL_DIR = '{directory}'\n"
    return next((name for name, file in published_recipes().items() if line in file.text), None)


def check_whole(path: Path) -> None:
    """Raises ConfigError if `path` is a family's file, which is not a model or recipe by itself."""
    if path.is_file() and path.resolve().is_relative_to(gin_root().resolve()):
        text = path.read_text(encoding="utf-8")
        if _SIZES.search(text):
            names = ", ".join(row.name for row in _rows(path, text))
            raise ConfigError(f"{path.name} is what several sizes share; name one: {names}")


def read(path: Path) -> str:
    """The text that gin reads: a gin file without its table, or a row of a table.

    Modules have the names of today.
    """
    row = _row(path)
    if row is not None:
        return row.text
    return former_names.current(_SIZES.sub("", path.read_text(encoding="utf-8")))


def open_file(path: str) -> io.StringIO:
    """A gin file, or a row of a table, as an open file."""
    return io.StringIO(read(Path(path)))


def readable(path: str) -> bool:
    """Whether gin can read a file: one that exists, or a row of a table."""
    return Path(path).is_file() or _row(Path(path)) is not None


@functools.cache
def _published(folder: Path) -> Mapping[str, GinFile]:
    files: dict[str, GinFile] = {}
    for file in sorted(folder.glob("*.gin"), key=lambda file: file.stem):
        text = file.read_text(encoding="utf-8")
        if _SIZES.search(text):
            files |= {row.name: row for row in _rows(file, text)}
        elif stated := re.search(r"^#.*?\b(\d[\d,]*) parameters", text, re.M):
            count = int(stated[1].replace(",", ""))
            files[file.stem] = GinFile(file.stem, file, file, text, count)
    return files


def catalogue(folder: Path) -> dict[str, GinFile]:
    """The models or recipes of a folder by name: families in order, rows as in their tables.

    A file without a table that states no parameters is only a part of others, and is left out.
    """
    return dict(_published(folder))


def _row(path: Path) -> GinFile | None:
    """The row of a table that a path such as models/bert_base names; None for a real file."""
    for kind in _KINDS:
        folder = gin_root() / kind
        if path.is_relative_to(folder):
            name = "_".join(path.relative_to(folder).parts).removesuffix(".gin")
            row = _published(folder).get(name)
            is_row = row is not None and row.path != row.family
            return row if is_row and not path.is_file() else None
    return None


def _rows(file: Path, text: str) -> list[GinFile]:
    match = _SIZES.search(text)
    assert match is not None
    table = [
        [cell.strip() for cell in line.strip().strip("|").split("|")]
        for line in match[1].splitlines()
        if line.strip()
    ]
    (owner, *columns), *rows = table
    for row in rows:
        if len(row) != len(columns) + 1:
            raise ConfigError(f"{file}: {row[0]!r} has {len(row)} cells of {len(columns) + 1}")
    names = [row[0] for row in rows]
    return [
        _rendered(file, text, owner, row[0], dict(zip(columns, row[1:], strict=True)), names)
        for row in rows
    ]


def _rendered(
    file: Path, text: str, owner: str, name: str, row: dict[str, str], others: Sequence[str]
) -> GinFile:
    """The row as a gin file: comments for people, then includes, then its values."""
    kind = file.parent.name
    descriptions = {column: row.pop(column, "") for column in _FOR_PEOPLE}
    count = f"{descriptions['parameters']} parameters" if descriptions["parameters"] else ""
    about = "; ".join(filter(None, [count, descriptions["note"]]))
    head = [f"# {name}: {about}." if about else f"# {name}."]
    if kind == "recipes":
        head.append(f"#   t5x_like train --recipe {name} --corpus 'data/*.jsonl.gz'")
    head += [
        f"# {key.capitalize()}: {descriptions[key]}."
        for key in ("hardware", "result")
        if descriptions[key]
    ]
    first: list[str] = []
    after: list[str] = []
    for included in filter(None, (part.strip() for part in row.pop("include", "").split(","))):
        # Files that override the family's own file come after it.
        (first if included.startswith("models/") else after).append(f"include '{included}'")
    if kind == "recipes" and not first and name in published_models():
        first.append(f"include 'models/{name}'")
    if not any(f"include '{kind}/{one}'" in first for one in others):  # rows that include the file
        first.append(f"include '{kind}/{file.name}'")
    values = [
        f"{column if column.isupper() or '.' in column else f'{owner}.{column}'} = {value}"
        for column, value in row.items()
        if value
    ]
    if kind == "recipes":
        values.insert(0, f"MODEL_DIR = 'runs/{name}'")
    comments = re.match(r"(?:#.*\n)*", text)
    assert comments is not None
    parts = [
        "\n".join(head) + "\n" + comments[0],
        "from __gin__ import dynamic_registration\n",
        "".join(line for line in _IMPORT.findall(text) if "__gin__" not in line),
        "\n".join([*first, *after]) + "\n",
        "\n".join(values) + "\n",
    ]
    parameters = int(descriptions["parameters"].replace(",", "") or 0)
    return GinFile(name, file.parent / name, file, "\n".join(filter(None, parts)), parameters)
