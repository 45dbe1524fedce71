"""The import table and the house style of the design, enforced on every file."""

from __future__ import annotations

import ast
import dataclasses
import json
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from import_graph import (
    ROOT,
    SOURCES,
    Import,
    circles,
    files_between,
    imports_of,
    module_name,
    packages_between,
    picture,
    rooms_between,
    text,
)

from t5x_like.cli import main

ALL_FILES = [*SOURCES, *sorted((ROOT / "tests").rglob("*.py")), ROOT / "setup.py"]


@dataclasses.dataclass(frozen=True)
class Rule:
    """What a package may import: names of ours, of others, and of others inside functions only."""

    ours: str = ""
    others: str = ""
    in_functions: str = ""

    def allows_ours(self, name: str) -> bool:
        return self.ours == "anything" or name in self.ours.split()

    def allows_other(self, name: str, *, in_function: bool) -> bool:
        allowed = f"{self.others} {self.in_functions}" if in_function else self.others
        return name in allowed.split() or "anything" in allowed.split()


DATA = Rule(
    ours="data objectives core tasks vocabularies",
    others="array_record etils numpy tqdm zstandard",
    in_functions="absl apache_beam datasets grain pyarrow sentencex seqio tensorflow "
    "tensorflow_datasets",
)
RULES = {
    "__init__": Rule(ours="anything"),
    "__main__": Rule(ours="cli"),
    "core": Rule(ours="core", others="etils fsspec numpy tqdm", in_functions="jax"),
    "objectives": Rule(ours="objectives core vocabularies", others="numpy"),
    "vocabularies": Rule(ours="core vocabularies", others="numpy sentencepiece tokenizers tqdm"),
    "layers": Rule(ours="layers partitioning core", others="flax jax numpy"),
    "models": Rule(ours="layers models core", others="flax jax numpy"),
    "training": Rule(
        ours="partitioning core training",
        others="absl etils flax jax numpy optax orbax tensorboardX tqdm",
        in_functions="pynvml",
    ),
    "data": DATA,
    "tasks": DATA,
    "inference": Rule(
        ours="data inference objectives partitioning core", others="flax jax numpy tqdm"
    ),
    "evaluation": Rule(
        ours="core data evaluation inference layers partitioning training vocabularies",
        others="flax jax numpy",
        in_functions="rouge_score sacrebleu scipy seqeval sklearn tqdm",
    ),
    "config": Rule(ours="config objectives core", others="gin jax"),
    "runs": Rule(
        ours="config data evaluation inference interop layers models objectives partitioning core "
        "runs training vocabularies",
        others="etils flax gin jax numpy optax",
    ),
    "planning": Rule(
        ours="config core data layers partitioning planning runs training",
        others="flax jax numpy",
        in_functions="libtpu",
    ),
    "sweeps": Rule(ours="core sweeps training", others="numpy"),
    "display": Rule(ours="config display partitioning core training", others="flax jax numpy"),
    "reporting": Rule(
        ours="core display reporting runs sweeps training",
        others="etils numpy",
        in_functions="matplotlib",
    ),
    "interop": Rule(
        ours="interop layers models core vocabularies",
        others="flax jax numpy safetensors sentencepiece tokenizers tqdm",
        in_functions="huggingface_hub tensorstore",
    ),
    "api": Rule(
        ours="api config core data inference interop planning runs sweeps training vocabularies",
        others="etils flax jax numpy",
        in_functions="mlflow optax wandb",
    ),
    "cli": Rule(ours="anything", others="anything"),
    "launching": Rule(ours="config core launching training", others="etils"),
    "launch": Rule(ours="anything", others="ml_collections"),
}
# Files that only the making of a cache imports.
SEQIO_FILES = "data.seqio."
# A model that is made of another: {"electra": {"bert"}} lets electra.py import bert.py.
CONTAINED_MODELS: dict[str, set[str]] = {
    "albert": {"bert"},
    "bart_decoder": {"bart"},
    "bert_decoder": {"bert"},
    "distilbert": {"bert"},
    "canine_pretraining": {"canine"},
    "deberta_v3": {"deberta", "electra"},
    "electra": {"bert"},
    "longformer": {"bert"},
    "modernbert_decoder": {"modernbert"},
    "multi_task": {"finetuned"},
    "neobert": {"eurobert"},
    "led": {"bart"},
    "longt5": {"t5"},
    "prefix_lm": {"t5"},
    "spanbert": {"bert"},
}

JAX_IN_CORE = {
    f"core.{name}"
    for name in ("counter_random", "devices.memory", "global_batches", "parameters", "partitioning")
}

FOR_LAYERS = {
    f"core.partitioning.{name}"
    for name in (
        "Layout",
        "active_device",
        "active_layout",
        "active_platform",
        "constrain",
        "gathered",
    )
}


