"""Where TensorFlow and SeqIO are not installed, everything but SeqIO's own tasks works."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tiny_run import Tiny, finish, losses


@pytest.mark.parametrize("package", ["training", "models", "runs", "cli"])
def test_importing_a_package_imports_neither(package: str, without_tensorflow: Callable) -> None:
    without_tensorflow(
        "import importlib, pkgutil, sys\n"
        f"import t5x_like.{package} as package\n"
        "found = pkgutil.walk_packages(package.__path__, package.__name__ + '.')\n"
        "names = [module.name for module in found]\n"
        "assert len(names) > 0\n"
        "for name in names: importlib.import_module(name)\n"
        "assert not {'tensorflow', 'seqio', 'tensorflow_datasets'} & set(sys.modules)\n"
    )


@pytest.mark.slow
def test_a_run_from_text_to_checkpoint(
    tiny: Tiny, environment_without_tensorflow: dict[str, str]
) -> None:
    want = losses(tiny.trained("with", TRAIN_STEPS=3))
    command = tiny.flags("without", TRAIN_STEPS=3, EVAL_PERIOD=3)
    finish(tiny.start(command, devices=8, env=environment_without_tensorflow))
    assert losses(tiny.root / "without") == pytest.approx(want, rel=1e-6)


def test_what_needs_it_says_how_to_get_it(tmp_path, without_tensorflow: Callable) -> None:
    done = without_tensorflow(
        "import sys\nfrom t5x_like.cli.main import main\nsys.exit(main(sys.argv[1:]))",
        *("vocab", "--corpus=tfds:wiki40b/en", f"--output={tmp_path / 'v.model'}"),
        check=False,
    )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: ")
    assert last.endswith("pip install 't5x_like[data]'")
    assert "Traceback" not in done.stderr
