"""Every model file in gin/models builds abstractly with its published parameter count."""

import math
from pathlib import Path

import gin
import jax
import pytest
from flax import nnx

from t5x_like.cli import gin_config

GIN = gin_config.gin_root()
NAMES = ("small", "base", "large", "xl", "xxl")
PUBLISHED = {
    "t5": {
        "small": 60_506_624,
        "base": 222_903_552,
        "large": 737_668_096,
        "3b": 2_851_598_336,
        "11b": 11_307_321_344,
    },
    "t5_1_1": dict(
        zip(
            NAMES,
            (76_961_152, 247_577_856, 783_150_080, 2_849_757_184, 11_135_332_352),
            strict=True,
        )
    ),
    "mt5": dict(
        zip(
            NAMES,
            (300_176_768, 582_401_280, 1_229_581_312, 3_742_619_648, 12_921_057_280),
            strict=True,
        )
    ),
    "umt5": dict(
        zip(
            NAMES,
            (306_601_984, 592_043_520, 1_242_449_920, 3_768_356_864, 12_972_531_712),
            strict=True,
        )
    ),
    "byt5": dict(
        zip(
            NAMES,
            (299_637_760, 581_653_248, 1_228_183_552, 3_737_801_728, 12_906_899_328),
            strict=True,
        )
    ),
}
SIZES = [(family, size) for family, sizes in PUBLISHED.items() for size in sizes]


@pytest.fixture(autouse=True)
def _clean_gin():
    yield
    gin.clear_config()


def build(name: str, *bindings: str) -> nnx.Module:
    """The model of a gin file, abstract: shapes without arrays."""
    gin_config.load([name], bindings)
    make = gin.query_parameter("MODEL/gin.macro.value").scoped_configurable_fn
    return nnx.eval_shape(lambda: make(rngs=nnx.Rngs(0)))


@pytest.mark.parametrize(("family", "size"), SIZES)
def test_parameter_count_is_the_published_one(family, size):
    model = build(f"{family}/{size}.gin")
    count = sum(math.prod(x.shape) for x in jax.tree.leaves(model))
    assert count == PUBLISHED[family][size]
    assert f"{count:,} parameters" in (GIN / "models" / family / f"{size}.gin").read_text()


def test_every_file_is_a_size_above_or_shared():
    files = {f.relative_to(GIN / "models") for f in (GIN / "models").rglob("*.gin")}
    t5_files = {f for f in files if f.parts[0] in PUBLISHED and f.stem != "shared"}
    assert t5_files == {Path(family, f"{size}.gin") for family, size in SIZES}


def test_macros_reach_the_model():
    model = build(
        "t5_1_1/small.gin",
        "DROPOUT_RATE = 0.25",
        "DTYPE = 'float32'",
        "SCAN_UNROLL = 4",
        "Z_LOSS = 0.0",
        "LABEL_SMOOTHING = 0.1",
    )
    config = model.config
    assert (config.dropout_rate, config.dtype, config.scan_unroll) == (0.25, "float32", 4)
    assert (config.z_loss, config.label_smoothing, config.remat) == (0.0, 0.1, None)


def test_a_remat_policy_is_named_in_gin(tmp_path):
    file = tmp_path / "remat.gin"
    file.write_text(
        "from __gin__ import dynamic_registration\n"
        "import jax\n"
        "include 'models/t5/small.gin'\n"
        "REMAT = @jax.checkpoint_policies.nothing_saveable\n"
    )
    assert build(str(file)).config.remat is not None
