"""What all tests share: simulated devices, compiled programs, a Python without TensorFlow."""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib.metadata
import math
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tiny_run import Result, Tiny

# Before the first import of JAX or TensorFlow, and inherited by every subprocess of a test.
os.environ["JAX_PLATFORMS"] = "cpu"
# Tiny models take their time to be compiled, not to run: half of it and more is for optimising.
COMPILED_FAST = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
if importlib.metadata.version("jaxlib").startswith("0.10."):
    # Halves what is left. Later releases do not know the first and end over an unknown flag.
    COMPILED_FAST += " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count=8 {COMPILED_FAST}"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

# What one test compiled no other compiles again, in any process: workers inherit the folder. One
# that the environment names is kept for the next session.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="t5x_like-compiled-")
    atexit.register(shutil.rmtree, os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"

# With which paths a test has trained is nobody else's business.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="t5x_like-state-")
atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)

LAST_START = pytest.StashKey[float]()
"""When the last test may begin, in seconds of the monotonic clock."""
TESTS = Path(__file__).parent
# For `import_graph`, and for `tiny_run`, which tests of commands share.
sys.path[:0] = [str(TESTS), str(TESTS / "runs")]
SLOW_FOLDERS = ("runs", "cli", "models", "interop", "training", "layers", "inference", "benchmarks")

HIDE_TENSORFLOW = """
import importlib.machinery

HIDDEN = {"clu", "seqio", "tensorflow", "tensorflow_datasets", "tensorflow_text"}
find_any = importlib.machinery.PathFinder.find_spec

def find_spec(name, path=None, target=None):
    return None if name.partition(".")[0] in HIDDEN else find_any(name, path, target)

importlib.machinery.PathFinder.find_spec = find_spec
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--one-case", action="store_true", help="of each test, its first case of parameters alone"
    )
    parser.addoption(
        "--matrices",
        action="store_true",
        help="also the cases that combine what other cases test, each alone (marked matrix)",
    )
    parser.addoption(
        "--minutes",
        type=float,
        help="skip the tests that have not begun after so long, on a machine that is too slow",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Each worker notes when it began."""
    minutes = config.getoption("--minutes")
    config.stash[LAST_START] = math.inf if minutes is None else time.monotonic() + minutes * 60


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before fixtures are made."""
    if time.monotonic() > item.config.stash[LAST_START]:
        pytest.skip("left out: the minutes of this run are over")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Files with slow tests first, by folder: workers take files whole, and shall end together."""
    if not config.getoption("--matrices"):
        left_out = [item for item in items if item.get_closest_marker("matrix")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("matrix")]
    if config.getoption("--one-case"):
        cases = {item.nodeid.partition("[")[0]: item for item in reversed(items)}
        kept = {*cases.values()}
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = [item for item in items if item in kept]
    order = {name: place for place, name in enumerate(SLOW_FOLDERS)}
    slow = {item.path for item in items if item.get_closest_marker("slow")}

    def place(item: pytest.Item) -> tuple[bool, int]:
        folder = item.path.relative_to(TESTS).parts[0]
        return item.path not in slow, order.get(folder, len(SLOW_FOLDERS))

    items.sort(key=place)


def pytest_collection_finish() -> None:
    """What was imported is large: to look for garbage in it so often took a sixth of the time."""
    from t5x_like.cli.common.garbage import collect_seldom

    collect_seldom()


@pytest.fixture(autouse=True, scope="module")
def few_compiled_programs() -> Iterator[None]:
    """Programs that JAX compiled are mapped in pieces: Linux allows a process 65,530 of them."""
    yield
    maps = Path("/proc/self/maps")
    if "jax" in sys.modules and maps.exists() and maps.read_bytes().count(b"\n") > 20_000:
        sys.modules["jax"].clear_caches()
        gc.collect()


@pytest.fixture
def environment_without_tensorflow(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables for a subprocess: every Python under it, worker processes too, lacks TensorFlow.

    TensorFlow and SeqIO look as if they were not installed: importing them is a
    `ModuleNotFoundError`.
    """
    folder = tmp_path_factory.mktemp("without_tensorflow")
    (folder / "sitecustomize.py").write_text(HIDE_TENSORFLOW)
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


@pytest.fixture
def without_tensorflow(
    environment_without_tensorflow: dict[str, str],
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs code in a new Python in which TensorFlow and SeqIO look as if not installed.

    `without_tensorflow(code, *arguments)` returns the completed process with its output as text,
    and raises `AssertionError` with that output if it failed; `check=False` leaves the status to
    the test.
    """

    def run(code: str, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            env=environment_without_tensorflow,
            capture_output=True,
            text=True,
            check=False,
        )
        if check and done.returncode:
            raise AssertionError(f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    return run


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """`stores("gs")`: the address of a server of such buckets, started when it is needed."""
    import emulators

    with contextlib.ExitStack() as running:

        @functools.cache
        def start(kind: str) -> str:
            served = (
                emulators.s3() if kind == "s3" else emulators.gcs(tmp_path_factory.mktemp(kind))
            )
            return running.enter_context(served)

        yield start


@pytest.fixture(params=["gs", "s3"])
def bucket(
    request: pytest.FixtureRequest,
    stores: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Iterator[str]:
    """The address of an empty bucket, such as `gs://b1f0`; copies go to `tmp_path / "stage"`."""
    import emulators

    kind: str = request.param
    for package in emulators.NEEDS[kind]:
        pytest.importorskip(package, reason=f"no emulator of {kind}://: pip install '.[test]'")
    url = stores(kind)
    name = f"b{uuid.uuid4().hex[:12]}"
    emulators.make_bucket(kind, url, name)
    for variable, value in emulators.variables(kind, url).items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv("T5X_LIKE_STAGE", str(tmp_path / "stage"))
    emulators.forget()
    yield f"{kind}://{name}"
    for thread in threading.enumerate():
        if thread.name.startswith("stage "):  # it copies to where the test has said
            thread.join(timeout=60)


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 documents, a line each."""
    from tiny_run import write_text

    return write_text(tmp_path_factory.mktemp("text") / "text.txt", 300)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """`cli("train", ...)`: what the command line returns and prints, in this process."""
    from tiny_run import Result

    from t5x_like.cli import main

    def run(*argv: str) -> Result:
        capsys.readouterr()
        try:
            status = main.main(list(argv))
        except SystemExit as left:
            status = int(left.code or 0)
        return Result(status, *capsys.readouterr())

    return run


@pytest.fixture
def tiny(text: Path, tmp_path: Path, cli: Callable[..., Result]) -> Tiny:
    """Runs of the tiny model on `text`; each in a directory of its own below `tmp_path`."""
    from tiny_run import Tiny

    return Tiny(tmp_path, cli, {"CORPUS": str(text)})
