"""The body of every family, under a new head of that family."""

from __future__ import annotations

import dataclasses
import functools
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import optax
import pytest
from flax import nnx

from t5x_like.core.partitioning import make_layout
from t5x_like.models import (
    albert,
    bart,
    bart_decoder,
    bert,
    bert_decoder,
    canine,
    canine_pretraining,
    deberta_v3,
    distilbert,
    electra,
    eurobert,
    gpt,
    longformer,
    modernbert,
    modernbert_decoder,
    neobert,
    prefix_lm,
    t5,
    xlnet,
)
from t5x_like.models.answering import Answering
from t5x_like.models.double_heads import DoubleHeads
from t5x_like.models.finetuned import FineTuned
from t5x_like.runs import saved_model
from t5x_like.runs.settings.finetuning.finetuned_model import as_saved, of_saved
from t5x_like.runs.settings.finetuning.reading import Reading
from t5x_like.runs.settings.finetuning.regularising import with_r_drop
from t5x_like.training import step
from t5x_like.training.optimization import layerwise
from t5x_like.training.optimization.layer_patterns import LayerPattern
from t5x_like.training.optimization.parameter_paths import by_path

SIZES = {"vocab_size": 50, "d_model": 16, "d_ff": 32, "num_heads": 2}
LAYERS = {**SIZES, "num_layers": 1}
MODELS: dict[str, functools.partial[Any]] = {
    "bert": functools.partial(bert.Bert, bert.Config(**LAYERS)),
    "albert": functools.partial(albert.Albert, albert.Config(**LAYERS)),
    "electra": functools.partial(electra.Electra, electra.Config(**LAYERS)),
    "canine": functools.partial(
        canine_pretraining.CanineC,
        canine.Config(**LAYERS, max_positions=20, num_buckets=20, num_hashes=2),
    ),
    "deberta-v2": functools.partial(
        deberta_v3.DebertaV3, deberta_v3.Config(**LAYERS | {"num_layers": 4})
    ),
    "longformer": functools.partial(
        longformer.Longformer, longformer.Config(**LAYERS, window=4, tied_global=True)
    ),
    "distilbert": functools.partial(distilbert.DistilBert, distilbert.Config(**LAYERS)),
    "modernbert": functools.partial(modernbert.ModernBert, modernbert.Config(**LAYERS)),
    "modernbert-decoder": functools.partial(
        modernbert_decoder.ModernBertDecoder, modernbert_decoder.Config(**LAYERS)
    ),
    "neobert": functools.partial(neobert.NeoBert, neobert.Config(**LAYERS)),
    "eurobert": functools.partial(eurobert.EuroBert, eurobert.Config(**LAYERS)),
    "xlnet": functools.partial(xlnet.XLNet, xlnet.Config(**LAYERS)),
    "gpt2": functools.partial(gpt.Gpt, gpt.Config(**LAYERS)),
    "openai-gpt": functools.partial(gpt.Gpt, gpt.Config(**LAYERS | {"d_ff": 64}, pre_norm=False)),
    "bart": functools.partial(bart.Bart, bart.Config(**SIZES)),
    "t5": functools.partial(t5.T5, t5.Config(**SIZES)),
}


LACKING = {
    "bart": ("tags",),
    "openai-gpt": ("tags", "spans"),
    "modernbert-decoder": ("tags", "spans"),
    "neobert": ("tags", "spans"),
    "eurobert": ("spans",),
}


def parameters(model: nnx.Module) -> dict[str, tuple[int, ...]]:
    """{path: shape}, as `t5x_like inspect` shows paths."""
    leaves = by_path(nnx.to_pure_dict(nnx.state(model, nnx.Param)))
    return {path: leaf.shape for path, leaf in leaves.items()}


def abstract(make: functools.partial[Any]) -> Any:
    return nnx.eval_shape(lambda: make(rngs=nnx.Rngs(0)))


