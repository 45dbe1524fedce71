"""Which way to compute attention is chosen, and what kernels of ours refuse."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from t5x_like.core.counter_random import COUNTER
from t5x_like.core.devices.chosen import is_ampere
from t5x_like.core.partitioning import Layout, make_layout
from t5x_like.layers.attention import attention_kernels, gpu_attention, kernel_choice
from t5x_like.layers.attention.attention_kernels import KeysValues, blocked, fused, plain
from t5x_like.layers.attention.gpu_attention import gpu
from t5x_like.layers.attention.masks import Mask, Traits
from t5x_like.layers.attention.splash_attention import splash
from t5x_like.layers.attention.tpu_attention import tpu
from t5x_like.layers.attention.windowed import windowed
from t5x_like.layers.basics.dropout import Dropping

DROP = Dropping(jax.random.key(0, impl=COUNTER), 0.1, False)
OTHERS = Dropping(jax.random.key(0), 0.1, False)
CHOSEN = Mask(
    window=(64, 64), most_chosen=1, keys=Traits(chosen=jax.ShapeDtypeStruct((1, 4096), bool))
)
OF_HEADS = Mask(pairs=jax.ShapeDtypeStruct((1, 2, 512, 512), bool))


@pytest.fixture
def choose(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """The name of the kernel for so many queries and keys."""
    chosen: list[str] = []
    for kernel in (plain, blocked, fused, tpu, splash, gpu, windowed):
        monkeypatch.setattr(
            kernel_choice,
            kernel.__name__,
            lambda q, memory, name=kernel.__name__, **rest: chosen.append(name),
        )

    def name(queries: int, width: int = 64, dtype: Any = jnp.bfloat16, **rest: Any) -> str:
        q = jax.ShapeDtypeStruct((1, queries, 2, width), dtype)
        kernel_choice.automatic(
            q, KeysValues(q, q), **{"mask": None, "bias": None, "drop": None, **rest}
        )
        return chosen[-1]

    return name


def test_on_cpus_long_rows_are_taken_in_blocks_and_windows_alone(
    choose: Callable[..., str],
) -> None:
    assert choose(512) == choose(1024) == choose(2048, drop=OTHERS) == "plain"
    assert choose(2048) == choose(2048, drop=DROP) == "blocked"
    near = Mask(window=(64, 64))
    assert choose(512, mask=near) == choose(8192, mask=near, drop=DROP) == "windowed"
    assert choose(256, mask=near) == choose(1024, mask=Mask(window=(512, 0))) == "plain"
    with kernel_choice.forming_probabilities(True):
        assert choose(8192, mask=near) == "plain"


def test_on_tpus_it_is_their_kernel_or_that_of_long_rows(
    choose: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Layout, "platform", property(lambda self: "tpu"))
    with make_layout({"data": 1}, devices=jax.devices()[:1]).active():
        assert choose(512) == choose(512, drop=DROP) == choose(512, width=128) == "tpu"
        assert choose(128) == choose(1) == choose(512, width=48) == "plain"
        assert choose(4096) == choose(2**14, mask=Mask(causal=True)) == "splash"
        assert choose(4096, drop=DROP) == "blocked"
        assert choose(4096, drop=OTHERS) == choose(512, drop=OTHERS) == "plain"
        # Of a long row, parts with the keys that they see fit the chip's memory.
        assert choose(4096, mask=Mask(window=(64, 64))) == "tpu"
        assert choose(4096, mask=Mask(causal=True)) == "tpu"
        assert choose(4096, mask=Mask(window=(64, 64)), width=48) == "windowed"
        assert choose(4096, mask=CHOSEN) == "windowed"
        assert choose(512, mask=OF_HEADS) == "plain"
        assert choose(512, mask=Mask(pairs=jax.ShapeDtypeStruct((2, 512, 512), bool))) == "plain"
        with kernel_choice.forming_probabilities(True):
            assert choose(512) == choose(4096) == "plain"
    with make_layout({"sequence": 8}).active():
        assert choose(4096, drop=DROP) == "tpu"  # a device has 512 of the queries


def test_on_gpus_it_is_cudnn_s_or_their_kernel_where_there_is_dropout(
    choose: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Layout, "platform", property(lambda self: "gpu"))
    for module in (attention_kernels, gpu_attention):
        monkeypatch.setattr(module, "is_ampere", lambda device: True)
    with make_layout({"data": 1}, devices=jax.devices()[:1]).active():
        assert choose(512) == choose(128) == choose(4096, mask=OF_HEADS) == "fused"
        assert choose(512, drop=DROP) == choose(4096, drop=DROP) == choose(511) == "gpu"
        assert choose(128, drop=DROP) == choose(4096, mask=Mask(window=(64, 64))) == "gpu"
        assert choose(4096, mask=CHOSEN) == choose(4096, mask=CHOSEN, drop=DROP) == "windowed"
        assert choose(1, drop=DROP) == choose(512, drop=OTHERS) == "plain"
        assert choose(512, dtype=jnp.float32) == choose(512, width=256) == "plain"
        assert choose(4096, dtype=jnp.float32, drop=DROP) == "blocked"
        bias = jax.ShapeDtypeStruct((1, 2, 128, 128), jnp.float32)
        assert choose(128, bias=bias, drop=DROP) == "gpu"
    with make_layout({"sequence": 8}).active():
        assert choose(512) == "gpu"  # cuDNN's cannot have its queries split


def test_older_gpus_and_those_of_others_form_logits_or_take_blocks(
    choose: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Layout, "platform", property(lambda self: "gpu"))
    with make_layout({"data": 1}, devices=jax.devices()[:1]).active():
        assert choose(512) == choose(512, drop=DROP) == "plain"
        assert choose(4096) == choose(4096, drop=DROP) == "blocked"


@pytest.mark.parametrize(
    ("capability", "suits"), [("8.0", True), ("12.0", True), ("7.5", False), ("gfx942", False)]
)
def test_kernels_are_for_ampere_and_later(capability: str, suits: bool) -> None:
    assert is_ampere(types.SimpleNamespace(compute_capability=capability)) is suits
    assert not is_ampere(jax.devices("cpu")[0])


def test_what_our_kernels_cannot_compute_they_refuse() -> None:
    def attend(kernel: Any, queries: int, width: int, drop: Any = None) -> None:
        q = jnp.zeros((1, queries, 2, width))
        kernel(q, KeysValues(q, q), mask=None, bias=None, drop=drop)

    with pytest.raises(ValueError, match=r"4096 queries by 4096 keys do not fit"):
        attend(tpu, 4096, 64)
    with pytest.raises(ValueError, match=r"width must divide 128 .* not 48"):
        attend(tpu, 8, 48)
    with pytest.raises(ValueError, match=r"on GPUs: .* one of \(16, 32, 64, 128\), not 48"):
        attend(functools.partial(gpu, interpret=True), 8, 48)
    with pytest.raises(ValueError, match=r"on GPUs: they must be NVIDIA's Ampere"):
        attend(gpu, 8, 64)
    interpreted = functools.partial(gpu, interpret=True)
    for kernel in (tpu, interpreted, blocked):
        with pytest.raises(ValueError, match=r"counter.*attention_kernels"):
            attend(kernel, 8, 64, OTHERS)
