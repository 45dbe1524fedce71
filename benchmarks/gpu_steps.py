"""The training steps that `gpu.py` measures: their runs, batches and times.

JAX keeps the memory of a GPU that it has taken, and the peak that it has seen. So `gpu.py` calls
`measure` in a process of its own for each batch that it tries.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import multiprocessing
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from t5x_like.config import gin_files
from t5x_like.planning import child
from t5x_like.runs.batches import ToDevice
from t5x_like.runs.memory import rows
from t5x_like.runs.memory.microbatches import with_microbatches
from t5x_like.runs.program import build_program
from t5x_like.runs.run import Run

MATRIX_SIZES = {"gpu": 8192, "cpu": 256}  # a CPU would take minutes for the large ones
MOST_ROWS = 4096
WARM_UP = 3
IDS = ("encoder_input_tokens", "decoder_input_tokens", "decoder_target_tokens", "masked_targets")
SEGMENTS = "encoder_token_type_ids"


class Case(NamedTuple):
    """A phase of a recipe, and how to measure it.

    Attributes:
      recipe: its name.
      phase: 0 for the first.
      steps: how many are timed.
      bindings: gin settings, `NAME=value`.
      rows: of each device; None for the power of two that a run puts into a microbatch.
    """

    recipe: str
    phase: int
    steps: int
    bindings: tuple[str, ...] = ()
    rows: int | None = None


class OutOfMemoryError(Exception):
    """A step of `rows` rows for each device does not fit."""

    def __init__(self, rows: int) -> None:
        super().__init__(rows)
        self.rows = rows


def in_own_process(function: Callable[..., Any], *args: Any) -> Any:
    """The function's result, or its exception, from a new process."""
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=spawn) as pool:
        return pool.submit(function, *args).result()


def platform() -> str:
    """`gpu`, `tpu` or `cpu`."""
    return str(jax.devices()[0].platform)


def load(recipe: str, bindings: Sequence[str]) -> list[Run]:
    """The run of a recipe, phase by phase, as `t5x_like train --recipe` loads it."""
    run, _ = child.load([str(gin_files.find_recipe(recipe))], list(bindings), [])
    return [part for _, part in run.in_phases()]


def phase_counts(recipes: Sequence[str], bindings: Sequence[str]) -> list[int]:
    """How many phases each recipe has."""
    return [len(load(recipe, bindings)) for recipe in recipes]


def with_rows(run: Run, of_device: int | None) -> Run:
    """The run of one phase with as many rows for each device, in one microbatch."""

    def with_batch(size: int, microbatches: int | None) -> Run:
        size *= run.layout.batch_shards
        options = dataclasses.replace(run.options, batch_size=size, microbatches=microbatches)
        return dataclasses.replace(run, options=options)

    if of_device is None:
        (fitting,) = with_microbatches([with_batch(MOST_ROWS, None)])
        of_device = MOST_ROWS // (fitting.options.microbatches or 1)
    return with_batch(of_device, 1)


def random_batch(run: Run, row: Mapping[str, np.ndarray]) -> dict[str, jax.Array]:
    """A global batch of rows like the given one: random ids, two segments, weights of 1."""
    random = np.random.default_rng(0)
    to_device = ToDevice(run.layout, run.options.batch_size)
    batch = {}
    for name, x in row.items():
        x = np.stack([x] * len(to_device.rows))
        if name in IDS:
            x = random.integers(1, run.abstract_model.config.vocab_size, x.shape, x.dtype)
        elif name == SEGMENTS:
            x[:] = np.arange(x.shape[1]) >= x.shape[1] // 2
        elif name.endswith("_weights"):
            x[:] = 1
        batch[name] = x
    return dict(to_device(batch))


def step_seconds(run: Run, row: Mapping[str, np.ndarray], steps: int) -> list[float]:
    """Seconds of each step, after some that compile and warm up.

    Raises:
      ValueError: the loss is not finite.
    """
    program, batch = build_program(run), random_batch(run, row)
    key, seconds, metrics = jax.random.key(run.options.seed), [], {}
    state = program.init(key)
    for number in range(WARM_UP + steps):
        start = time.perf_counter()
        state, metrics = jax.block_until_ready(program.step(state, batch, key))
        if number >= WARM_UP:
            seconds.append(time.perf_counter() - start)
    loss, _ = metrics["loss"]
    if not np.isfinite(np.asarray(loss)).all():
        raise ValueError(f"the loss is {loss}: such steps are not worth timing")
    return seconds


def matmul_flops_per_second(device: jax.Device, size: int) -> float:
    """Operations a second of bfloat16 products of two [size, size] matrices: a median of ten."""
    keys = jax.random.split(jax.random.key(0))
    a, b = (jax.device_put(jax.random.normal(k, (size, size), jnp.bfloat16), device) for k in keys)
    product, times = jax.jit(jnp.matmul), 20
    jax.block_until_ready(product(a, b))
    seconds = []
    for _ in range(10):
        start = time.perf_counter()
        jax.block_until_ready([product(a, b) for _ in range(times)])
        seconds.append((time.perf_counter() - start) / times)
    return 2 * size**3 / statistics.median(seconds)


def measure(case: Case) -> dict[str, Any]:
    """The figures of a case; rates are those of one device.

    Raises:
      OutOfMemoryError: the batch does not fit.
      ValueError: the recipe needs another model, or its model does not count its operations.
    """
    run = with_rows(load(case.recipe, case.bindings)[case.phase], case.rows)
    if run.completer is not None:
        raise ValueError(f"the batches of {case.recipe} need the outputs of another model")
    row = rows.full_row(run)
    flops = rows.step_flops(run, row)
    if flops is None:
        raise ValueError(f"the model of {case.recipe} does not count its operations")
    of_device = run.options.batch_size // run.layout.batch_shards
    try:
        seconds = step_seconds(run, row, case.steps)
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" in str(error):
            raise OutOfMemoryError(of_device) from None
        raise
    device, devices = run.layout.mesh.devices.flat[0], run.layout.mesh.size
    peak = (device.memory_stats() or {}).get("peak_bytes_in_use")
    matmul = matmul_flops_per_second(device, MATRIX_SIZES[device.platform])
    median = statistics.median(seconds)
    return {
        "model": case.recipe,
        "phase": case.phase + 1,
        "lengths": dict(run.data.with_lengths().lengths or {}),
        "settings": list(case.bindings),
        "device": device.device_kind,
        "devices": devices,
        "jax": jax.__version__,
        "rows": of_device,
        "steps": case.steps,
        "median_seconds": median,
        "least_seconds": min(seconds),
        "tokens_per_second": rows.tokens(row) * run.options.batch_size / devices / median,
        "flops_per_second": flops / devices / median,
        "matmul_flops_per_second": matmul,
        "share": flops / devices / median / matmul,
        "peak_bytes": peak,
    }


def largest_batch(case: Case, attempt: Callable[[Case], dict[str, Any]]) -> dict[str, Any]:
    """The figures of the first batch that fits; each batch is half of the one before.

    Raises:
      OutOfMemoryError: one row does not fit, or the number of rows that the case names does not.
    """
    named = case.rows is not None
    while True:
        try:
            return attempt(case)
        except OutOfMemoryError as error:
            if named or error.rows == 1:
                raise
            case = case._replace(rows=error.rows // 2)