def complaint(place: str, found: Import) -> str | None:
    """Why the module `place`, such as `data.task`, may not have this import; None if it may."""
    package, _, stem = place.partition(".")
    rule = RULES[package]
    top, _, rest = found.name.partition(".")
    if top in sys.stdlib_module_names:
        return None
    if top in ("tasks", "launch"):
        return f"is installed as t5x_like.{top}"
    if top == "t5x_like":
        target = rest.partition(".")[0]
        if not rule.allows_ours(target) and target in RULES:
            return f"is not for {package}"
        allowed = place in JAX_IN_CORE or rule.allows_ours("partitioning")
        if rest.startswith("core.partitioning") and not allowed:
            return f"is not for {package}"
        if package == "layers" and "partitioning" in rest and rest not in FOR_LAYERS:
            return "layers know no mesh: they take what FOR_LAYERS names from partitioning"
        if package == "models" and target == "models":
            other = rest.split(".")[1]
            if other not in {stem, *CONTAINED_MODELS.get(stem, set())}:
                return "a model imports another only where it contains it"
        return None
    if rule.allows_other(top, in_function=found.in_function):
        return None
    if place.startswith(SEQIO_FILES) and top in ("gin", "seqio", "tensorflow"):
        return None
    if place in JAX_IN_CORE and top in ("flax", "jax"):
        return None
    if place == "layers.losses.cross_entropy" and top == "optax":
        return None
    if rule.allows_other(top, in_function=True):
        return f"only inside functions of {package}"
    return f"is not for {package}"


def complaints(source: str, module: str) -> list[str]:
    """All complaints about one file, as `module:line: import: why`."""
    place = module.partition(".")[2]
    found = [(one, complaint(place, one)) for one in imports_of(source, module)]
    return [f"{module}:{one.line}: {one.name}: {why}" for one, why in found if why]


def test_imports_follow_the_table():
    assert [why for path in SOURCES for why in complaints(text(path), module_name(path))] == []


@pytest.mark.parametrize(
    ("module", "source", "why"),
    [
        ("objectives.x", "import jax", "jax: is not for objectives"),
        ("objectives.x", "from t5x_like.data.cache import reader", "is not for objectives"),
        ("vocabularies.x", "def f():\n  import tensorflow", "is not for vocabularies"),
        ("core.partitioning", "from t5x_like import layers", "is not for core"),
        ("objectives.x", "from t5x_like.core import partitioning", "is not for objectives"),
        ("layers.x", "import optax", "optax: is not for layers"),
        ("layers.x", "from t5x_like.core.partitioning import make_layout", "layers know no mesh"),
        ("models.t5", "import gin", "gin: is not for models"),
        ("models.t5", "from t5x_like.models import bert", "only where it contains it"),
        ("models.t5", "from ..training import step", "t5x_like.training.step: is not for models"),
        ("training.x", "from t5x_like.models.t5 import T5", "is not for training"),
        ("reporting.x", "import matplotlib.pyplot", "only inside functions of reporting"),
        ("data.x", "import grain.python as grain", "only inside functions of data"),
        ("data.x", "import importlib\nimportlib.import_module('grain')", "only inside functions"),
        ("data.cache.reader", "import seqio", "only inside functions of data"),
        ("tasks.x", "from tasks import text", "installed as t5x_like.tasks"),
        ("evaluation.x", "import tqdm", "only inside functions of evaluation"),
        ("config.x", "from t5x_like.runs import run", "is not for config"),
        ("runs.x", "from t5x_like.cli import main", "is not for runs"),
        ("interop.x", "def f():\n  import torch", "torch: is not for interop"),
        ("launch.tpu_vm", "import jax", "jax: is not for launch"),
        ("launching.job", "import jax", "jax: is not for launching"),
        ("data.x", "if TYPE_CHECKING:\n  from t5x_like.training import step", "is not for data"),
    ],
)
def test_breaches_are_found(module, source, why):
    (found,) = complaints(source, f"t5x_like.{module}")
    assert why in found


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("layers.losses.cross_entropy", "import optax"),
        ("layers.x", "from t5x_like.core.partitioning import constrain"),
        ("models.t5", "from t5x_like.layers.basics.modules import Linear\nfrom flax import nnx"),
        ("data.x", "def f():\n  import grain.python as grain"),
        ("data.x", "if TYPE_CHECKING:\n  import seqio"),
        ("data.seqio.objective_step", "import seqio\nimport tensorflow as tf"),
        ("cli.train", "import jax"),
        ("launch.tpu_vm", "from ml_collections import ConfigDict"),
        ("training.x", "from t5x_like import __version__"),
    ],
)
def test_what_the_table_allows_passes(module, source):
    assert complaints(source, f"t5x_like.{module}") == []


def test_files_and_packages_import_one_another_in_one_direction():
    assert circles(files_between()) == []
    assert circles(packages_between()) == []
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}}) != []


@pytest.mark.parametrize(
    "package", sorted({*RULES} - {"__init__", "__main__", "core", "vocabularies"})
)
def test_files_and_folders_of_a_package_import_one_another_in_one_direction(package):
    """But whole files know of buckets, which write them, and subwords of files that hold them."""
    assert circles(rooms_between(package)) == []


