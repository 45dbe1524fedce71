"""Four programs of published widths and small depth for v5e:4x4: memory and modelled time.

A figure that grows is a loss of speed or memory: find out why before it is pinned anew. One that
falls is pinned anew with the change that made it fall.
"""

from __future__ import annotations

import pytest

from t5x_like.config import gin_files
from t5x_like.planning.plan import plan

PROGRAMS = {
    # Rows of 512 and 114 tokens, split over `data`; relative biases in the kernel.
    "t5_1_1_base": (
        ["BATCH_SIZE=256", "t5.Config.num_encoder_layers=1", "t5.Config.num_decoder_layers=1"],
        0.62,
        11.9,
    ),
    # Parameters split over `fsdp`.
    "t5_1_1_xl": (
        ["BATCH_SIZE=128", "t5.Config.num_encoder_layers=1", "t5.Config.num_decoder_layers=1"],
        0.949,
        25.4,
    ),
    # Dropout in the kernel.
    "bert_large": (
        ["BATCH_SIZE=128", "bert.Config.num_layers=1", "PHASES=()"],
        0.279,
        6.38,
    ),
    # Microbatches. The compiler takes half as long for it as for a BART of this depth.
    "t5_1_1_small": (
        [
            "BATCH_SIZE=1024",
            "MICROBATCHES=4",
            "t5.Config.num_encoder_layers=1",
            "t5.Config.num_decoder_layers=1",
        ],
        0.641,
        23.4,
    ),
}
"""{recipe: (bindings, gigabytes on a chip, milliseconds of a step without overlap)}."""


@pytest.mark.slow
@pytest.mark.parametrize("recipe", PROGRAMS)
def test_memory_and_modelled_time(recipe: str) -> None:
    pytest.importorskip("libtpu", reason="no compiler for TPUs: pip install '.[plan]'")
    bindings, gigabytes, milliseconds = PROGRAMS[recipe]
    found = plan([str(gin_files.find_recipe(recipe))], "v5e:4x4", bindings=bindings)
    (phase,) = found.phases
    assert phase.time is not None
    assert {kernel.source for kernel in phase.time.kernels} == {"bundles"}
    assert phase.hbm_needed / 1e9 == pytest.approx(gigabytes, rel=0.1)
    assert phase.time.most * 1e3 == pytest.approx(milliseconds, rel=0.1)
