"""Gin: a user's own file, and the configuration of a directory that anybody may have written."""

from __future__ import annotations

import contextlib
import functools
from pathlib import Path

from hypothesis import strategies as st
from mutations import of_bytes, of_text, one_of

from t5x_like.api import loading
from t5x_like.config import gin_config
from t5x_like.config.object_text import model_text
from t5x_like.models import bart, bert, t5
from t5x_like.training.checkpointing.checkpoints import CheckpointError

SIZES = {"vocab_size": 9, "d_model": 4, "d_ff": 6, "num_heads": 2}
MINE = """\
# Mine.
from __gin__ import dynamic_registration
from t5x_like.models import bert
import t5x_like.training.optimization.schedules as schedules

include 'part.gin'
D = 4
MODEL = @bert.Bert
bert.Bert.config = @bert.Config()
bert.Config:
    vocab_size = 9
    d_model = %D
    d_ff = 6
    num_heads = 2
    num_layers = 1
    max_positions = 8
schedules.rsqrt.scale = 0.5
scope/schedules.rsqrt.scale = %RATE
"""


def make(folder):
    models = {
        "bert": functools.partial(bert.Bert, bert.Config(**SIZES, num_layers=1, max_positions=8)),
        "t5": functools.partial(
            t5.T5, t5.Config(**SIZES, d_kv=2, num_encoder_layers=1, num_decoder_layers=1)
        ),
        "bart": functools.partial(
            bart.Bart, bart.Config(**SIZES, num_encoder_layers=1, num_decoder_layers=1)
        ),
    }
    for name, model in models.items():
        (folder / name).mkdir()
        text = model_text(model, title="A model.")
        (folder / name / "config.gin").write_text(text)
    with gin_config.temporary_configuration():
        given = ["MODEL_DIR='x'", "CORPUS='x.txt'"]
        gin_config.load([str(Path(__file__).parent.parent / "runs" / "tiny.gin")], given)
        (folder / "run").mkdir()
        (folder / "run" / "config.gin").write_text(gin_config.config_text())
    (folder / "mine").mkdir()
    (folder / "mine" / "my.gin").write_text(MINE)
    (folder / "mine" / "part.gin").write_text("RATE = 1.0\nNAMES = ['a', ('b', {'c': None})]\n")


def read(folder):
    if (folder / "my.gin").exists():
        with gin_config.temporary_configuration():
            gin_config.load([str(folder / "my.gin")], extra_folders=[str(folder)])
            gin_config.config_text()
        return
    with contextlib.suppress(CheckpointError):  # there is none
        loading.load(str(folder))


def damage(draw, files):
    change = draw(st.sampled_from([of_text, of_text, of_text, of_bytes]))
    return {**files, **one_of(draw, files, change, [*files])}


def test_damaged_configurations(fuzz):
    fuzz(__file__, damage)
