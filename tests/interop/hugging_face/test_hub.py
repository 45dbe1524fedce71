"""Models by their names at the hub, which a fake stands in for."""

from __future__ import annotations

import fnmatch
import shutil
import sys
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest
from flax import nnx
from huggingface_hub.errors import LocalEntryNotFoundError

import t5x_like as t5x
from t5x_like.interop.hugging_face import hub, model_directory
from t5x_like.models import bert
from t5x_like.runs import saved_model

SIZES = {"vocab_size": 9, "d_model": 4, "d_ff": 6, "num_heads": 2, "num_layers": 1}


@pytest.fixture
def published(tmp_path, monkeypatch):
    """What the hub holds as me/tiny, a folder; every download is a copy of what was asked for."""
    folder = tmp_path / "published"
    model = bert.Bert(bert.Config(**SIZES), rngs=nnx.Rngs(0))
    model_directory.write(folder, model, nnx.to_pure_dict(nnx.state(model, nnx.Param)))
    for name in ("README.md", "vocab.txt", "pytorch_model.bin", "tf_model.h5"):
        (folder / name).write_text("[PAD]\n[UNK]\n")

    def snapshot_download(name, *, allow_patterns):
        if name != "me/tiny":
            raise LocalEntryNotFoundError("Cannot reach the hub.\nAnd more.")
        target = tmp_path / "downloaded" / "3f2c"
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        for file in folder.iterdir():
            if any(fnmatch.fnmatch(file.name, pattern) for pattern in allow_patterns):
                shutil.copy(file, target)
        return str(target)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("google-t5/t5-small", True),
        ("bert-base-uncased", True),
        ("gpt2", True),
        ("distilroberta-base", True),
        ("mine", False),
        ("bert-mine", False),
        ("runs/mine", False),  # there is a folder runs
        ("there", False),
        ("a/b/c", False),
        ("../mine", False),
        ("gs://bucket/run", False),
        (Path("google-t5/t5-small"), False),
    ],
)
def test_names_are_told_from_paths(text, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "there").mkdir()
    assert hub.is_name(text) == expected


def test_a_name_is_loaded_and_imported_like_a_folder(published, tmp_path, cli):
    model = t5x.load("me/tiny")
    assert model.directory == "me/tiny"
    downloaded = {path.name for path in (tmp_path / "downloaded" / "3f2c").iterdir()}
    assert downloaded == {"README.md", "config.json", "model.safetensors", "vocab.txt"}
    model.export(tmp_path / "again")
    assert "Imported from me/tiny." in (tmp_path / "again" / "README.md").read_text()
    done = cli("import", "--from=me/tiny", f"--to={tmp_path / 'imported'}")
    assert done.status == 0, done.err
    assert "imported from me/tiny." in (tmp_path / "imported" / "config.gin").read_text()
    table = saved_model.read(str(tmp_path / "imported")).params["encoder"]["embedding"]["tokens"]
    ours = nnx.to_pure_dict(nnx.state(t5x.load("published").model, nnx.Param))
    np.testing.assert_array_equal(table["table"], ours["encoder"]["embedding"]["tokens"]["table"])


def test_errors_say_what_to_do_instead(published, monkeypatch):
    with pytest.raises(FileNotFoundError, match=r"\(Cannot reach the hub\.\)\. .*`hf download me"):
        t5x.load("me/none")
    (published / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"pytorch_model\.bin, are never read: unpickling"):
        t5x.load("me/tiny")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(FileNotFoundError, match=r"pip install huggingface_hub.*`hf download me"):
        t5x.load("me/tiny")
