"""A program of published widths and small depth for v5e:4x4: memory and modelled time.

A figure that grows is a loss of speed or memory: find out why before it is pinned anew. One that
falls is pinned anew with the change that made it fall.
"""

from __future__ import annotations

import pytest

from t5x_like.config import gin_files
from t5x_like.planning.plan import plan

BINDINGS = [
    "BATCH_SIZE=256",
    "MICROBATCHES=2",
    "TASK_FEATURE_LENGTHS={'inputs': 256, 'targets': 62}",
    "t5.Config.num_encoder_layers=1",
    "t5.Config.num_decoder_layers=1",
    "t5.Config.dropout_rate=0.1",
    "partitioning.make_layout.mesh={'data': 4, 'fsdp': 4}",
]
"""Relative biases and dropout in the kernel, rows split over both axes, parameters over one."""


@pytest.mark.slow
def test_memory_and_modelled_time() -> None:
    pytest.importorskip("libtpu", reason="no compiler for TPUs: pip install '.[plan]'")
    found = plan([str(gin_files.find_recipe("t5_1_1_small"))], "v5e:4x4", bindings=BINDINGS)
    (phase,) = found.phases
    assert phase.time is not None
    assert {kernel.source for kernel in phase.time.kernels} <= {"bundles"}
    assert phase.time.kernels
    assert phase.hbm_needed / 1e9 == pytest.approx(0.155, rel=0.1)
    assert phase.time.most * 1e3 == pytest.approx(6.85, rel=0.1)
