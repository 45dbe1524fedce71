"""Every family, from text on the command line to a directory that transformers opens."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from documents import write_documents
from tiny_run import Result, losses

from t5x_like import objectives
from t5x_like.cli import stored
from t5x_like.training.logs import read_metrics

pytestmark = pytest.mark.slow

_SIZES = {"vocab_size": 512, "d_model": 32, "d_ff": 64, "num_heads": 4}
_ENCODER = {**_SIZES, "num_layers": 2, "max_positions": 64}
_SIDES = {**_SIZES, "num_encoder_layers": 2, "num_decoder_layers": 2}
FAMILIES = {
    "bert_tiny": ("mlm_nsp", "bert", _ENCODER),
    "roberta_base": ("full_sentences", "bert", {**_ENCODER, "padding_position": 0}),
    "spanbert_base": ("spanbert", "spanbert", _ENCODER),
    "albert_base": ("albert", "albert", {**_ENCODER, "d_embedding": 16}),
    "electra_small": ("electra", "electra", {**_ENCODER, "d_embedding": 16}),
    "xlnet_base": ("xlnet", "xlnet", {**_SIZES, "num_layers": 2, "mem_len": 16}),
    "t5_small": ("span_corruption", "t5", {**_SIDES, "d_kv": 8}),
    "bart_base": ("bart", "bart", {**_SIDES, "max_positions": 64, "pad_id": 0}),
    "gpt2": ("lm", "gpt", _ENCODER),
    "prefix_lm_base": (
        "prefix_lm",
        "prefix_lm",
        {**_SIZES, "num_decoder_layers": 2, "d_kv": 8},
    ),
}
NOT_AT_HUGGING_FACE = ("prefix_lm_base",)


@pytest.fixture(scope="session")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with text.txt, and the cache of all families."""
    return write_documents(tmp_path_factory.mktemp("documents") / "text.txt").parent


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_trains_and_goes_out(
    name: str, documents: Path, tmp_path: Path, cli: Callable[..., Result]
) -> None:
    preset, module, sizes = FAMILIES[name]
    run, out = tmp_path / "run", tmp_path / "out"
    macros = {
        "MODEL_DIR": str(run),
        "CORPUS": str(documents / "text.txt"),
        "CORPUS_VALIDATION": 0.2,
        "CACHE_DIR": str(documents / "cache"),
        "VOCAB_SIZE": 400,
        "TASK_FEATURE_LENGTHS": objectives.preset(preset).lengths(32),
        "SEED": 7,  # of the training alone: what is held out gets the same noise in every run
        "TRAIN_STEPS": 4,
        "BATCH_SIZE": 8,
        "EVAL_PERIOD": 4,
        "EVAL_BATCHES": 2,
        "LOG_PERIOD": 1,
        "DTYPE": "float32",
    }
    bindings = [f"--gin.{macro}={value!r}" for macro, value in macros.items()]
    bindings += [f"--gin.{module}.Config.{field}={value}" for field, value in sizes.items()]
    files = [name, "runs/pretrain.gin", f"objectives/{preset}.gin"]
    done = cli("train", *(f"--gin_file={file}" for file in files), *bindings)
    assert done.status == 0, done.err
    assert np.isfinite(list(losses(run).values())).all()
    assert_evaluated(run, cli)
    exported = cli("export", f"--from={run}", f"--to={out}")
    if name in NOT_AT_HUGGING_FACE:
        assert "has no counterpart at Hugging Face" in exported.err
        return
    assert exported.status == 0, exported.err
    for config in sorted(out.rglob("config.json")):
        architecture = json.loads(config.read_text())["architectures"][0]
        back = tmp_path / architecture
        assert cli("import", f"--from={config.parent}", f"--to={back}").status == 0
        assert stored.read(str(back)).vocabulary is not None
        if importlib.util.find_spec("transformers"):
            opens(config.parent, architecture)


def assert_evaluated(run: Path, cli: Callable[..., Result]) -> None:
    """That `eval`, which knows no seed, says of the last step what the log says of it.

    And that it names simple baselines.
    """
    output = run / "eval.json"
    done = cli("eval", str(run), "--batch_size=8", "--batches=2", f"--output={output}")
    assert done.status == 0, done.err
    (columns,) = json.loads(output.read_text())["tasks"].values()
    logged = {
        name.rpartition("/")[2]: value
        for line in read_metrics(run / "metrics.jsonl")
        for name, value in line.items()
        if name.startswith("eval/")
    }
    assert {name: columns["trained"][name] for name in logged} == pytest.approx(logged, rel=1e-5)
    assert columns["untrained"].keys() == columns["trained"].keys() >= columns["unigram"].keys()
    assert any(name.endswith("perplexity") for name in columns["unigram"])
    assert any(name.endswith("accuracy") for name in columns["unigram"])


def opens(directory: Path, architecture: str) -> None:
    """Asserts that transformers finds just the weights it wants, and the tokenizer."""
    import transformers

    cls = getattr(transformers, architecture)
    _, report = cls.from_pretrained(directory, output_loading_info=True)
    assert not any(report[part] for part in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    ids = tokenizer("bafodo tu gemi")["input_ids"]
    assert tokenizer.decode(ids, skip_special_tokens=True).strip() == "bafodo tu gemi"
