"""Every model file in gin/models builds abstractly with its published parameter count."""

import math

import gin
import jax
import pytest
from flax import nnx

from t5x_like.config import gin_config, gin_files

T5 = {
    "t5_small": 60_506_624,
    "t5_base": 222_903_552,
    "t5_large": 737_668_096,
    "t5_3b": 2_851_598_336,
    "t5_11b": 11_307_321_344,
}
LONGT5 = {
    "longt5_local_base": 247_577_856,
    "longt5_local_large": 783_150_080,
    "longt5_tglobal_base": 247_587_456,
    "longt5_tglobal_large": 783_175_168,
    "longt5_tglobal_xl": 2_849_807_360,
}
T5_1_1 = {
    "t5_1_1_small": 76_961_152,
    "t5_1_1_base": 247_577_856,
    "t5_1_1_large": 783_150_080,
    "t5_1_1_xl": 2_849_757_184,
    "t5_1_1_xxl": 11_135_332_352,
}
MT5 = {
    "mt5_small": 300_176_768,
    "mt5_base": 582_401_280,
    "mt5_large": 1_229_581_312,
    "mt5_xl": 3_742_619_648,
    "mt5_xxl": 12_921_057_280,
}
UMT5 = {
    "umt5_small": 306_601_984,
    "umt5_base": 592_043_520,
    "umt5_large": 1_242_449_920,
    "umt5_xl": 3_768_356_864,
    "umt5_xxl": 12_972_531_712,
}
BYT5 = {
    "byt5_small": 299_637_760,
    "byt5_base": 581_653_248,
    "byt5_large": 1_228_183_552,
    "byt5_xl": 3_737_801_728,
    "byt5_xxl": 12_906_899_328,
}
UL2 = {"ul2_20b": 19_591_209_984}
BERT = {
    "bert_tiny": 4_433_468,
    "bert_tiny_cased": 4_236_614,
    "bert_mini": 11_267_900,
    "bert_mini_cased": 10_875_718,
    "bert_small": 29_058_876,
    "bert_small_cased": 28_276_038,
    "bert_medium": 41_668_412,
    "bert_medium_cased": 40_885_574,
    "bert_base": 110_106_428,
    "bert_base_cased": 108_932_934,
    "bert_large": 336_226_108,
    "bert_large_cased": 334_661_958,
    "bert_multilingual_cased": 178_566_653,
    "bert_multilingual_uncased": 168_055_961,
    "bert_chinese": 102_882_442,
}
ROBERTA = {"roberta_base": 124_697_433, "roberta_large": 355_412_057}
LED = {"led_base": 161_844_480, "led_large": 459_801_600}
LONGFORMER = {"longformer_base": 148_711_257, "longformer_large": 434_653_273}
# transformers' CanineModel, and heads for pairs, and for characters or subwords.
CANINE = {
    "canine_c": 132_082_944 + 1_538 + 20_869_120,
    "canine_s": 132_082_944 + 1_538 + 119_547 * 769 + 769 * 768 + 2 * 768,
}
SPANBERT = {"spanbert_base": 110_300_480, "spanbert_large": 336_998_976}
DISTILBERT = {"distilbert": 66_985_530}
MODERNBERT = {
    "modernbert_base": 149_655_232,
    "modernbert_large": 395_881_664,
    "ettin_17m": 16_913_600,
    "ettin_32m": 32_081_344,
    "ettin_68m": 68_457_664,
    "ettin_150m": 149_655_232,
    "ettin_400m": 395_881_664,
    "ettin_1b": 1_031_314_112,
    "mmbert_small": 140_897_536,
    "mmbert_base": 307_786_240,
}
MODERNBERT_DECODER = {
    "ettin_17m_decoder": 16_913_600,
    "ettin_32m_decoder": 32_081_344,
    "ettin_68m_decoder": 68_457_664,
    "ettin_150m_decoder": 149_655_232,
    "ettin_400m_decoder": 395_881_664,
    "ettin_1b_decoder": 1_031_314_112,
}
NEOBERT = {"neobert": 245_136_954}
EUROBERT = {
    "eurobert_210m": 310_266_624,
    "eurobert_610m": 755_625_600,
    "eurobert_2_1b": 2_403_092_736,
}
# transformers' class for masked tokens, and a table of absolute positions.
DEBERTA = {
    "deberta_base": 139_244_121 + 512 * 768,
    "deberta_large": 406_264_921 + 512 * 1024,
    "deberta_xlarge": 758_905_945 + 512 * 1024,
    "deberta_v2_xl": 887_085_156 + 512 * 1536,
    "deberta_v2_xxl": 1_567_041_636 + 512 * 1536,
}


def _v3(encoder: int, generator: int, width: int) -> int:
    """Two models of transformers, a table of positions, and a discriminator's head.

    The encoder's table of tokens counts as the difference from the generator's.
    """
    head = 2 * width + width * width + width + width + 1
    return encoder + generator + 512 * width + head


