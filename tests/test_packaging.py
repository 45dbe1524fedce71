"""What a wheel holds, where it lands, and what the core installation needs."""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
EXTRAS = {
    "all",
    "beam",
    "benchmarks",
    "completion",
    "cuda",
    "data",
    "dataflow",
    "datasets",
    "docs",
    "finetune",
    "gcs",
    "interop",
    "launch",
    "plan",
    "s3",
    "t5",
    "test",
    "tpu",
}


@pytest.fixture(scope="session")
def sources(tmp_path_factory):
    """A copy of what a wheel is built from, so that building leaves the checkout clean."""
    folder = tmp_path_factory.mktemp("sources")
    for name in ("setup.py", "pyproject.toml", "LICENSE", "t5x_like", "tasks", "gin", "launch"):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder)
    (folder / "gin/notes.txt").write_text("not a gin file")
    return folder


@pytest.fixture(scope="session")
def wheel(sources, tmp_path_factory):
    """A wheel, built as pip builds it."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps", "--no-build-isolation"]
    copy = folder / "sources"
    shutil.copytree(sources, copy)
    subprocess.run([*pip, "--wheel-dir", folder, copy], check=True)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="session")
def installed(wheel, tmp_path_factory):
    """A folder that holds the unpacked wheel and nothing else."""
    folder = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(folder)
    return folder


def test_a_wheel_brings_one_top_level_name(installed):
    names = {path.name for path in installed.iterdir() if path.suffix != ".dist-info"}
    assert names == {"t5x_like"}


def test_a_wheel_holds_every_source_file_and_gin_file(installed, sources):
    expected = {path.relative_to(sources) for path in (sources / "t5x_like").rglob("*.py")} | {
        "t5x_like" / path.relative_to(sources)
        for folder, pattern in (("tasks", "*.py"), ("launch", "*.py"), ("gin", "*.gin"))
        for path in (sources / folder).rglob(pattern)
    }
    expected.add(Path("t5x_like/py.typed"))
    assert any(path.suffix == ".gin" for path in expected)
    packed = {p.relative_to(installed) for p in (installed / "t5x_like").rglob("*") if p.is_file()}
    assert packed == {Path(path) for path in expected}


def test_a_wheel_carries_the_licence_and_the_command(installed):
    (metadata,) = installed.glob("*.dist-info")
    assert "Apache License" in (metadata / "licenses/LICENSE").read_text()
    assert "t5x_like = t5x_like.cli.main:main" in (metadata / "entry_points.txt").read_text()
    fields = (metadata / "METADATA").read_text()
    assert set(re.findall(r"^Provides-Extra: (\w+)", fields, re.MULTILINE)) == EXTRAS
    assert "git+" not in fields


def test_the_installed_package_finds_its_parts(installed, tmp_path):
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import gin, t5x_like, t5x_like.launch, t5x_like.tasks\n"
        "from pathlib import Path\n"
        "assert Path(t5x_like.__file__).is_relative_to(sys.argv[1]), t5x_like.__file__\n"
        "assert Path(t5x_like.tasks.__file__).is_relative_to(sys.argv[1])\n"
        "assert not Path(gin.__file__).is_relative_to(sys.argv[1])\n"
        "assert gin.parse_config, 'gin is gin-config'\n"
    )
    command = [sys.executable, "-c", code, str(installed)]
    subprocess.run(command, cwd=tmp_path, check=True)


def test_gin_is_gin_config_in_a_checkout():
    code = "import gin; gin.parse_config('')"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


@pytest.fixture(scope="session")
def requirements(installed):
    """The wheel's own requirements, as in its metadata."""
    (metadata,) = installed.glob("*.dist-info")
    return importlib.metadata.Distribution.at(metadata).requires


def closure(requirements: list[str], extra: str = "") -> set[str]:
    """Every distribution that these requirements pull in, by the metadata of what is installed."""
    seen: set[tuple[str, str]] = set()
    waiting = [(line, extra) for line in requirements]
    while waiting:
        line, extra = waiting.pop()
        wanted = Requirement(line)
        if wanted.marker and not wanted.marker.evaluate({"extra": extra}):
            continue
        name = re.sub(r"[-_.]+", "-", wanted.name).lower()
        for one in {"", *wanted.extras}:
            if (name, one) not in seen:
                seen.add((name, one))
                waiting += [(more, one) for more in importlib.metadata.requires(name) or []]
    return {name for name, _ in seen}


def test_the_core_needs_neither_tensorflow_nor_seqio(requirements):
    core = closure(requirements)
    assert {"jax", "flax", "grain", "sentencepiece"} <= core
    assert not {name for name in core if name.startswith(("tensorflow", "seqio", "torch"))}


def test_all_brings_what_a_user_of_any_data_needs(requirements):
    wanted = {"jax", "seqio", "tensorflow-text", "tensorflow-datasets", "pyarrow", "safetensors"}
    assert wanted <= closure(requirements, "all")


def test_every_requirement_has_both_bounds(requirements):
    for line in requirements:
        requirement, _, marker = line.partition(";")
        tool = 'extra == "test"' in marker
        assert tool or (">=" in requirement and "<" in requirement), line
