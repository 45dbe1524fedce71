"""Every recipe builds abstractly and has the figures of its table; the minis follow them.

`PUBLISHED` are those of papers and of their published code, `OURS` those that are partly our own.
What recipes set besides is in test_settings.py.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import NamedTuple

import pytest

from t5x_like.cli import recipes
from t5x_like.config import gin_config, gin_files, presets
from t5x_like.runs.checks import preflight
from t5x_like.runs.run import Run
from t5x_like.training import step


class Figures(NamedTuple):
    """Of a run.

    `stretches` are (steps, rows, tokens of a row), `rates` {step: learning rate}, `trained` tokens
    of the whole run.
    """

    parameters: int
    stretches: list[tuple[int, int, int]]
    rates: dict[int, float]
    trained: float


BERT = [(900_000, 256, 128), (100_000, 256, 512)]
# A ramp over 10,000 steps; then what is left of a line from step 0.
BERT_RATES = {0: 0, 5_000: 5e-5, 10_000: 0.99e-4, 500_000: 5e-5, 1_000_000: 0}
T5 = [(1_000_000, 2048, 512)]
LONGT5 = [(1_000_000, 128, 4096)]
MT5 = [(1_000_000, 1024, 1024)]
RSQRT = {0: 0.01, 10_000: 0.01, 40_000: 0.005, 1_000_000: 0.001}
XLNET = {20_000: 2e-4, 40_000: 4e-4, 270_000: 4e-4 * 0.5005, 500_000: 4e-7}
GPT2 = {1000: 1.25e-4, 2000: 2.5e-4, 51_000: 1.25e-4, 100_000: 0}


def albert(parameters: int, steps: int, trained: float) -> Figures:
    left = 1 - 3125 / steps
    rates = {0: 0, 3124: 0.00176 * 3124 / 3125, 3125: 0.00176 * left, steps: 0}
    return Figures(parameters, [(steps, 4096, 512)], rates, trained)


def canine(parameters: int) -> Figures:
    rates = {0: 0, 1_550: 0.009, 3_100: 0.018 * 0.975, 62_000: 0.009, 124_000: 0}
    return Figures(parameters, [(124_000, 512, 2048)], rates, 130e9)


def deberta(parameters: int) -> Figures:
    rates = {5_000: 1e-4, 10_000: 2e-4, 505_000: 1e-4, 1_000_000: 0}
    return Figures(parameters, [(1_000_000, 2048, 512)], rates, 1.05e12)


def deberta_v3(parameters: int, peak: float) -> Figures:
    rates = {5_000: peak / 2, 10_000: peak, 255_000: peak / 2, 500_000: 0}
    return Figures(parameters, [(500_000, 8192, 512)], rates, 2.1e12)


def ettin(
    parameters: int, steps: tuple[int, int, int], warmup: int, peak: float, *, trained: float
) -> Figures:
    """`steps` of the parts: 1,024 tokens, longer rows, better text."""
    first, long, last = steps
    lengths = [(first, 4608, 1024), (long, 576, 7999), (last, 576, 7999)]
    middle, end = first + long, first + long + last
    quarter = first + long / 4  # half of the fall: 1 - sqrt(1 / 4)
    rates = {warmup / 2: peak / 2, warmup: peak, first - 1: peak, quarter: peak * 0.75}
    rates |= {middle: peak / 2, middle + last / 4: peak * 0.26, end: peak * 0.02}
    return Figures(parameters, lengths, rates, trained)


def longformer(parameters: int) -> Figures:
    rates = {250: 1.5e-5, 500: 3e-5, 32_750: 3.75e-6, 65_000: 0}
    return Figures(parameters, [(65_000, 64, 4096)], rates, 17e9)


def electra(parameters: int, shape: tuple[int, int, int], peak: float, trained: float) -> Figures:
    total = shape[0]
    steps = (0, 5_000, 10_000, total // 2, total)
    rates = {step: peak * min(1, step / 10_000) * (1 - step / total) for step in steps}
    return Figures(parameters, [shape], rates, trained)


PUBLISHED = {
    "albert_base_v1": albert(11_813_810, 125_000, 262e9),
    "albert_large_v1": albert(17_847_474, 125_000, 262e9),
    "albert_xlarge_v1": albert(59_021_490, 125_000, 262e9),
    "albert_xxlarge_v1": albert(223_158_450, 1_500_000, 3.15e12),
    "bert_base": Figures(110_106_428, BERT, BERT_RATES, 42.6e9),
    "bert_large": Figures(336_226_108, BERT, BERT_RATES, 42.6e9),
    "bert_wwm_large": Figures(336_226_108, BERT, BERT_RATES, 42.6e9),
    "byt5_small": Figures(299_637_760, MT5, RSQRT, 1.05e12),
    "byt5_base": Figures(581_653_248, MT5, RSQRT, 1.05e12),
    "byt5_large": Figures(1_228_183_552, MT5, RSQRT, 1.05e12),
    "byt5_xl": Figures(3_737_801_728, MT5, RSQRT, 1.05e12),
    "byt5_xxl": Figures(12_906_899_328, MT5, RSQRT, 1.05e12),
    "electra_small": electra(14_196_219, (1_000_000, 128, 128), 5e-4, 16.4e9),
    "electra_base": electra(119_386_427, (766_000, 256, 512), 2e-4, 100e9),
    "electra_large": electra(354_655_291, (1_750_000, 2048, 512), 2e-4, 1.84e12),
    "mt5_small": Figures(300_176_768, MT5, RSQRT, 1.05e12),
    "mt5_base": Figures(582_401_280, MT5, RSQRT, 1.05e12),
    "mt5_large": Figures(1_229_581_312, MT5, RSQRT, 1.05e12),
    "mt5_xl": Figures(3_742_619_648, MT5, RSQRT, 1.05e12),
    "mt5_xxl": Figures(12_921_057_280, MT5, RSQRT, 1.05e12),
    "roberta_base": Figures(
        124_697_433, [(500_000, 8192, 512)], {24_000: 6e-4, 262_000: 3e-4, 500_000: 0}, 2.1e12
    ),
    "roberta_large": Figures(
        355_412_057, [(500_000, 8192, 512)], {30_000: 4e-4, 265_000: 2e-4, 500_000: 0}, 2.1e12
    ),
    "scibert": Figures(
        110_543_220,
        [(500_000, 256, 128), (300_000, 64, 512)],
        {500: 5e-5, 250_000: 5e-5, 500_050: 5e-6, 650_000: 5e-6, 800_000: 0},
        26.2e9,
    ),
    "spanbert_base": Figures(
        110_300_480,
        [(2_400_000, 256, 512)],
        {5_000: 5e-5, 1_200_000: 5e-5, 2_400_000: 0},
        315e9,
    ),
    "spanbert_large": Figures(
        336_998_976,
        [(2_400_000, 256, 512)],
        {5_000: 5e-5, 1_200_000: 5e-5, 2_400_000: 0},
        315e9,
    ),
    "deberta_base": deberta(139_637_337),
    "deberta_large": deberta(406_789_209),
    "deberta_v3_base": deberta_v3(326_842_213, 6e-4),
    "deberta_v3_large": deberta_v3(719_626_341, 3e-4),
    # A RoBERTa's parameters, and 3,584 more positions.
    "longformer_base": longformer(124_697_433 + 3584 * 768),
    "longformer_large": longformer(355_412_057 + 3584 * 1024),
    "modernbert_base": Figures(
        149_655_232,
        [(374_902, 4608, 1024), (63_578, 576, 8192)],
        {1_907.5: 4e-4, 3_815: 8e-4, 374_901: 8e-4, 374_902: 3e-4, 427_884: 3e-4, 438_480: 3e-7},
        2.019e12,
    ),
    "modernbert_large": Figures(
        395_881_664,
        [(342_629, 4928, 1024), (59_449, 616, 8192)],
        {832: 2.5e-4, 1_664: 5e-4, 342_628: 5e-4, 342_629: 5e-5, 392_170: 5e-5, 402_078: 5e-8},
        2.019e12,
    ),
    # The published code's steps, batches and rates.
    "neobert": Figures(
        245_136_954,
        [(1_000_000, 2048, 1024), (50_000, 512, 4096)],
        {1_000: 5e-5, 2_000: 1e-4, 451_000: 5.5e-5, 900_000: 1e-5, 1_049_999: 1e-5},
        2.2e12,
    ),
    "t5_small": Figures(60_506_624, T5, RSQRT, 1.05e12),
    "t5_base": Figures(222_903_552, T5, RSQRT, 1.05e12),
    "t5_large": Figures(737_668_096, T5, RSQRT, 1.05e12),
    "t5_3b": Figures(2_851_598_336, T5, RSQRT, 1.05e12),
    "t5_11b": Figures(11_307_321_344, T5, RSQRT, 1.05e12),
    "t5_1_1_small": Figures(76_961_152, T5, RSQRT, 1.05e12),
    "t5_1_1_base": Figures(247_577_856, T5, RSQRT, 1.05e12),
    "t5_1_1_large": Figures(783_150_080, T5, RSQRT, 1.05e12),
    "t5_1_1_xl": Figures(2_849_757_184, T5, RSQRT, 1.05e12),
    "t5_1_1_xxl": Figures(11_135_332_352, T5, RSQRT, 1.05e12),
    "ul2_20b": Figures(19_591_209_984, [(2_000_000, 1024, 512)], RSQRT, 1.05e12),
    "xlnet_large": Figures(360_300_800, [(500_000, 8192, 512)], XLNET, 2.1e12),
}
# Of these the paper has not all: what is said beside them is a choice of ours, or an estimate.
OURS = {
    # Its README has the steps; rates, warm-up and batch are those of version 1.
    "albert_base": albert(11_813_810, 10_000_000, 21e12),
    "albert_large": albert(17_847_474, 3_000_000, 6.3e12),
    "albert_xlarge": albert(59_021_490, 3_000_000, 6.3e12),
    "albert_xxlarge": albert(223_158_450, 3_000_000, 6.3e12),
    # The paper has steps and batch of the large size. Rate and warm-up are of flags that circulate.
    "bart_base": Figures(
        139_420_416, [(500_000, 8000, 512)], {10_000: 4e-4, 255_000: 2e-4, 500_000: 0}, 2.05e12
    ),
    "bart_large": Figures(
        406_291_456, [(500_000, 8000, 512)], {10_000: 4e-4, 255_000: 2e-4, 500_000: 0}, 2.05e12
    ),
    # The paper has steps, batch, length, rate and warm-up, and no code of its pretraining. The
    # parameters are those of the body with its pooler, of pairs, and of characters or subwords.
    "canine_c": canine(132_082_944 + 1_538 + 20_869_120),
    "canine_s": canine(132_082_944 + 1_538 + 119_547 * 769 + 769 * 768 + 2 * 768),
    # The paper has lengths, shares and rate. Batches and the parts' tokens are ours.
    **{
        name: Figures(
            parameters,
            [(1_017_000, 2304, 2048), (42_000, 576, 8192)],
            {1_000: 5e-5, 2_000: 1e-4, 1_017_000: 1e-4, 1_038_000: 5e-5, 1_059_000: 0},
            5e12,
        )
        for name, parameters in (
            ("eurobert_210m", 310_266_624),
            ("eurobert_610m", 755_625_600),
            ("eurobert_2_1b", 2_403_092_736),
        )
    },
    # The published settings have rates, tokens, lengths and the first batch. Their batches have
    # as many texts of up to 7,999 tokens as of 1,024; here a row is as many tokens as it is long.
    **{
        f"ettin_{size}{kind}": ettin(*figures, trained=trained)
        for kind in ("", "_decoder")
        for size, *figures, trained in (
            ("17m", 16_913_600, (387_000, 54_261, 10_853), 6_782, 3e-3, 2e12),
            ("32m", 32_081_344, (382_000, 54_261, 10_853), 6_465, 3e-3, 2e12),
            ("68m", 68_457_664, (377_000, 54_261, 10_853), 5_260, 3e-3, 2e12),
            ("150m", 149_655_232, (371_000, 54_261, 10_853), 4_663, 8e-4, 2e12),
            ("400m", 395_881_664, (363_000, 54_261, 10_853), 1_848, 5e-4, 2e12),
            ("1b", 1_031_314_112, (361_000, 18_087, 3_618), 1_038, 5e-4, 1.8e12),
        )
    },
    # The paper has steps, batch and lengths; the rate is T5's.
    "longt5_local_base": Figures(247_577_856, LONGT5, RSQRT, 0.524e12),
    "longt5_local_large": Figures(783_150_080, LONGT5, RSQRT, 0.524e12),
    "longt5_tglobal_base": Figures(247_587_456, LONGT5, RSQRT, 0.524e12),
    "longt5_tglobal_large": Figures(783_175_168, LONGT5, RSQRT, 0.524e12),
    "longt5_tglobal_xl": Figures(2_849_807_360, LONGT5, RSQRT, 0.524e12),
    # Nothing is published of these but the models: they have the figures of the others.
    "deberta_xlarge": deberta(759_430_233),
    "deberta_v2_xl": deberta(887_871_588),
    "deberta_v2_xxl": deberta(1_567_828_068),
    "deberta_v3_xsmall": deberta_v3(131_339_749, 6e-4),
    "deberta_v3_small": deberta_v3(263_051_365, 6e-4),
    "mdeberta_v3_base": deberta_v3(515_739_513, 6e-4),
    # The paper has 3 epochs and batches of up to 4k, its code the rate and 5 % of warm-up. How many
    # steps that is supposes 1.3 pieces a word.
    "distilbert": Figures(
        66_985_530, [(6200, 4096, 512)], {155: 2.5e-4, 310: 5e-4, 3255: 2.5e-4, 6200: 0}, 13e9
    ),
    # The paper has epochs and no steps, which are ELECTRA's authors' estimate.
    "gpt": Figures(
        116_534_784,
        [(1_921_600, 64, 512)],
        {1000: 1.25e-4, 2000: 2.5e-4, 961_800: 1.25e-4, 1_921_600: 0},
        63e9,
    ),
    # The paper has batch and length; rate and warm-up are GPT's, and steps are ours.
    "gpt2": Figures(124_439_808, [(100_000, 512, 1024)], GPT2, 52.4e9),
    "gpt2_medium": Figures(354_823_168, [(100_000, 512, 1024)], GPT2, 52.4e9),
    "gpt2_large": Figures(774_030_080, [(100_000, 512, 1024)], GPT2, 52.4e9),
    "gpt2_xl": Figures(1_557_611_200, [(100_000, 512, 1024)], GPT2, 52.4e9),
    # The paper has the steps alone: the rate is of BERT's README, all else BERT's.
    "legal_bert": Figures(
        110_106_428,
        [(500_000, 256, 512)],
        {5_000: 1e-5, 10_000: 2e-5 * 0.98, 250_000: 1e-5, 500_000: 0},
        65.5e9,
    ),
    # The paper has the words of the text; the rest is ours.
    "skip_gram": Figures(
        415_200_000,
        [(15_000, 64, 1024)],
        {50: 5e-4, 100: 1e-3, 7_550: 5e-4, 15_000: 0},
        0.983e9,
    ),
    # Its scripts have rows, tokens, rate and schedule; the epochs are ours.
    "ulmfit": Figures(
        44_272_402,
        [(276_000, 64, 95)],
        {0: 4e-3 / 32, 27_600: 4e-3, 276_000: 4e-3 / 32},
        1.68e9,
    ),
    # The paper has the large size alone.
    "xlnet_base": Figures(116_750_336, [(500_000, 8192, 512)], XLNET, 2.1e12),
}
RECIPES = PUBLISHED | OURS
MINIS = (
    "albert bart bert bert_wwm byt5 canine deberta_v3 distilbert electra ettin_decoder eurobert "
    "gpt gpt2 legal_bert longformer longt5 modernbert mt5 neobert roberta scibert spanbert t5 "
    "t5_1_1 ul2 skip_gram ulmfit xlnet"
).split()
FULL = {
    "albert": "albert_base", "bart": "bart_base", "bert": "bert_base", "bert_wwm": "bert_wwm_large",
    "byt5": "byt5_small", "canine": "canine_c", "deberta_v3": "deberta_v3_base",
    "electra": "electra_small", "ettin_decoder": "ettin_150m_decoder", "eurobert": "eurobert_610m",
    "longformer": "longformer_base", "longt5": "longt5_tglobal_base", "mt5": "mt5_small",
    "modernbert": "modernbert_base", "roberta": "roberta_base", "spanbert": "spanbert_base",
    "t5": "t5_small", "t5_1_1": "t5_1_1_small", "ul2": "ul2_20b", "xlnet": "xlnet_base",
}  # fmt: skip
FAST = {"albert_base_v1", "bert_base", "scibert", "t5_small"}


def parameter_count(run: Run) -> int:
    """What its program, which has no arrays yet, comes to."""
    options = step.StepOptions(batch_size=run.options.batch_size)
    return step.build(run.model, run.optimizer, run.layout, options).parameter_count


def fits(run: Run) -> None:
    """Asserts that vocabulary, model, objective and lengths go together in every phase."""
    vocabulary, name = run.data.vocabulary, run.data.vocabulary.name
    sentinels = 100 if vocabulary.extra_ids is None else vocabulary.extra_ids
    named = {"bytes": 259, "code_points": 0x110000}
    ids = {None: vocabulary.size + sentinels, **named}.get(name)
    if ids and run.init_from is None:  # otherwise it is another run's
        preflight.vocabulary_fits(run.abstract_model, ids)
    for _, phase in gin_config.without_gin(run).in_phases():
        preflight.lengths_given(phase.feature_converter, phase.data.lengths)
        objective, (first, *_) = phase.data.chosen_objective, phase.data.lengths.values()
        assert phase.data.lengths == objective.lengths(first)


def test_every_recipe_is_one_of_these():
    assert {*gin_files.published_recipes()} == {*RECIPES, *(f"{kind}-mini" for kind in MINIS)}


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if n in FAST else [pytest.mark.slow]) for n in RECIPES],
)
def test_a_recipe_has_its_figures(name: str, resolved: Callable[[str], Run]):
    expected = RECIPES[name]
    run = resolved(name)
    found = recipes.stretches()
    rate = gin_config.macro("LEARNING_RATE")
    assert parameter_count(run) == expected.parameters
    assert [(one.steps, one.rows, one.length) for one in found] == expected.stretches
    assert sum(one.tokens for one in found) == pytest.approx(expected.trained, rel=0.01)
    for at, value in expected.rates.items():
        # Rates are float32: what is left at the end of millions of steps is a difference of such.
        assert float(rate(at)) == pytest.approx(value, rel=1e-4, abs=1e-6 * max(expected.rates))
    fits(run)
    assert (run.model_dir, len(gin_config.macro("SOURCE")) > 10) == (f"runs/{name}", True)


@pytest.mark.parametrize(
    "kind", [pytest.param(n, marks=[] if n == "bert" else [pytest.mark.slow]) for n in MINIS]
)
def test_a_mini_is_small_and_otherwise_as_the_run_that_it_stands_for(
    kind: str, resolved: Callable[[str], Run]
):
    full = mechanism(resolved(FULL.get(kind, kind)))
    assert mechanism(resolved(f"{kind}-mini")) == full
    run = resolved(f"{kind}-mini")
    fits(run)
    count = parameter_count(run)
    assert 0.3e6 < count < 4e6
    assert count == gin_files.published_recipes()[f"{kind}-mini"].parameters
    assert (run.data.mixture_or_task_name, run.model_dir) == ("stdlib_docs", f"runs/{kind}-mini")
    assert sum(one.tokens for one in recipes.stretches()) < 20e6
    assert float(gin_config.macro("LEARNING_RATE")(100)) > 1e-4


def mechanism(run: Run) -> dict[str, object]:
    """What a mini has in common with the run that it stands for; gin is configured with `run`."""
    vocabulary = run.data.vocabulary
    return {
        # In a small text, frequent words are left out less often.
        "objective": re.sub(
            r"\bsample=[^,)]+", "sample", repr(presets.resolve(gin_config.macro("OBJECTIVE")))
        ),
        "optimizer": re.sub("peak=[^,)]+", "peak", gin_config.description("OPTIMIZER")),
        "schedule": gin_config.description("LEARNING_RATE").partition("(")[0],
        "model": getattr(run.model, "__qualname__", ""),
        "clip": run.options.gradient_clip,
        "phases": len(gin_config.macro("PHASES")),
        "vocabulary": dataclasses.replace(vocabulary, size=32_000, character_coverage=1.0),
        "exponent": run.data.corpus_exponent,
        "teacher": run.completer is not None,
        "init_from": run.init_from is not None,
    }


def test_a_file_names_itself_and_states_its_parameters():
    for name, file in gin_files.published_recipes().items():
        text = file.text
        assert re.search(rf"^#   t5x_like train --recipe {name}( |$)", text, re.M), name
        assert "# Hardware: " in text, name
        assert "# Result: " in text, name
        assert file.parameters == RECIPES[name].parameters if name in RECIPES else True
