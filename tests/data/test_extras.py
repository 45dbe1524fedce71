import contextlib
import importlib
import sys
import types

import pytest

from t5x_like.data import extras


def test_what_is_installed_is_imported():
    assert extras.require("os.path", "data") is sys.modules["os.path"]


def test_what_is_missing_is_named_with_its_extra_in_one_line():
    with pytest.raises(
        extras.MissingExtraError,
        match=r"^reading X needs no_such_package: pip install 't5x_like\[data\]'$",
    ):
        extras.require("no_such_package.part", "data", purpose="reading X")


def test_a_failure_inside_the_package_is_not_hidden(tmp_path, monkeypatch):
    (tmp_path / "half_installed.py").write_text("import another_missing_one\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="another_missing_one") as caught:
        extras.require("half_installed", "data")
    assert not isinstance(caught.value, extras.MissingExtraError)


def test_the_import_of_tensorflow_is_silent(tmp_path, monkeypatch, capfd):
    noise = r"I0000 00:00:17.9 5 port.cc:153] oneDNN is on\n"
    (tmp_path / "tensorflow.py").write_text(
        f"import os\nos.write(2, b'{noise}W0000 a warning\\n')\n"
        "if os.environ.get('FAIL'): raise ValueError('half')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for fails, said in (("1", f"{noise}W0000 a warning\n"), ("", "W0000 a warning\n")):
        monkeypatch.setitem(sys.modules, "tensorflow", None)  # restored afterwards
        del sys.modules["tensorflow"]
        monkeypatch.setenv("FAIL", fails)
        extras.quiet_tensorflow()
        with pytest.raises(ValueError, match="half") if fails else contextlib.nullcontext():
            importlib.import_module("tensorflow")
        assert capfd.readouterr().err == said.replace("\\n", "\n")


def test_tensorflow_leaves_the_gpus_to_jax(monkeypatch):
    hidden = []
    stand_in = types.ModuleType("tensorflow")
    stand_in.config = types.SimpleNamespace(
        set_visible_devices=lambda devices, kind: hidden.append((devices, kind))
    )
    monkeypatch.setitem(sys.modules, "tensorflow", stand_in)
    assert extras.require("tensorflow", "data") is stand_in
    assert hidden == [([], "GPU")]
