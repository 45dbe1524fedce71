"""Two programs of published widths and small depth for v5e:4x4: memory and modelled time.

A figure that grows is a loss of speed or memory: find out why before it is pinned anew. One that
falls is pinned anew with the change that made it fall.
"""

from __future__ import annotations

import pytest

from t5x_like.config import gin_files
from t5x_like.planning.plan import plan

T5 = [
    "BATCH_SIZE=128",
    "TASK_FEATURE_LENGTHS={'inputs': 256, 'targets': 62}",
    "t5.Config.num_encoder_layers=1",
    "t5.Config.num_decoder_layers=1",
]
PROGRAMS = {
    # Relative biases in the kernel, rows split over both axes and parameters over one.
    "T5": (
        "t5_1_1_small",
        [*T5, "partitioning.make_layout.mesh={'data': 4, 'fsdp': 4}"],
        0.0566,
        3.46,
    ),
    # Dropout in the kernel, microbatches.
    "BERT": (
        "bert_base",
        ["BATCH_SIZE=256", "MICROBATCHES=4", "bert.Config.num_layers=1", "PHASES=()"],
        0.325,
        11.95,
    ),
}
"""{name: (recipe, bindings, gigabytes on a chip, milliseconds of a step without overlap)}."""


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_memory_and_modelled_time(name: str) -> None:
    pytest.importorskip("libtpu", reason="no compiler for TPUs: pip install '.[plan]'")
    recipe, bindings, gigabytes, milliseconds = PROGRAMS[name]
    found = plan([str(gin_files.find_recipe(recipe))], "v5e:4x4", bindings=bindings)
    (phase,) = found.phases
    assert phase.time is not None
    assert {kernel.source for kernel in phase.time.kernels} <= {"bundles"}
    assert phase.time.kernels
    assert phase.hbm_needed / 1e9 == pytest.approx(gigabytes, rel=0.1)
    assert phase.time.most * 1e3 == pytest.approx(milliseconds, rel=0.1)
