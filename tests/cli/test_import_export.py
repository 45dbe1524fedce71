"""Weights in and out by the command line, without transformers: tests/interop has the parity."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import pytest
from tiny_run import Result, Tiny

import t5x_like as t5x
from t5x_like.interop.hugging_face.files.safetensors_files import Weights
from t5x_like.runs import saved_model

Cli = Callable[..., Result]


def same(one: object, other: object) -> None:
    jax.tree.map(np.testing.assert_array_equal, one, other)


@pytest.mark.slow
def test_a_trained_run_goes_out_and_comes_back(tiny: Tiny, cli: Cli) -> None:
    run = tiny.trained("run", TRAIN_STEPS=2, CHECKPOINT_PERIOD=1, EVAL_PERIOD=1)
    out, back = str(tiny.root / "out"), str(tiny.root / "back")
    exported = cli("export", f"--from={run}", f"--to={out}")
    assert exported.status == 0, exported.err
    assert "T5ForConditionalGeneration, step 2" in exported.out
    card = (Path(out) / "README.md").read_text()
    for line in (
        r"\| optimizer \| adafactor \|",
        r"\| 1 to 2 \| 8 \| inputs 64, targets 24 \| `SpanCorruption\(",
        r"\| text \| 1 \| 2\d\d \| \d\d,\d\d\d \|",
        "On held-out text, after step 2:",
    ):
        assert re.search(line, card), line
    imported = cli("import", f"--from={out}", f"--to={back}")
    assert imported.status == 0, imported.err
    before, after = saved_model.read(str(run)), saved_model.read(back)
    same(before.params, after.params)
    assert after.vocabulary is not None
    assert before.vocabulary is not None
    assert after.vocabulary.fingerprint == before.vocabulary.fingerprint
    assert (before.step, after.step) == (2, 0)
    config = json.loads((Path(out) / "config.json").read_text())
    assert (config["model_type"], config["vocab_size"], config["num_layers"]) == ("t5", 384, 1)
    counted = [cli("inspect", str(model), "--count").out for model in (run, back)]
    assert counted[0] == counted[1]
    # What was imported is exported again by Python, from its own folder too.
    t5x.load(out).export(tiny.root / "again")
    assert "Imported from out." in (tiny.root / "again" / "README.md").read_text()
    assert cli("export", f"--from={back}", f"--to={tiny.root / 'back_out'}").status == 0
    card = (tiny.root / "back_out" / "README.md").read_text()
    assert "T5ForConditionalGeneration, imported from out." in card

    first = cli("export", f"--from={run}", "--step=1", f"--to={out}", "--overwrite")
    assert first.status == 0, first.err
    card = (Path(out) / "README.md").read_text()
    assert "| steps | 1 of 2 |" in card
    assert "after step 1:" in card
    table = Weights(out).read("shared.weight")
    np.testing.assert_array_equal(
        table, saved_model.read(str(run), step=1).params["embedding"]["table"]
    )
    assert np.any(table != np.asarray(before.params["embedding"]["table"]))


@pytest.fixture
def exported(tiny: Tiny, cli: Cli) -> Path:
    run = tiny.trained("run", TRAIN_STEPS=1)
    assert cli("export", f"--from={run}", f"--to={tiny.root / 'out'}").status == 0
    return tiny.root / "out"


@pytest.mark.slow
def test_nothing_is_overwritten_and_errors_say_what_to_do(
    exported: Path, tiny: Tiny, cli: Cli
) -> None:
    again = cli("export", f"--from={tiny.root / 'run'}", f"--to={exported}")
    assert again.status == 1
    assert "has weights already (model.safetensors)" in again.err
    wrong = cli("export", f"--from={tiny.root / 'run'}", "--step=5", f"--to={tiny.root / 'n'}")
    assert "No step 5" in wrong.err
    assert "holds no run" in cli("export", f"--from={exported}", f"--to={tiny.root / 'n'}").err

    target = f"--to={tiny.root / 'run'}"
    assert "is not empty" in cli("import", f"--from={exported}", target).err
    target = f"--to={tiny.root / 'new'}"
    assert "has no config.json" in cli("import", f"--from={tiny.root}", target).err
    config = json.loads((exported / "config.json").read_text())
    for change, message in (
        ({"model_type": "t6"}, "'t6', which is not supported; nearest: t5"),
        ({"architectures": []}, "names no class"),
        ({"architectures": ["T5ForNothing"]}, "T5ForNothing is not supported"),
        ({"d_ff": 65}, "they belong to different models"),
    ):
        (exported / "config.json").write_text(json.dumps(config | change))
        refused = cli("import", f"--from={exported}", target)
        assert refused.status == 1
        assert message in refused.err
    assert not (tiny.root / "new").exists()


@pytest.mark.slow
def test_a_tokenizer_fits_the_table_or_is_refused_by_name(
    exported: Path, tiny: Tiny, cli: Cli
) -> None:
    path, target = exported / "tokenizer.json", tiny.root / "new"
    tokens = json.loads(path.read_text())
    new = tokens["added_tokens"][0] | {"special": False}
    first = max(token["id"] for token in tokens["added_tokens"]) + 1

    def written(end: int) -> None:
        more = [new | {"id": i, "content": f"new{i}"} for i in range(max(first, 259), end)]
        path.write_text(json.dumps(tokens | {"added_tokens": [*tokens["added_tokens"], *more]}))

    written(385)
    refused = cli("import", f"--from={exported}", f"--to={target}")
    assert refused.status == 1
    assert "tokenizer has 385 ids, and the model's table 384 rows" in refused.err
    assert not target.exists()
    with pytest.raises(ValueError, match="385 ids"):
        t5x.load(exported)
    written(300)
    done = cli("import", f"--from={exported}", f"--to={target}")
    assert done.status == 0
    assert "the table has 384 rows and the tokenizer 300 ids" in done.err
    assert t5x.load(target).vocabulary.encode("new299") == [299]

    path.write_text("[")
    assert cli("import", f"--from={exported}", f"--to={tiny.root / 'mute'}").status == 0
    asked = cli("predict", str(tiny.root / "mute"), "a")
    assert asked.status == 1
    assert "reads no text: no vocabulary from" in asked.err
    assert "tokenizer.json is not a tokenizer.json" in asked.err


@pytest.mark.slow
def test_a_checkpoint_of_t5x_comes_in(exported: Path, tiny: Tiny, cli: Cli) -> None:
    sys.path.insert(0, str(Path(__file__).parent.parent / "interop"))
    import t5x_checkpoint

    run = saved_model.read(str(tiny.root / "run"))
    tree = t5x_checkpoint.tree_of(run.params, run.model.config)
    t5x_checkpoint.write(tiny.root / "checkpoint_7", tree)
    target = ["import", f"--from={tiny.root / 'checkpoint_7'}", f"--to={tiny.root / 't5x'}"]
    assert "name the model, such as --model" in cli(*target).err
    sizes = {"vocab_size": 384, "d_model": 32, "d_ff": 64, "num_heads": 2, "d_kv": 16}
    sizes |= {"num_encoder_layers": 1, "num_decoder_layers": 1}
    flags = [f"--gin.t5.Config.{name}={size}" for name, size in sizes.items()]
    done = cli(*target, "--model=t5_1_1_small", "--vocabulary=bytes", *flags)
    assert done.status == 0, done.err
    same(saved_model.read(str(tiny.root / "t5x")).params, run.params)
    # Later releases of T5X write it by Orbax.
    t5x_checkpoint.write_by_orbax(tiny.root / "checkpoint_8", tree)
    source = [f"--from={tiny.root / 'checkpoint_8'}", f"--to={tiny.root / 'orbax'}"]
    done = cli("import", *source, "--model=t5_1_1_small", "--vocabulary=bytes", *flags)
    assert done.status == 0, done.err
    same(saved_model.read(str(tiny.root / "orbax")).params, run.params)
    state = tiny.root / "checkpoint_7" / "checkpoint"
    file = cli("import", f"--from={state}", f"--to={tiny.root / 'new'}")
    assert "a part of a checkpoint of T5X: name its folder" in file.err