def written(directory: Path, make: functools.partial[Any]) -> Any:
    model = abstract(make)
    state = nnx.to_pure_dict(nnx.state(model, nnx.Param))
    params = jax.tree.map(lambda leaf: np.zeros(leaf.shape, np.float32), state)
    saved_model.write(str(directory), make, params, title="a", vocabulary=None, files=())
    return model


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_the_whole_body_is_taken_and_the_head_is_new(name: str, tmp_path: Path) -> None:
    saved = parameters(written(tmp_path / "saved", MODELS[name]))
    for form in ("classes", "numbers", "tags", "spans"):
        if form in LACKING.get(name, ()):
            with pytest.raises(ValueError, match=r"For(Token|Question).* is not read"):
                of_saved(str(tmp_path / "saved"), form, num_labels=3)
            continue
        tuned = of_saved(str(tmp_path / "saved"), form, num_labels=1 if form == "numbers" else 3)
        model = abstract(tuned.make)
        assert isinstance(model, FineTuned)
        assert (model.answer_form, tuned.model_type) == (form, name)
        sources = tuned.init_from.sources(model)
        assert {*sources.values()} <= {*saved}
        fresh = parameters(model).keys() - sources.keys()
        assert fresh
        assert all(path.startswith("head.") for path in fresh)
        if name == "bert" and form != "tags":
            assert fresh == {"head.out.bias", "head.out.kernel"}  # the pooler is the saved one


@pytest.mark.parametrize("name", ["bert", "xlnet", "gpt2"])
def test_a_body_that_reads_one_text_in_a_row_is_not_given_several(
    name: str, tmp_path: Path
) -> None:
    written(tmp_path / "saved", MODELS[name])
    tuned = of_saved(str(tmp_path / "saved"), "classes", num_labels=3)
    if name == "bert":
        Reading(pack=True).check_model(tuned, None)
        return
    with pytest.raises(ValueError, match=f"a {name} reads one text in a row: leave out pack"):
        Reading(pack=True).check_model(tuned, None)


def test_a_table_that_is_stored_in_two_parts_is_their_sum(tmp_path: Path) -> None:
    """That of a discriminator: the generator's, and the difference from it."""
    make = MODELS["deberta-v2"]
    state = nnx.to_pure_dict(nnx.state(abstract(make), nnx.Param))
    draw = np.random.default_rng(0)
    params = jax.tree.map(lambda leaf: draw.normal(size=leaf.shape).astype(np.float32), state)
    of = by_path(jax.tree.map(np.copy, params))
    saved_model.write(str(tmp_path / "saved"), make, params, title="a", vocabulary=None, files=())
    tuned = of_saved(str(tmp_path / "saved"), "classes", num_labels=2)
    layout = make_layout({"data": 1}, devices=jax.devices()[:1])
    program = step.build(tuned.make, optax.sgd(0.1), layout, step.StepOptions(batch_size=1))
    fresh = program.init(jax.random.key(0)).params
    log: Any = SimpleNamespace(message=lambda line: None)
    got = by_path(tuned.init_from.apply(fresh, program=program, log=log))
    table = "encoder.embedding.tokens.table"
    want = of[f"discriminator.{table}"] + of["difference"]
    np.testing.assert_array_equal(got["body.embedding.tokens.table"], want)
    np.testing.assert_array_equal(got["body.distances"], of["discriminator.encoder.distances"])


@pytest.mark.slow
def test_a_roberta_keeps_its_kind_and_how_it_computes(tmp_path: Path) -> None:
    config = bert.Config(**LAYERS, padding_position=1, sentence_head=False, dtype="bfloat16")
    written(tmp_path / "saved", functools.partial(bert.Bert, config))
    tuned = of_saved(str(tmp_path / "saved"), "classes", num_labels=2)
    model = abstract(tuned.make)
    assert tuned.model_type == "roberta"
    assert tuned.frame.pair == "cls:0 A:0 sep:0 sep:0 B:0 sep:0"
    assert model.config.dtype == "bfloat16"


DECODERS = {
    "PrefixLm has no counterpart": (prefix_lm.PrefixLm, prefix_lm.Config(**SIZES)),
    "of the parts of bert, as a decoder": (bert_decoder.BertDecoder, bert_decoder.Config(**LAYERS)),
    "of the parts of bart, as a decoder": (bart_decoder.BartDecoder, bart_decoder.Config(**SIZES)),
}