def test_the_page_of_the_architecture_has_the_picture_of_the_imports():
    page = ROOT / "docs" / "architecture.md"
    if os.environ.get("WRITE_PICTURE"):
        old = text(page)
        start = old.index("```mermaid")
        end = old.index("```", start + 3) + 3
        page.write_text(old[:start] + picture() + old[end:], encoding="utf-8")
    assert picture() in text(page)


ONE_KIND = (".", "models", "objectives", "cli", "interop/hugging_face")
"""Folders of one package of the table, one file a model, an objective, a command, a family at
Hugging Face."""


def test_a_folder_has_at_most_15_files_and_folders():
    folders = {path.parent for path in SOURCES if path.is_relative_to(ROOT / "t5x_like")}
    found = {
        str(folder.relative_to(ROOT / "t5x_like")): sum(
            not entry.name.startswith(("__", ".")) and entry.suffix in (".py", "")
            for entry in folder.iterdir()
        )
        for folder in folders
    }
    assert {n: count for n, count in found.items() if count > 15 and n not in ONE_KIND} == {}


def line_count(path: Path) -> int:
    return len(text(path).splitlines())


def test_the_files_are_found():
    assert len(SOURCES) > 200
    assert len(ALL_FILES) > 400


def test_a_file_has_at_most_400_lines():
    counts = {str(path.relative_to(ROOT)): line_count(path) for path in ALL_FILES}
    assert {name: count for name, count in counts.items() if count > 400} == {}


def test_a_file_has_a_name_that_tells():
    nothing = {"base", "common", "helper", "helpers", "misc", "util", "utils"}
    assert [str(path) for path in ALL_FILES if path.stem in nothing] == []


def test_a_file_says_its_subject_in_its_first_line():
    first = {module_name(path): text(path).partition("\n")[0] for path in SOURCES}
    one_sentence = re.compile(r'"""[^"]+[.:?](""")?')
    assert [name for name, line in first.items() if not one_sentence.fullmatch(line)] == []


def test_the_median_file_has_at_most_150_lines():
    assert statistics.median(line_count(path) for path in SOURCES if path.stem != "__init__") <= 150


def long_functions(path: Path) -> Iterator[str]:
    cap = 90 if module_name(path) == "t5x_like.training.loop" else 60
    for node in ast.walk(ast.parse(text(path))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = node.end_lineno - node.lineno + 1
            if length > cap:
                yield f"{module_name(path)}.{node.name}: {length} lines"


def test_a_function_fits_on_a_screen():
    assert [found for path in SOURCES for found in long_functions(path)] == []


def test_every_folder_of_python_is_a_package():
    assert {path.parent for path in SOURCES} == {
        path.parent for path in SOURCES if path.name == "__init__.py"
    }


def test_gin_holds_gin_files_only():
    # With Python in it, `import gin` in a checkout would find this folder and not gin-config.
    assert {path.suffix for path in (ROOT / "gin").rglob("*") if path.is_file()} == {".gin"}


IMPORT_ALL = """
import importlib, pkgutil, sys
import t5x_like
for name in sys.argv[1:]:
    module = importlib.import_module(f"t5x_like.{name}")
    for found in pkgutil.walk_packages(getattr(module, "__path__", []), f"{module.__name__}."):
        importlib.import_module(found.name)
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


def test_training_and_its_parts_import_neither_tensorflow_nor_seqio(without_tensorflow):
    parts = "core layers models training objectives vocabularies inference evaluation"
    without_tensorflow(IMPORT_ALL, *parts.split())


def test_objectives_and_vocabularies_do_not_import_jax(without_tensorflow):
    loaded = without_tensorflow(IMPORT_ALL, "objectives", "vocabularies").stdout.split()
    assert "numpy" in loaded
    assert not {"jax", "flax", "grain"} & set(loaded)


def test_reading_a_cache_imports_neither_tensorflow_nor_jax(without_tensorflow):
    loaded = without_tensorflow(
        IMPORT_ALL, "data.cache.reader", "data.samples.samples"
    ).stdout.split()
    assert "jax" not in loaded


HELP = """
import json, sys
from t5x_like.cli.main import main
modules = {}
for command in ["", *sys.argv[1:]]:
    try:
        status = main([*filter(None, [command]), "--help"])
    except SystemExit as done:
        status = done.code
    assert not status, command
    modules[command] = [*sys.modules]
print(json.dumps(modules))
"""


def test_help_of_the_commands_imports_nothing_heavy():
    """Of all in one process: what is imported once all have printed their text, none needs."""
    done = subprocess.run(
        [sys.executable, "-c", HELP, *main.COMMANDS], capture_output=True, text=True, check=True
    )
    shown, _, modules = done.stdout.strip().rpartition("\n")
    assert shown.count("usage: t5x_like") > len(main.COMMANDS)
    imported = {command: set(names) for command, names in json.loads(modules).items()}
    assert not {"jax", "numpy", "tensorflow", "gin"} & imported[""]
    heavy = {"jax", "tensorflow", "seqio"}
    assert {command: heavy & names for command, names in imported.items() if heavy & names} == {}