DEBERTA_V3 = {
    "deberta_v3_xsmall": _v3(70_682_112, 60_312_036, 384),
    "deberta_v3_small": _v3(141_304_320, 120_760_932, 768),
    "deberta_v3_base": _v3(183_831_552, 142_024_548, 768),
    "deberta_v3_large": _v3(434_012_160, 284_037_220, 1024),
    "mdeberta_v3_base": _v3(278_218_752, 236_534_648, 768),
}
ALBERT = {
    "albert_base": 11_813_810,
    "albert_base_v1": 11_813_810,
    "albert_large": 17_847_474,
    "albert_large_v1": 17_847_474,
    "albert_xlarge": 59_021_490,
    "albert_xlarge_v1": 59_021_490,
    "albert_xxlarge": 223_158_450,
    "albert_xxlarge_v1": 223_158_450,
}
ELECTRA = {
    "electra_small": 14_196_219,
    "electra_base": 119_386_427,
    "electra_base_replace_mlm": 119_417_716,
    "electra_base_all_tokens_mlm": 119_418_484,
    "electra_large": 354_655_291,
}
GPT = {"gpt": 116_534_784}
GPT2 = {
    "gpt2": 124_439_808,
    "gpt2_medium": 354_823_168,
    "gpt2_large": 774_030_080,
    "gpt2_xl": 1_557_611_200,
}
XLNET = {"xlnet_base": 116_750_336, "xlnet_large": 360_300_800}
BART = {"bart_base": 139_420_416, "bart_large": 406_291_456}
MBART = {"mbart_cc25": 610_851_840}
AWD_LSTM = {"awd_lstm": 44_272_402, "awd_lstm_1152": 44_334_082}
SKIP_GRAM = {"skip_gram": 415_200_000}
PREFIX_LM = {"prefix_lm_base": 109_628_544}
FAMILIES = (
    T5,
    T5_1_1,
    LONGT5,
    AWD_LSTM,
    SKIP_GRAM,
    LED,
    MT5,
    UMT5,
    BYT5,
    UL2,
    BERT,
    ROBERTA,
    SPANBERT,
    DISTILBERT,
    LONGFORMER,
    CANINE,
    MODERNBERT,
    MODERNBERT_DECODER,
    NEOBERT,
    EUROBERT,
    DEBERTA,
    DEBERTA_V3,
    ALBERT,
    ELECTRA,
    GPT,
    GPT2,
    XLNET,
    BART,
    MBART,
    PREFIX_LM,
)
PUBLISHED: dict[str, int] = {name: count for family in FAMILIES for name, count in family.items()}
SMALLEST = {min(family, key=family.__getitem__) for family in FAMILIES}


@pytest.fixture(autouse=True)
def _clean_gin():
    yield
    gin.clear_config()


def build(name: str, *bindings: str) -> nnx.Module:
    """The model of a gin file, abstract: shapes without arrays."""
    gin_config.load([name], bindings)
    make = gin_config.macro("MODEL")
    return nnx.eval_shape(lambda: make(rngs=nnx.Rngs(0)))


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if n in SMALLEST else [pytest.mark.slow]) for n in PUBLISHED],
)
def test_parameter_count_is_the_published_one(name):
    leaves = jax.tree.leaves(build(name))
    assert sum(math.prod(leaf.shape) for leaf in leaves) == PUBLISHED[name]


def test_every_model_file_is_published_above_and_states_its_count():
    files = gin_files.published_models()
    assert {name: file.parameters for name, file in files.items()} == PUBLISHED


def test_macros_reach_the_model():
    model = build(
        "t5_1_1_small",
        "DROPOUT_RATE = 0.25",
        "DTYPE = 'float32'",
        "SCAN_UNROLL = 4",
        "Z_LOSS = 0.0",
        "LABEL_SMOOTHING = 0.1",
    )
    config = model.config
    assert (config.dropout_rate, config.dtype, config.scan_unroll) == (0.25, "float32", 4)
    assert (config.z_loss, config.label_smoothing, config.remat) == (0.0, 0.1, None)


def test_a_roberta_is_a_bert_of_other_settings():
    config = build("roberta_base").config
    assert (config.padding_position, config.max_positions) == (1, 514)
    assert (config.type_vocab_size, config.sentence_head) == (1, False)
    assert (config.norm_epsilon, config.initializer.__name__) == (1e-5, "normal")


def test_a_remat_policy_is_named_in_gin(tmp_path):
    file = tmp_path / "remat.gin"
    file.write_text(
        "from __gin__ import dynamic_registration\n"
        "import jax\n"
        "include 'models/t5_small'\n"
        "REMAT = @jax.checkpoint_policies.nothing_saveable\n"
    )
    assert build(str(file)).config.remat is not None
