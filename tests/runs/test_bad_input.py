"""Each mistake ends in seconds with status 1 and one clear message, without any loss."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import pytest
from etils import epath
from flax import nnx
from tiny_run import Result, Tiny, files, losses, write_text
from tokenizers import pre_tokenizers

from t5x_like.data.rows.feature_converters import Encoder
from t5x_like.runs import run_directory
from t5x_like.runs.checks import preflight
from t5x_like.training.checkpointing.checkpoints import CheckpointError
from t5x_like.vocabularies.byte import ByteVocabulary


def refused(result: Result, *said: str) -> str:
    """The one message of a command that failed."""
    assert result.status == 1, result.err
    assert "Traceback" not in result.err
    before, _, message = result.err.rpartition("error: ")
    assert "error" not in before.lower()
    for words in said:
        assert words in message
    return message


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (
            ["--gin_file=t5_1_1/smal.gin"],
            ["no gin file 't5_1_1/smal.gin'", "nearest: ", "t5_1_1_small"],
        ),
        (["--gin.TRAIN_STEP=3"], ["no gin macro 'TRAIN_STEP'", "nearest: TRAIN_STEPS"]),
        (
            ["--gin.t5.Config.d_modle=3"],
            ["d_modle", "--gin.t5.Config.d_modle=3", "nearest: d_model"],
        ),
        (["--gin.t5.Confg.d_model=3"], ["t5.Confg", "nearest: "]),
        (["--gin.MODEL_DIR=runs/mine"], ["--gin.MODEL_DIR=runs/mine", "its own quotes"]),
        (["--gin.CORPUS=None"], ["nothing to read", "MIXTURE_OR_TASK_NAME"]),
        (["--gin.MODEL_DIR=None"], ["add --model_dir "]),
        (
            ["--gin.CORPUS=None", "--gin.MIXTURE_OR_TASK_NAME='stdlib_doc.span_corruption'"],
            ["no task or mixture 'stdlib_doc.span_corruption'", "stdlib_docs.span_corruption"],
        ),
        (
            ["--gin.CORPUS=None", "--gin.MIXTURE_OR_TASK_NAME='stdlib_docs.span_corruptoin'"],
            ["no objective 'span_corruptoin'", "nearest: span_corruption"],
        ),
        (["--gin.MIXTURE_OR_TASK_MODULE='no_such'"], ["MIXTURE_OR_TASK_MODULE='no_such'"]),
        (["--gin.MIXTURE_OR_TASK_MODULE='no/such.py'"], ["MIXTURE_OR_TASK_MODULE='no/such.py'"]),
        (["--gin.CORPUS='no/such/*.txt'"], ["no file matches 'no/such/*.txt'"]),
        (["--gin.VOCABULARY='byte'"], ["no vocabulary 'byte'", "'bytes'"]),
        (["--gin.BATCH_SIZE=12"], ["Batch size 12", "multiple of 8", "Nearest: 8 or 16"]),
        (["--gin.partitioning.make_layout.mesh={'data': 3}"], ["Mesh {'data': 3}", "8 device(s)"]),
        (["--gin.partitioning.make_layout.mesh={'dat': -1}"], ["mesh axis 'dat'", "data"]),
        (["--gin.t5.Config.vocab_size=200"], ["259 ids", "200 rows", "t5.Config.vocab_size=384"]),
        (["--gin.MODEL_DIR='/proc/version/run'"], ["MODEL_DIR '/proc/version/run'"]),
        (["--gin.CACHE_DIR='/proc/version'"], ["/proc/version"]),
        (["--gin.MICROBATCHES=0"], ["MICROBATCHES", "at least 1", "not 0"]),
        (["--gin.BATCH_SIZE='a'"], ["BATCH_SIZE", "'a'"]),
        (["--gin.TASK_FEATURE_LENGTHS=5"], ["TASK_FEATURE_LENGTHS", "not 5"]),
        (["--gin.TASK_FEATURE_LENGTHS={'inputs': 64}"], ["TASK_FEATURE_LENGTHS lacks targets"]),
        (["--gin.VOCABULARY=None", "--gin.VOCAB_SIZE=0"], ["VOCAB_SIZE", "not 0"]),
        (
            ["--gin.TASK_FEATURE_LENGTHS={'inputs': 64, 'targets': 5}"],
            ["targets", "5"],
        ),
    ],
    ids=lambda value: value[-1].replace("/", "|") if "--gin" in value[0] else "",
)
def test_mistake_on_the_command_line(flags: list[str], said: list[str], tiny: Tiny) -> None:
    refused(tiny.train("run", *flags), *said)
    assert not (tiny.root / "run" / "config.gin").exists()
    assert not (tiny.root / "run" / "checkpoints").exists()


@pytest.mark.slow
def test_nothing_is_tokenised_for_a_run_that_cannot_be(tiny: Tiny) -> None:
    tiny.trained("run", TRAIN_STEPS=2)
    for flags, said in (
        (["--gin.VOCABULARY=None", "--gin.VOCAB_SIZE=2000"], "2100 ids"),
        (["--gin.SEED=7"], "seed: 0 then, 7 now"),
        (["--gin.TASK_FEATURE_LENGTHS={'inputs': 64, 'targets': 5}"], "targets"),
    ):
        refused(tiny.train("run", *flags, CACHE_DIR=str(tiny.root / "other")), said)
        assert not (tiny.root / "other").exists()


def test_vocabulary_that_pads_with_another_id(tiny: Tiny) -> None:
    names = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    (tiny.root / "bpe").mkdir()
    tokens = {name: i for i, name in enumerate([*names, *alphabet])}
    (tiny.root / "bpe" / "vocab.json").write_text(json.dumps(tokens))
    (tiny.root / "bpe" / "merges.txt").write_text("#version: 0.2\n")
    result = tiny.train("run", VOCABULARY=str(tiny.root / "bpe"))
    refused(result, "takes id 0 for padding", "pads with 1")


def test_objective_whose_examples_the_model_does_not_read(tiny: Tiny) -> None:
    result = tiny.train("run", OBJECTIVE="mlm")
    refused(
        result, "the kinds do not fit", "MaskedLM", "for an encoder, but", "OBJECTIVE", "prefix_lm"
    )
    assert not (tiny.root / "cache").exists()


def test_unwritable_directory(tiny: Tiny) -> None:
    (tiny.root / "file").write_text("precious")
    refused(tiny.train("file/run"), "cannot be written", "--model_dir")
    refused(tiny.train("run", CACHE_DIR=str(tiny.root / "file")), str(tiny.root / "file"))
    assert (tiny.root / "file").read_text() == "precious"


@pytest.mark.slow
@pytest.mark.parametrize("content", [b"", b"\n\n \n"], ids=["no bytes", "blank lines"])
def test_empty_corpus(content: bytes, tiny: Tiny) -> None:
    (tiny.root / "empty.txt").write_bytes(content)
    corpus = str(tiny.root / "empty.txt")
    refused(tiny.train("run", CORPUS=corpus), "empty", corpus)
    made = tiny.cli("cache", f"--corpus={corpus}", "--vocabulary=bytes", f"--cache_dir={tiny.root}")
    refused(made, "empty", corpus)


@pytest.mark.slow
def test_invalid_utf8_is_skipped_counted_and_said(tiny: Tiny) -> None:
    file = write_text(tiny.root / "mixed.txt", 50)
    file.write_bytes(file.read_bytes() + b"caf\xe9 au lait\nna\xefve words\n")
    result = tiny.train("run", CORPUS=str(file), TRAIN_STEPS=1)
    assert result.status == 0
    assert "skipped 2 of 52 documents: invalid UTF-8" in result.err
    shown = tiny.cli(
        *("cache", "--corpus", str(file), "--separator=line", "--validation=0.1"),
        *("--vocabulary=bytes", "--cache_dir", str(tiny.root / "cache")),
    )
    assert "skipped 2 (invalid UTF-8)" in shown.out


def test_corpus_of_nothing_but_invalid_utf8(tiny: Tiny) -> None:
    (tiny.root / "latin1.txt").write_bytes(b"caf\xe9\nna\xefve\n")
    result = tiny.train("run", CORPUS=str(tiny.root / "latin1.txt"))
    refused(result, "no text", "skipped 2 of 2 documents: invalid UTF-8")


@pytest.mark.slow
def test_truncated_cache_shard(tiny: Tiny) -> None:
    run = tiny.trained("run", TRAIN_STEPS=2)
    (shard,) = (tiny.root / "cache").rglob("train-*.arrayrecord")
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-100])
    before = files(run)
    refused(tiny.train("run", TRAIN_STEPS=4), str(shard), "truncated", "t5x_like cache")
    assert files(run) == before
    shard.write_bytes(whole)
    tiny.trained("run", TRAIN_STEPS=3)
    assert list(losses(run)) == [1, 2, 3]


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory, text: Path) -> Path:
    from t5x_like.vocabularies.learning.sentencepiece_training import train_sentencepiece

    lines = text.read_text().splitlines()
    return train_sentencepiece(
        lines, tmp_path_factory.mktemp("vocabulary") / "v.model", vocab_size=36, progress=False
    )


OTHER_RUNS: dict[str, tuple[list[str], dict[str, Any], list[str]]] = {
    "architecture": (
        ["--gin.t5.Config.d_ff=96"],
        {},
        ["another model", "[[1, 96, 32], 'float32'] in this run", "another directory"],
    ),
    "optimizer": (
        ["--gin_file=optimizers/adamw.gin", "--gin.schedules.cosine.warmup_steps=1"],
        {},
        ["another model, optimizer"],
    ),
    "vocabulary": ([], {"VOCABULARY": "a model"}, ["vocabulary: ", "Choose another MODEL_DIR"]),
    "seed": ([], {"SEED": 1}, ["seed: 0 then, 1 now", "--allow_change=seed"]),
    "batch": ([], {"BATCH_SIZE": 16}, ["batch_size: 8 then, 16 now", "--allow_change=batch_size"]),
    "lengths": (
        [],
        {"TASK_FEATURE_LENGTHS": {"inputs": 48, "targets": 24}},
        ["lengths", "--allow_change=data"],
    ),
    "text": ([], {"CORPUS": "another"}, ["--allow_change=data"]),
    "objective": (
        ["--gin.span_corruption.SpanCorruption.noise_density=0.2"],
        {},
        ["noise_density=0.2", "--allow_change=data"],
    ),
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shared")


@pytest.fixture
def finished(shared: Path, text: Path, cli: Callable[..., Result]) -> Tiny:
    """A folder with a `run` of two steps that no test changes."""
    tiny = Tiny(shared, cli, {"CORPUS": str(text)})
    if not (shared / "run").exists():
        tiny.trained("run", TRAIN_STEPS=2)
    return tiny


@pytest.mark.slow
@pytest.mark.parametrize("what", OTHER_RUNS)
def test_run_that_is_another_one_now(what: str, finished: Tiny, vocabulary: Path) -> None:
    run = finished.root / "run"
    before = files(run)
    flags, macros, said = OTHER_RUNS[what]
    if "VOCABULARY" in macros:
        macros = {"VOCABULARY": str(vocabulary)}
    if "CORPUS" in macros:
        macros = {"CORPUS": str(write_text(finished.root / "other.txt", 200))}
    message = refused(finished.train("run", *flags, TRAIN_STEPS=4, **macros), *said)
    assert ("--allow_change" in message) == (
        what not in ("architecture", "optimizer", "vocabulary")
    )
    assert files(run) == before


def test_long_settings_are_shown_from_where_they_differ() -> None:
    then, now = (f"UL2({'R' * 150}, rate={rate}, {'X' * 150})" for rate in (0.15, 0.5))
    with pytest.raises(CheckpointError) as caught:
        preflight.same_run(
            {"data.objective": now}, {"data.objective": then}, allow_change=frozenset()
        )
    message = str(caught.value)
    assert "rate=0.15, XXX" in message
    assert "rate=0.5, XXX" in message
    assert len(message) < 500


@pytest.mark.slow
def test_change_that_is_allowed_by_name(tiny: Tiny) -> None:
    run = tiny.trained("run", TRAIN_STEPS=2)
    noise = "--gin.span_corruption.SpanCorruption.noise_density=0.2"
    change = {"SEED": 1, "TRAIN_STEPS": 3}
    refused(tiny.train("run", noise, "--allow_change=seed", **change), "--allow_change=data")
    tiny.trained("run", noise, "--allow_change=seed,data", **change)
    assert list(losses(run)) == [1, 2, 3]
    # From now on this is a setting of the run.
    tiny.trained("run", noise, SEED=1, TRAIN_STEPS=4)
    refused(tiny.train("run", TRAIN_STEPS=5), "seed: 1 then, 0 now")


@pytest.mark.slow
def test_run_whose_newest_checkpoint_is_damaged(tiny: Tiny) -> None:
    straight = losses(tiny.trained("straight", TRAIN_STEPS=6))
    run = tiny.trained("run", TRAIN_STEPS=4, CHECKPOINT_PERIOD=2)
    data = max((run / "checkpoints" / "4" / "params").rglob("*"), key=lambda p: p.stat().st_size)
    damaged = bytearray(data.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    data.write_bytes(damaged)
    result = tiny.train("run", TRAIN_STEPS=6, CHECKPOINT_PERIOD=2)
    assert result.status == 0, result.err
    assert "Resuming from step 2" in result.err
    assert losses(run) == straight


def test_directory_that_is_no_run(tiny: Tiny) -> None:
    empty = str(tiny.root / "empty")
    for command in (["predict", empty, "a ___"], ["eval", empty]):
        refused(tiny.cli(*command), empty, "no run")
    refused(tiny.cli("plot", empty), "No metrics.jsonl", empty)


def test_a_model_that_lacks_what_will_be_asked_of_it() -> None:
    """The error comes when the run is made, and not from a trace in the middle of it."""

    class Bare(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.kernel = nnx.Param(jnp.zeros(()), axes=())

    run: Any = SimpleNamespace(
        abstract_model=Bare(nnx.Rngs(0)), feature_converter=Encoder(), completer=None
    )
    lacks = "Bare has no config, padding, weights, initial_carry, loss: protocols.Model"
    with pytest.raises(ValueError, match=lacks):
        preflight.parts_complete(run)


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--gin.DTYPE='float17'", "Config.dtype (DTYPE) must be a kind of number"),
        ("--gin.schedules.rsqrt.scale='x'", "scale must be a number of at least 0, not 'x'"),
        ("--gin.schedules.rsqrt.scale=-1.0", "scale must be a number of at least 0, not -1.0"),
        ("--gin.TRAIN_STEPS=0", "TRAIN_STEPS must be a whole number of at least 1"),
    ],
)
def test_a_wrong_value_is_named_before_any_text_is_read(tiny: Tiny, flag: str, said: str) -> None:
    refused(tiny.train("run", flag), said)
    assert not (tiny.root / "cache").exists()


def test_text_to_text_files_are_not_for_an_encoder(tiny: Tiny) -> None:
    """Formerly this was a KeyError, after the vocabulary and the cache were made."""
    files = {"p.tsv": "inputs\ttargets\na b\tc\n", "p.jsonl": '{"inputs": "a", "targets": "b"}'}
    for name, line in files.items():
        (tiny.root / name).write_text(line)
        result = tiny.cli(
            *("train", "--recipe", "bert-mini", f"--gin.CORPUS={str(tiny.root / name)!r}"),
            *(f"--gin.MODEL_DIR={str(tiny.root / 'run')!r}", "--gin.TRAIN_STEPS=3"),
            f"--gin.CACHE_DIR={str(tiny.root / 'cache')!r}",
        )
        refused(result, "examples of TextToText() are for an encoder-decoder", "CORPUS_FIELD")
    assert not (tiny.root / "cache").exists()


def test_a_damaged_vocabulary_is_named_where_it_is(tmp_path: Path) -> None:
    run_directory.write(epath.Path(tmp_path), config="", vocabulary=ByteVocabulary(0))
    (file,) = (tmp_path / "vocabulary").iterdir()
    file.write_text("{")
    with pytest.raises(ValueError, match=re.escape(str(file))):
        run_directory.read_vocabulary(epath.Path(tmp_path))
