"""Steps of a checkpoint directory, saved by a tiny model, and ways to damage their files."""

from __future__ import annotations

import functools
from pathlib import Path

import jax
import tiny_model as tiny

from t5x_like.training import step
from t5x_like.training.checkpointing.checkpoints import Checkpoints
from t5x_like.training.optimization import optimizers, schedules


@functools.cache
def program() -> step.Program:
    tx = optimizers.adafactor(schedules.rsqrt(), min_dim_size_to_factor=4)
    return tiny.build(tx, tiny.layout(data=4, tensor=2), ema_decay=0.9)


def save_three(directory: Path) -> None:
    """Steps 1, 2 and 3 of a run, with a metadata entry each."""
    where = tiny.layout(data=4, tensor=2)
    state = program().init(jax.random.key(0))
    checkpoints = Checkpoints(directory)
    for n in (1, 2, 3):
        state, _ = tiny.run(program(), where, 1, state=state)
        checkpoints.save(n, state, metadata={"position": n})
    checkpoints.close()


def weight_file(directory: Path, step: int, item: str = "params") -> Path:
    """The largest file of a step's item."""
    files = [p for p in (directory / str(step) / item).rglob("*") if p.is_file()]
    return max(files, key=lambda p: p.stat().st_size)


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def replace(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new, 1))


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
