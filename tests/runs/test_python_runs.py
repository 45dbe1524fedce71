"""A run that is made in Python is saved like any other, and opened again."""

from __future__ import annotations

import dataclasses
import functools

import pytest
from flax import nnx

from t5x_like.config import gin_config
from t5x_like.core import partitioning
from t5x_like.data.corpora.user_corpus import user_corpus
from t5x_like.data.dataset import Data
from t5x_like.data.rows.feature_converters import EncoderDecoder
from t5x_like.data.vocabulary_choice import KnownVocabulary
from t5x_like.models import t5
from t5x_like.objectives import preset
from t5x_like.runs.pretraining import pretrain
from t5x_like.runs.run import Options, Phase, Run
from t5x_like.runs.run_text import run_text
from t5x_like.training.optimization import optimizers
from t5x_like.vocabularies.byte import ByteVocabulary

SIZES = {"d_model": 16, "d_ff": 32, "num_heads": 2, "d_kv": 8}
LAYERS = {"num_encoder_layers": 1, "num_decoder_layers": 1}


def made(tmp_path, text, **parts) -> Run:
    return Run(
        **{
            "model_dir": str(tmp_path / "run"),
            "model": functools.partial(t5.T5, config=t5.Config(vocab_size=384, **SIZES, **LAYERS)),
            "data": Data(
                corpus=str(text),
                read_corpus=functools.partial(user_corpus, separator="line", validation=0.1),
                objective=preset("prefix_lm"),
                vocabulary=KnownVocabulary(ByteVocabulary()),
                lengths={"inputs": 64, "targets": 64},
                cache_dir=str(tmp_path / "cache"),
            ),
            "feature_converter": EncoderDecoder(),
            "optimizer": optimizers.adafactor(0.01),
            "layout": partitioning.make_layout({"data": 8}, {"mlp": None}),
            "options": Options(train_steps=2, batch_size=8, eval_period=0),
            "phases": (
                Phase(steps=1, objective=preset("span_corruption")),
                Phase(batch_size=16, lengths={"inputs": 128, "targets": 128}),
            ),
            **parts,
        }
    )


@pytest.mark.slow
def test_it_is_evaluated_asked_and_exported(tmp_path, text, cli) -> None:
    assert pretrain(made(tmp_path, text)).status == "finished"
    run = str(tmp_path / "run")
    for command in (
        ("inspect", run),
        ("eval", run, "--batches", "1"),
        ("predict", run, "a ___ list", "--max_new_tokens", "4"),
        ("export", "--from", run, "--to", str(tmp_path / "exported")),
    ):
        result = cli(*command)
        assert result.status == 0, result.err


def test_the_text_says_what_the_run_is(tmp_path, text) -> None:
    """UL2 has seven denoisers of one class: each has a scope of its own."""
    run = made(tmp_path, text)
    run = dataclasses.replace(run, data=dataclasses.replace(run.data, objective=preset("ul2")))
    gin_config.load_text(run_text(run))
    again = gin_config.build(Run)
    assert again.data.chosen_objective == run.data.objective
    assert repr(again.data.objective) == repr(run.data.objective)
    assert (again.options, again.phases) == (run.options, run.phases)
    assert again.feature_converter == run.feature_converter
    assert again.data.read_corpus(str(text)).held_out == 0.1
    assert again.model(rngs=nnx.Rngs(0)).config == run.model.keywords["config"]
    assert again.layout.rules == run.layout.rules
    assert dict(again.layout.mesh.shape) == {"data": 8}


def test_what_no_file_could_import_is_named(tmp_path, text) -> None:
    config = t5.Config(vocab_size=384, **SIZES, **LAYERS)
    run = made(tmp_path, text, model=lambda rngs: t5.T5(config, rngs=rngs))
    with pytest.raises(ValueError, match="has no name that a gin file could import"):
        run_text(run)
