"""Measures the ways to compute attention, forward and backward, on a GPU of this machine.

    python benchmarks/gpu_attention.py
    python benchmarks/gpu_attention.py --allow_cpu --tokens 256 --lengths 128 --times 2

A line is a length of rows with dropout or without, and with a bias that has a gradient (T5's) or
without. All lines have as many tokens, so their matrix products grow with the length alone. Times
are medians of calls that take turns. Beside `plain`'s stands how many times as fast each kernel
is: `fused` is cuDNN's, `gpu` ours. A kernel that does not fit or cannot compute a case has a dash.

The exit status is 0, or 2 without a GPU.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import statistics
import sys
import time
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

from t5x_like.core.counter_random import COUNTER
from t5x_like.layers.attention.attention_kernels import Kernel, KeysValues, blocked, fused, plain
from t5x_like.layers.attention.gpu_attention import gpu
from t5x_like.layers.attention.masks import Mask
from t5x_like.layers.basics.dropout import Dropping

KERNELS: dict[str, Kernel] = {"plain": plain, "blocked": blocked, "fused": fused, "gpu": gpu}
RATE = 0.1


def compiled(
    kernel: Kernel, shape: tuple[int, int, int, int], *, biased: bool, dropped: bool
) -> Callable[[], object] | None:
    """A call of the kernel and its gradients on random bfloat16 arrays; None if it cannot.

    shape: rows, tokens of a row, heads, width of a head. A row's last eighth is padding.
    """
    rows, length, heads, _ = shape
    keys = jax.random.split(jax.random.key(0), 5)
    given = [jax.random.normal(key, shape, jnp.bfloat16) for key in keys[:3]]
    if biased:
        given.append(jax.random.normal(keys[3], (1, heads, length, length), jnp.bfloat16))
    mask = Mask(present=jnp.arange(length)[None].repeat(rows, 0) < length - length // 8)
    drop = Dropping(jax.random.key(5, impl=COUNTER), RATE, False) if dropped else None

    @functools.partial(jax.grad, argnums=range(len(given)))
    def gradients(q: jax.Array, k: jax.Array, v: jax.Array, *bias: jax.Array) -> jax.Array:
        values = kernel(
            q, KeysValues(k, v), mask=mask, bias=bias[0] if bias else None, drop=drop
        ).values
        return values.astype(jnp.float32).sum()

    try:
        program = jax.jit(gradients).lower(*given).compile()
        jax.block_until_ready(program(*given))
    except (ValueError, jax.errors.JaxRuntimeError):
        return None
    return lambda: program(*given)


def medians(calls: dict[str, Callable[[], object]], times: int) -> dict[str, float]:
    """Seconds of each call: the calls take turns."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _, (name, call) in itertools.product(range(times), calls.items()):
        start = time.perf_counter()
        jax.block_until_ready(call())
        seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(of_call) for name, of_call in seconds.items()}


def cells(seconds: dict[str, float]) -> str:
    """`plain`'s milliseconds, and how many times as fast each kernel is."""
    base = seconds.get("plain")
    if base is None:
        return f"{'-':>10}"
    ratios = (f"{base / seconds[name]:.2f}" if name in seconds else "-" for name in KERNELS)
    return f"{1e3 * base:10.3f}" + "".join(f"{ratio:>9}" for ratio in ratios)


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the table, a line when it is measured; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lengths", type=int, nargs="+", default=[128, 256, 512, 1024, 2048])
    parser.add_argument("--tokens", type=int, default=2**15, help="of all rows (default: 32768)")
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--width", type=int, default=64, help="of a head (default: 64)")
    parser.add_argument("--times", type=int, default=20, help="calls of each (default: 20)")
    parser.add_argument("--allow_cpu", action="store_true", help="to try the script")
    args = parser.parse_args(argv)
    if jax.default_backend() != "gpu" and not args.allow_cpu:
        print("JAX finds no GPU on this machine.", file=sys.stderr)
        return 2
    print(f"{jax.devices()[0].device_kind}, JAX {jax.__version__}, {args.tokens} tokens")
    print(f"{'length':>6}  {'':16}{'plain, ms':>10}" + "".join(f"{n:>9}" for n in KERNELS))
    for length, biased, dropped in itertools.product(args.lengths, (False, True), (False, True)):
        shape = (args.tokens // length, length, args.heads, args.width)
        tried = {
            name: compiled(kernel, shape, biased=biased, dropped=dropped)
            for name, kernel in KERNELS.items()
        }
        found = medians({name: call for name, call in tried.items() if call}, args.times)
        what = " ".join(word for word, is_so in (("bias", biased), ("dropout", dropped)) if is_so)
        print(f"{length:6}  {what:16}{cells(found)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