@pytest.mark.parametrize("message", DECODERS)
def test_other_decoders_are_refused(message: str, tmp_path: Path) -> None:
    written(tmp_path / "saved", functools.partial(*DECODERS[message]))
    with pytest.raises(ValueError, match=message):
        of_saved(str(tmp_path / "saved"), "classes", num_labels=2)


def test_the_head_that_searches_is_xlnets(tmp_path: Path) -> None:
    saved = tmp_path / "xlnet"
    written(saved, MODELS["xlnet"])
    tuned = of_saved(str(saved), "searched spans", num_labels=1)
    assert isinstance(abstract(tuned.make), Answering)
    assert of_saved(str(saved), "spans", num_labels=1).form == "spans"
    written(tmp_path / "tuned", tuned.make)
    again = of_saved(str(tmp_path / "tuned"), "spans", num_labels=1, reinit_layers=1)
    assert (again.form, again.init_from.skip[0]) == ("searched spans", "^head\\.")
    written(tmp_path / "bert", MODELS["bert"])
    with pytest.raises(ValueError, match=r"search is for XLNet, .* has a Bert: leave it out"):
        of_saved(str(tmp_path / "bert"), "searched spans", num_labels=1)


def test_a_gpt_learns_choices_with_two_heads_and_writes_no_texts(tmp_path: Path) -> None:
    directory = str(tmp_path / "saved")
    saved = parameters(written(tmp_path / "saved", MODELS["gpt2"]))
    tuned = of_saved(directory, "choices", num_labels=1)
    model = abstract(tuned.make)
    assert isinstance(model, DoubleHeads)
    heads = {"head.out.kernel", "head.out.bias"}
    assert {*parameters(model)} == {f"body.{path}" for path in saved} | heads
    again = of_saved(directory, "choices", num_labels=1, reinit_layers=1)
    assert again.init_from.skip[0] == "^head\\.out"
    with pytest.raises(ValueError, match=r"does not write a text for another.*name the kind"):
        as_saved(directory)
    with pytest.raises(ValueError, match="r_drop is not for the choices of a DoubleHeads"):
        with_r_drop(tuned.make, 1.0, "choices")


@pytest.mark.parametrize("name", MODELS)
def test_the_last_layers_and_the_pooler_start_afresh(name: str, tmp_path: Path) -> None:
    both = {"num_encoder_layers": 3, "num_decoder_layers": 2}
    depth = both if name in ("bart", "t5") else {"num_layers": 2}
    config = dataclasses.replace(MODELS[name].args[0], **depth)
    written(tmp_path / "saved", functools.partial(MODELS[name].func, config))

    def fresh(layers: int) -> dict[str, Any]:
        tuned = of_saved(str(tmp_path / "saved"), "classes", num_labels=3, reinit_layers=layers)
        state = nnx.state(abstract(tuned.make), nnx.Param)
        numbers = layerwise.numbers_of(state)
        skipped = [LayerPattern.read(text) for text in tuned.init_from.skip]
        chosen: dict[str, Any] = {}
        for path in by_path(nnx.to_pure_dict(state)):
            masks = [
                pattern.chosen(numbers.get(path))
                for pattern in skipped
                if re.search(pattern.expression, path)
            ]
            if any(mask.any() for mask in masks):
                chosen[path] = numbers[path][masks[0]].tolist() if path in numbers else True
        return chosen

    if name == "albert":
        with pytest.raises(ValueError, match="layers of albert share their parameters"):
            fresh(1)
        return
    heads = {*fresh(0)}
    biased = name not in ("gpt2", "openai-gpt", "modernbert-decoder")
    assert heads == {"head.out.kernel"} | ({"head.out.bias"} if biased else set())
    one = {path: of for path, of in fresh(1).items() if path not in heads}
    poolers = {path for path in one if path.startswith("head.pooler.")}
    layers = {path: of for path, of in one.items() if path not in poolers}
    assert len(layers) > 8
    # A layer of characters is before those of molecules.
    last = 2 if name == "canine" else 1
    assert all(np.ravel(of).tolist() == [last] for of in layers.values()), layers
    assert all(("decoder" in path) == (name in ("bart", "t5")) for path in layers)
    message = rf"from 0 to {last + 1}, the layers of the (model|decoder): {last + 2}"
    with pytest.raises(ValueError, match=message):
        fresh(last + 2)
