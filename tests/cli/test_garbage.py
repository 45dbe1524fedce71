import gc
import subprocess
import sys

AT_THE_END = """
import atexit
import gc

# What is registered first is called last.
atexit.register(lambda: print("held back:", gc.get_freeze_count() > 0))

from t5x_like.cli.main import main

main(["recipes"])
"""


def test_a_command_looks_for_garbage_seldom(cli):
    before = gc.get_threshold()
    try:
        gc.set_threshold(700, 10, 10)
        assert cli("recipes").status == 0
        assert gc.get_threshold()[0] > 700
    finally:
        gc.set_threshold(*before)


def test_a_process_that_ends_does_not_look_for_garbage():
    command = [sys.executable, "-c", AT_THE_END]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.endswith("held back: True\n")
