"""The mini recipes: their first losses are pinned; one of each family is resumed and exported.

A change that moves a loss changes everybody's training. If that is what it is for,
`WRITE_GOLDEN=1 tests/run.sh -- tests/runs/test_mini_recipes.py` writes the new losses.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import pytest
from documents import write_documents
from tiny_run import Result, assert_evaluated, assert_same_state, losses

from t5x_like.config import gin_config, gin_files
from t5x_like.core.partitioning import make_layout
from t5x_like.evaluation.spaces import word_vectors
from t5x_like.inference.fill_blanks import has_blank
from t5x_like.runs import saved_model
from t5x_like.runs.pretraining import pretrain
from t5x_like.runs.run import Run
from t5x_like.runs.trained import trained_run
from t5x_like.runs.trained.held_out_texts import held_out_texts
from t5x_like.runs.trained.samples import Continuation, Guesses, Marks, samples

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parent / "golden"
STEPS, PHASE, STOP, ROWS = 6, 3, 4, 8
MINIS = sorted(name for name in gin_files.published_recipes() if name.endswith("-mini"))
FAMILIES = "albert bart bert distilbert electra gpt2 modernbert roberta spanbert t5 xlnet".split()
RESUMED = ("bert", "distilbert", "electra", "t5", "xlnet")
"""Phases, a teacher, samples, an encoder-decoder, memory: the other families resume like these."""
FOLLOWS = {
    "distilbert-mini": ("TEACHER_DIR", "bert-mini"),
    "legal_bert-mini": ("INIT_DIR", "bert-mini"),
    "longformer-mini": ("INIT_DIR", "roberta-mini"),
}
KEEPS_ITS_VOCABULARY = ("byt5-mini", "canine-mini", *FOLLOWS)
FIRST_PHASE = {
    "bert-mini": "short/run.Phase.steps",
    **{
        f"{name}-mini": "FIRST_STEPS"
        for name in ("modernbert", "neobert", "eurobert", "ettin_decoder")
    },
}
NO_RAMP = "byt5-mini longt5-mini mt5-mini t5-mini t5_1_1-mini ul2-mini ulmfit-mini".split()


@dataclasses.dataclass(frozen=True)
class Minis:
    """Runs of the mini recipes below `folder`, on one text."""

    folder: Path
    text: Path

    @functools.cache  # noqa: B019  few, and for one module
    def trained(self, name: str) -> Path:
        """The run of a recipe, made when it is first needed."""
        return self.train(name, self.folder / name)

    def train(self, name: str, run: Path) -> Path:
        """The first steps of a recipe that has few rows, a short ramp and short phases."""
        macros = {"MODEL_DIR": run, "CACHE_DIR": self.folder / "cache", "CORPUS": self.text}
        if name not in KEEPS_ITS_VOCABULARY:
            macros["VOCABULARY"] = GOLDEN / "vocabulary"
        if name in FOLLOWS:
            macro, before = FOLLOWS[name]
            macros[macro] = self.trained(before)
        bindings = [f"{macro}={str(value)!r}" for macro, value in macros.items()]
        if name not in NO_RAMP:
            bindings.append("WARMUP_STEPS=2")
        if name in FIRST_PHASE:  # a setting of the run's configuration, which `eval` reads
            bindings.append(f"{FIRST_PHASE[name]}={PHASE}")
        gin_config.load([str(gin_files.find_recipe(name))], bindings)
        whole = gin_config.without_gin(gin_config.build(Run))
        evaluated = STEPS if name.removesuffix("-mini") in FAMILIES else 0
        periods = {"eval_period": evaluated, "checkpoint_period": STOP, "log_period": 1}
        options = dataclasses.replace(
            whole.options, train_steps=STEPS, batch_size=ROWS, eval_batches=2, **periods
        )
        phases = [
            dataclasses.replace(one, steps=one.steps and PHASE, batch_size=None)
            for one in whole.phases
        ]
        layout = make_layout({"data": 1}, devices=jax.devices()[:1])  # compiles in half the time
        short = dataclasses.replace(whole, options=options, phases=phases, layout=layout)
        pretrain(short, gin_config.config_text())
        return run


@pytest.fixture(scope="module")
def minis(tmp_path_factory: pytest.TempPathFactory) -> Minis:
    folder = tmp_path_factory.mktemp("minis")
    return Minis(folder, write_documents(folder / "text.txt"))


@pytest.mark.parametrize("name", MINIS)
def test_the_first_losses_are_pinned(name: str, minis: Minis) -> None:
    found = losses(minis.trained(name))
    assert list(found) == list(range(1, STEPS + 1))
    golden = GOLDEN / f"{name}.json"
    if os.environ.get("WRITE_GOLDEN"):
        golden.write_text(json.dumps([round(loss, 5) for loss in found.values()]) + "\n")
    # Another processor or version of XLA adds up in another order.
    assert list(found.values()) == pytest.approx(json.loads(golden.read_text()), rel=2e-3)


@pytest.mark.parametrize(
    "family",
    [
        pytest.param(name, marks=[] if name in RESUMED else [pytest.mark.matrix])
        for name in FAMILIES
    ],
)
def test_stopped_and_resumed_it_is_the_same(family: str, minis: Minis, tmp_path: Path) -> None:
    run = minis.trained(f"{family}-mini")
    resumed = Path(shutil.copytree(run, tmp_path / "resumed"))
    shutil.rmtree(resumed / "checkpoints" / str(STEPS))  # like a run that was killed before
    minis.train(f"{family}-mini", resumed)
    assert losses(resumed) == losses(run)
    assert_same_state(run, resumed, rows=ROWS)


@pytest.mark.parametrize("family", FAMILIES)
def test_it_is_evaluated_and_goes_out_and_comes_back(
    family: str, minis: Minis, tmp_path: Path, cli: Callable[..., Result]
) -> None:
    run, out = minis.trained(f"{family}-mini"), tmp_path / "out"
    assert_evaluated(run, cli, rows=ROWS)
    exported = cli("export", f"--from={run}", f"--to={out}")
    assert exported.status == 0, exported.err
    configs = sorted(out.rglob("config.json"))
    assert configs
    for config in configs:
        architecture = json.loads(config.read_text())["architectures"][0]
        back = tmp_path / architecture
        assert cli("import", f"--from={config.parent}", f"--to={back}").status == 0
        assert saved_model.read(str(back)).vocabulary is not None
        if importlib.util.find_spec("transformers"):
            opens(config.parent, architecture)


@pytest.mark.parametrize("family", [*FAMILIES, "ul2"])
def test_its_held_out_texts_have_the_blanks_of_its_objective(family: str, minis: Minis) -> None:
    trained = trained_run.load(str(minis.trained(f"{family}-mini")))
    found = held_out_texts(trained.in_phase().run, 3)
    assert len(set(found)) == 3
    blank = {"t5": "<extra_id_0>", "ul2": "<extra_id_0>", "gpt2": ""}.get(family, "[MASK]")
    for text, truth in found:
        assert blank in text
        assert truth
        assert not has_blank(truth)


@pytest.mark.parametrize("family", ["bert", "electra", "gpt2", "xlnet"])
def test_its_samples_have_the_answers_of_the_model(family: str, minis: Minis) -> None:
    trained = trained_run.load(str(minis.trained(f"{family}-mini")))
    (phase,) = samples(trained, 2)
    assert phase.number == len(trained.run.in_phases())
    assert len({sample.place for sample in phase.samples}) == 2
    for sample in phase.samples:
        row = sample.features
        match sample.answer:
            case Guesses(truths, chances, best, best_chances):
                other = {"inputs": "encoder_input_tokens"}
                other["token_type_ids"] = "encoder_token_type_ids"
                alone = {other.get(name, name): value[None] for name, value in row.items()}
                alone["encoder_attention_mask"] = np.ones_like(alone["encoder_input_tokens"])
                logits = jax.jit(lambda model, batch: model.logits(batch))(trained.model, alone)[0]
                if family == "bert":
                    logits = logits[row["masked_positions"]]
                p = np.asarray(jax.nn.softmax(logits[:, : trained.vocabulary.vocab_size]))
                np.testing.assert_array_equal(truths, row["masked_targets"])
                np.testing.assert_allclose(chances, p[np.arange(len(p)), truths], rtol=1e-3)
                np.testing.assert_allclose(best_chances[:, 0], p.max(axis=1), rtol=1e-3)
                assert best.shape == best_chances.shape == (len(truths), 3)
            case Marks(read, originals, chances):
                places = row["masked_positions"]
                np.testing.assert_array_equal(originals[places], row["masked_targets"])
                np.testing.assert_array_equal(np.delete(read - row["inputs"], places), 0)
                np.testing.assert_array_equal(np.delete(read - originals, places), 0)
                assert ((chances > 0) & (chances < 1)).all()
            case Continuation(tokens):
                assert 0 < len(tokens) <= len(row["targets"]) <= len(row["inputs"])
            case other:
                raise AssertionError(f"no answer: {other}")


def test_vectors_of_words_go_out_as_word2vec_has_them(
    minis: Minis, tmp_path: Path, cli: Callable[..., Result]
) -> None:
    run, file = minis.trained("skip_gram-mini"), tmp_path / "words.bin"
    command = ("export", f"--from={run}", f"--to={file}", "--vectors")
    done = cli(*command)
    assert done.status == 0, done.err
    found, saved = word_vectors.read(file), saved_model.read(str(run))
    assert f"vectors of {len(found.words):,} words, 128 numbers each" in done.out
    assert saved.vocabulary is not None
    table = np.asarray(saved.params["embedding"]["table"])
    for word, vector in [*zip(found.words, found.vectors, strict=True)][:20]:
        (row,) = saved.vocabulary.encode(word)
        np.testing.assert_array_equal(vector, table[row])
    assert "is there already" in cli(*command).err
    assert cli(*command, "--overwrite").status == 0
    assert "--push is for models" in cli(*command, "--push=me/mine").err


def opens(directory: Path, architecture: str) -> None:
    """Asserts that transformers finds exactly the weights it needs, and the tokenizer."""
    import transformers

    cls = getattr(transformers, architecture)
    _, report = cls.from_pretrained(directory, output_loading_info=True)
    assert not any(report[part] for part in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    ids = tokenizer("bafodo tu gemi")["input_ids"]
    assert tokenizer.decode(ids, skip_special_tokens=True).strip() == "bafodo tu gemi"


def test_every_mini_recipe_has_its_losses_pinned() -> None:
    assert sorted(path.stem for path in GOLDEN.glob("*.json")) == MINIS
