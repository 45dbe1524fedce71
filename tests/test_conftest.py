"""What tests share does what it says: hides TensorFlow and SeqIO, and ends in time."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("name", ["tensorflow", "seqio", "tensorflow_datasets"])
def test_hidden_modules_look_uninstalled(without_tensorflow, name):
    done = without_tensorflow(f"import {name}", check=False)
    assert done.returncode == 1
    assert f"ModuleNotFoundError: No module named '{name}'" in done.stderr


def test_submodules_are_hidden_too(without_tensorflow):
    done = without_tensorflow("from tensorflow.python import pywrap_tensorflow", check=False)
    assert "ModuleNotFoundError" in done.stderr


def test_other_modules_and_arguments_come_through(without_tensorflow):
    done = without_tensorflow("import json, sys; print(json.dumps(sys.argv[1:]))", "a b", "c")
    assert done.stdout == '["a b", "c"]\n'


def test_failure_shows_its_output(without_tensorflow):
    with pytest.raises(AssertionError, match="told on the way out"):
        without_tensorflow("print('told on the way out'); raise SystemExit(3)")


def test_worker_processes_lack_it_too(without_tensorflow):
    done = without_tensorflow(
        "import subprocess, sys\n"
        "sys.exit(subprocess.run([sys.executable, '-c', 'import seqio']).returncode)",
        check=False,
    )
    assert "No module named 'seqio'" in done.stderr


def test_what_has_not_begun_in_time_is_left_out_and_counted() -> None:
    name = f"{__file__}::test_hidden_modules_look_uninstalled"
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--minutes=0", name]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert "[3] " in said
    assert "the minutes of this run are over" in said
    assert "3 skipped" in said
