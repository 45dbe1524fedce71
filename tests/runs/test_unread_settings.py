"""A setting of the user changes the run, or an error names it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import gin
import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from t5x_like.config import gin_config
from t5x_like.runs.run import Run
from t5x_like.runs.settings import gin_run, unread_settings

OTHERS = {
    # A run has no such parts of its own.
    "CORPUS": "text/*.txt",
    "MIXTURE_OR_TASK_NAME": "stdlib_docs.token_deletion",
    "MIXTURE_OR_TASK_MODULE": "json",
    "VOCABULARY": "bytes",
    "TEACHER_DIR": "runs/electra-mini",
    "CACHE_DIR": "caches",
    "MODEL_DIR": "runs/other",
    "CORPUS_FIELD": "body",
    "CORPUS_SEPARATOR": "file",
    "CORPUS_COLUMNS": ("label", "text"),
    "CORPUS_LABELS": ["no", "yes"],
    "SENTENCES": "lines",
    "VOCAB_TYPE": "characters",
    "DTYPE": "float16",
    "OBJECTIVE": "mass_style",
    "FROZEN": ("embedding",),
    "LAYER_DECAY": 0.5,
    "GRADIENT_CLIP": 0.25,
    "EMA_DECAY": 0.5,
    "REUSE_LEN": 8,
    "CLAMP_LEN": 7,
    "INPUT_SEGMENTS": True,
    "TRAIN_TOKENS": 10_000_000,
    "WARMUP_TOKENS": 100_000,
    "RANDOM_NUMBERS": "rbg",
    "COMPILER_OPTIONS": {"xla_cpu_enable_fast_math": True},
}
"""Other values of macros, where the usual ones do not say what would be one."""

PARTS = {"ADAPT", "COMPLETER", "INIT_FROM", "LAYOUT", "PHASES", "REMAT", "TEACHER"}
"""Macros that stand for parts, such as `@init_from.InitFrom()`, even where they are empty."""

RUNS = ["runs/local.gin"]
RUNS += [f"recipes/{kind}-mini.gin" for kind in ("bert", "xlnet", "distilbert", "electra", "gpt")]


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    yield
    gin.clear_config()


def loaded(file: str, *bindings: str) -> Run:
    """The run that `t5x_like train` makes of a command line."""
    return gin_run.load([file], bindings)[0]


def what_runs(run: Run) -> str:
    """Everything that decides what a run does, as text."""
    model = nnx.eval_shape(lambda: run.model(rngs=nnx.Rngs(0)))
    shapes = nnx.to_pure_dict(nnx.state(model, nnx.Param))
    toy = {"kernel": jnp.ones([2, 3]), "bias": jnp.ones(3)}
    assert run.optimizer is not None
    rule = jax.make_jaxpr(run.optimizer.update)(toy, run.optimizer.init(toy), toy)
    data = run.data
    parts = [
        model, shapes, run.feature_converter, rule, run.layout, run.options, run.model_dir,
        data.lengths, data.mixture_or_task_name, data.mixture_or_task_module, data.corpus,
        data.corpus_exponent, data.chosen_objective, data.sentences, data.vocabulary,
        data.cache_dir, data.workers,
        gin.get_bindings("user_corpus.user_corpus"), run.init_from, run.completer,
        [(start, part.options, part.data.lengths, part.data.chosen_objective)
         for start, part in run.in_phases()],
    ]  # fmt: skip
    return re.sub(r" at 0x[0-9a-f]+", "", "\n".join(map(str, parts)))


def macros(file: str) -> dict[str, Any]:
    """The macros that a user can bind, with their values; references to parts of a run are not."""
    gin_config.load([file])
    return {
        name: values["value"]
        for (name, selector), values in gin.config._CONFIG.items()
        if selector == "gin.macro" and "@" not in repr(values["value"]) and name not in PARTS
    }


def other(name: str, value: Any) -> Any:
    if name in OTHERS:
        return OTHERS[name]
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case float():
            return value / 2 or 0.25
        case dict():
            return {key: number + 8 for key, number in value.items()}
        case str():
            return f"{value}-other"
        case None:
            return 7
    raise AssertionError(f"say in OTHERS what else {name}={value!r} could be")


@pytest.mark.slow
@pytest.mark.parametrize("file", RUNS)
def test_every_macro_changes_what_runs_or_is_refused(file: str) -> None:
    """All macros of the first two files, and those of the others that the first two lack."""
    usual = what_runs(loaded(file))
    silent, refused = [], []
    known = {} if file in RUNS[:2] else {**macros(RUNS[0]), **macros(RUNS[1])}
    for name, value in macros(file).items():
        if name in known:
            continue
        try:
            found = what_runs(loaded(file, f"{name}={other(name, value)!r}"))
        except ValueError as error:
            refused.append(f"{name}: {error}")
            continue
        if found == usual:
            silent.append(name)
    assert not silent
    # Most are neither refused nor wrong.
    assert len(refused) <= 19, refused


@pytest.mark.parametrize(
    ("bindings", "said"),
    [
        (["mlm.MaskedLM.masked_rate=0.3"], "nothing reads mlm.MaskedLM.masked_rate"),
        (["schedules.linear.warmup_steps=4"], "nothing reads schedules.linear.warmup_steps"),
        (["bert.Config.d_model=64"], "nothing reads bert.Config.d_model"),
        (["long/run.Phase.steps=4"], "nothing reads long/run.Phase.steps"),
        (["VOCABULARY='bytes'", "VOCAB_SIZE=300"], "VOCAB_SIZE has no effect"),
        (
            ["VOCABULARY='bytes'", "vocabulary_choice.VocabularyChoice.character_coverage=1.0"],
            "character_coverage has no effect",
        ),
        (["EVAL_PERIOD=0", "EVAL_BATCHES=3"], "EVAL_PERIOD is 0"),
        (["CORPUS_VALIDATION=0.5"], "CORPUS is not set"),
        (["dataset.Data.corpus_exponent=0.5"], "CORPUS is not a mixture"),
        (
            ["MIXTURE_OR_TASK_NAME='stdlib_docs.prefix_lm'", "OBJECTIVE='deshuffling'"],
            "OBJECTIVE has no effect",
        ),
        (
            [
                "MIXTURE_OR_TASK_NAME='stdlib_docs.prefix_lm'",
                "span_corruption.SpanCorruption.noise_density=0.5",
            ],
            "nothing reads span_corruption.SpanCorruption.noise_density",
        ),
        (["OBJECTIVE='span_coruption'"], "nearest: span_corruption"),
        (["mlm.MaskedLN.masked_rate=0.3"], "no MaskedLN in t5x_like.objectives.mlm; nearest"),
        (["TRAIN_STEPS=-1"], "TRAIN_STEPS must be a whole number of at least 1, not -1"),
    ],
)
def test_what_nothing_reads_is_named(bindings: Sequence[str], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        loaded("runs/local.gin", *bindings)


@pytest.mark.parametrize(
    "name", ["OBJECTIVE='{}'", "MIXTURE_OR_TASK_NAME='stdlib_docs.{}'"], ids=["macro", "task"]
)
def test_fields_change_an_objective_wherever_it_is_named(name: str) -> None:
    fields = {
        "span_corruption": ("span_corruption.SpanCorruption.noise_density=0.5", "density=0.5"),
        "drop_spans": ("span_corruption.DropSpans.mean_noise_span_length=9.0", "length=9.0"),
        "bart": ("text_infilling.TextInfilling.rate=0.1", "rate=0.1"),
        "ul2": ("noise_masks.SuffixNoise.density=0.25", "SuffixNoise(density=0.25)"),
        "prefix_lm": ("noise_masks.SuffixNoise.density=0.25", "SuffixNoise(density=0.25)"),
    }
    for preset, (binding, said) in fields.items():
        run = loaded("runs/local.gin", name.format(preset), "TASK_FEATURE_LENGTHS=None", binding)
        (objective,) = run.data.task_objectives()
        assert said in repr(objective)


def test_a_file_of_the_users_may_serve_several_runs(tmp_path) -> None:
    """A note names settings that another one makes useless; an unknown setting is an error."""
    mine = tmp_path / "mine.gin"
    mine.write_text("include 'runs/local.gin'\nCORPUS_VALIDATION = 0.5\nEVAL_BATCHES = 7\n")
    gin_config.load([str(mine)], ["EVAL_PERIOD=0"])
    notes = unread_settings.check(gin_config.build(Run), gin_config.given_settings())
    assert [note.partition(" of ")[0] for note in notes] == ["EVAL_BATCHES", "CORPUS_VALIDATION"]
    mine.write_text("include 'runs/local.gin'\nMY_OWN = 3\n")
    gin_config.load([str(mine)])
    with pytest.raises(ValueError, match=f"nothing reads MY_OWN of {mine}"):
        unread_settings.check(gin_config.build(Run), gin_config.given_settings())


def test_a_saved_configuration_may_be_given_whole(tmp_path) -> None:
    gin_config.load(["runs/local.gin"])
    (tmp_path / "config.gin").write_text(gin_config.config_text())
    assert what_runs(loaded(str(tmp_path / "config.gin"))) == what_runs(loaded("runs/local.gin"))


def test_options_of_files_are_for_files_that_have_use_for_them(tmp_path) -> None:
    for name, line in (("a.txt", "text"), ("b.jsonl", '{"text": "a", "body": "b"}')):
        (tmp_path / name).write_text(f"{line}\n")
    (tmp_path / "c.tsv").write_text("inputs\ttargets\na\tb\n")
    refused = {
        "a.txt": {"CORPUS_FIELD='body'"},
        "b.jsonl": {"CORPUS_SEPARATOR='line'"},
        "c.tsv": {"CORPUS_SEPARATOR='line'", "SENTENCES='de'", "OBJECTIVE='prefix_lm'"},
    }
    every = {"CORPUS_VALIDATION=0.5", "SENTENCES='de'", "OBJECTIVE='prefix_lm'"}
    every |= set().union(*refused.values())
    for name, settings in refused.items():
        for setting in every:
            bindings = [f"CORPUS={str(tmp_path / name)!r}", setting]
            if name == "c.tsv" and setting.startswith("CORPUS_FIELD"):
                continue  # the field makes it plain text
            if setting in settings:
                with pytest.raises(ValueError, match=f"{setting.partition('=')[0]} has no effect"):
                    loaded("runs/local.gin", *bindings)
            else:
                loaded("runs/local.gin", *bindings)


def test_a_file_of_an_objective_is_a_name_now() -> None:
    with pytest.raises(
        ValueError, match=r"an objective is named, --gin.OBJECTIVE=\"'drop_spans'\""
    ):
        gin_config.load(["runs/local.gin", "objectives/drop_spans.gin"])
