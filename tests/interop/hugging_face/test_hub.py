"""Models by their names at the hub, which a fake stands in for."""

from __future__ import annotations

import fnmatch
import os
import shutil
import subprocess
import sys
import types
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest
from flax import nnx
from huggingface_hub.errors import LocalEntryNotFoundError

import t5x_like as t5x
from t5x_like.api.loaded_model import LoadedModel
from t5x_like.interop.hugging_face import model_directory
from t5x_like.interop.hugging_face.files import hub
from t5x_like.models import bert, electra
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


@pytest.fixture
def uploads(monkeypatch):
    """What was uploaded: {name: (private, names of files)}; me/open is there already."""
    found = {}

    class Api:
        def create_repo(self, name, *, private, exist_ok):
            assert exist_ok
            found.setdefault(name, (bool(private) and name != "me/open", ()))
            return huggingface_hub.RepoUrl(f"https://huggingface.co/{name}")

        def model_info(self, name):
            return types.SimpleNamespace(private=found[name][0])

        def upload_folder(self, *, repo_id, folder_path):
            if repo_id == "me/full":
                raise OSError("No space left.\nAnd more.")
            found[repo_id] = (found[repo_id][0], sorted(x.name for x in folder_path.iterdir()))

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: "a token")
    return found


def test_an_export_is_uploaded(uploads, published, tmp_path):
    model = t5x.load("published")
    _, line = model.export(tmp_path / "out", push="me/mine", private=True)
    assert line == "https://huggingface.co/me/mine: uploaded"
    assert uploads["me/mine"] == (True, sorted(path.name for path in (tmp_path / "out").iterdir()))
    assert 'from_pretrained("me/mine")' in (tmp_path / "out" / "README.md").read_text()
    both = electra.Electra(electra.Config(**SIZES, generator_width=1), rngs=nnx.Rngs(0))
    LoadedModel(both, None, 3, "theirs").export(tmp_path / "both", push="me/both")
    for half in ("discriminator", "generator"):
        assert uploads[f"me/both-{half}"] == (
            False,
            ["README.md", "config.json", "model.safetensors"],
        )


def test_an_upload_that_cannot_be_is_refused_before_any_work(
    uploads, published, tmp_path, monkeypatch, cli
):
    model = t5x.load("published")
    out = tmp_path / "out"
    with pytest.raises(ValueError, match="only an upload can be private"):
        model.export(out, private=True)
    with pytest.raises(ValueError, match="Repo id must"):
        model.export(out, push="a/b/c")
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: None)
    with pytest.raises(ValueError, match=r"`hf auth login`, or .* `hf upload me/mine DIR`"):
        model.export(out, push="me/mine")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    refused = cli("export", "--from=none", f"--to={out}", "--push=me/mine")
    assert "pip install huggingface_hub, or export without --push" in refused.err
    assert not out.exists()
    assert not uploads


WITHOUT_NETWORK = """
from pathlib import Path
from t5x_like.interop.hugging_face.files import hub
for call in (
    lambda: hub.check_upload("a/b/c"),
    lambda: hub.download("a/b"),
    lambda: hub.upload(Path("out"), "a/b", private=False),
):
    try:
        call()
    except (OSError, ValueError) as error:
        print(error)
"""


@pytest.mark.slow
def test_the_real_client_without_a_network(tmp_path):
    """In a fresh process: the package does not import its parts, and others may have here."""
    env = {**os.environ, "HF_ENDPOINT": "http://127.0.0.1:9", "HF_TOKEN": "a", "HF_HOME": "."}
    argv = [sys.executable, "-c", WITHOUT_NETWORK]
    done = subprocess.run(argv, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    name, downloaded, uploaded = done.stdout.splitlines()
    assert name.startswith("Repo id must")
    assert "there is no directory a/b, and the hub's model of that name cannot" in downloaded
    assert "out was written, but not uploaded to a/b (" in uploaded


def test_an_upload_that_fails_leaves_the_folder(uploads, published, tmp_path):
    model = t5x.load("published")
    with pytest.raises(OSError, match=r"was written, but .* \(No space left\.\): `hf upload me/fu"):
        model.export(tmp_path / "out", push="me/full")
    assert (tmp_path / "out" / "model.safetensors").exists()
    with pytest.raises(ValueError, match="me/open exists and is public, so nothing was uploaded"):
        model.export(tmp_path / "private", push="me/open", private=True)
    assert uploads["me/open"][1] == ()
