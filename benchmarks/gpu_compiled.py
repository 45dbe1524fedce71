"""The steps that `gpu.py` measures, compiled for a GPU that is not there.

    pip install -e ".[cuda]"
    JAX_PLATFORMS=cpu python benchmarks/gpu_compiled.py
    JAX_PLATFORMS=cpu python benchmarks/gpu_compiled.py --cards a100 --models electra_base

XLA compiles for a card that a text describes. A line says how much memory a step needs of it, with
the attention kernel that is chosen and with all logits formed (`plain`), and how many of Triton's
kernels the program calls. The kernel of our own is chosen everywhere: cuDNN's needs a GPU to be
compiled. No time is known. Lines go to docs/results/gpu_compiled.jsonl, where the newest of a step
counts.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import recorded
from gpu_steps import in_own_process, phase_counts

from t5x_like.config import gin_files
from t5x_like.runs.program import build_program

DOCS = Path(__file__).resolve().parent.parent / "docs"
LINES, PAGE = DOCS / "results" / "gpu_compiled.jsonl", DOCS / "performance.md"
BEGIN, END = "<!-- gpus -->\n", "<!-- end of gpus -->\n"
ROWS = {"bert_large": (256, 32), "t5_1_1_large": (32,), "electra_base": (64,)}
"""Rows of each phase of a recipe, in one microbatch."""
KERNELS = ("automatic", "plain")
_PLAIN = """
from __gin__ import dynamic_registration
from t5x_like.layers.attention import attention_kernels
ATTENTION_KERNEL = @attention_kernels.plain
"""
_CARDS: Mapping[str, Mapping[str, Any]] = {
    "h100": {
        "core_count": 132,
        "shared_memory_per_core": 233472,
        "shared_memory_per_block_optin": 232448,
        "memory_bandwidth": 3352 * 10**9,
        "l2_cache_size": 50 * 2**20,
        "clock_rate_ghz": 1.98,
        "device_memory_size": 84942979072,
        "cuda_compute_capability": "{ major: 9 }",
    },
    "a100": {
        "core_count": 108,
        "shared_memory_per_core": 167936,
        "shared_memory_per_block_optin": 166912,
        "memory_bandwidth": 2039 * 10**9,
        "l2_cache_size": 40 * 2**20,
        "clock_rate_ghz": 1.41,
        "device_memory_size": 84987740160,
        "cuda_compute_capability": "{ major: 8 }",
    },
}
"""What XLA is told of a card with 80 GB (NVIDIA's data sheets and CUDA's table of limits)."""
_ALL = {
    "threads_per_block_limit": 1024,
    "threads_per_warp": 32,
    "threads_per_core_limit": 2048,
    "shared_memory_per_block": 49152,
    "fpus_per_core": 128,
    "block_dim_limit_x": 2147483647,
    "block_dim_limit_y": 65535,
    "block_dim_limit_z": 65535,
    "registers_per_core_limit": 65536,
    "registers_per_block_limit": 65536,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Compiles what is asked for and writes the page; 2 without JAX's plug-in for CUDA."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cards", nargs="+", choices=_CARDS, default=list(_CARDS))
    parser.add_argument("--models", nargs="+", choices=ROWS, default=list(ROWS))
    args = parser.parse_args(argv)
    os.environ["JAX_PLATFORMS"] = "cpu"
    # Tiles of its own products are tuned on the GPU; cuBLAS needs no tuning to be compiled.
    os.environ["XLA_FLAGS"] = "--xla_gpu_enable_triton_gemm=false"
    counts = in_own_process(phase_counts, args.models, ())
    for card in args.cards:
        for model, phases in zip(args.models, counts, strict=True):
            for phase in range(phases):
                for kernel in KERNELS:
                    line = in_own_process(compiled, card, model, phase, kernel)
                    if line is None:
                        print("JAX's plug-in for CUDA is missing: .[cuda]", file=sys.stderr)
                        return 2
                    recorded.append(LINES, line)
                    print(line, flush=True)
    write_page()
    return 0


def compiled(card: str, model: str, phase: int, kernel: str) -> dict[str, Any] | None:
    """The line of a phase of a recipe; None without the plug-in."""
    from jax.experimental import topologies

    from t5x_like.core.devices.chosen import on_devices
    from t5x_like.planning import child
    from t5x_like.runs.memory import rows
    from t5x_like.runs.phases import run_phases

    described = "".join(f"  {name}: {value}\n" for name, value in {**_ALL, **_CARDS[card]}.items())
    described = f'gpu_device_info {{\n{described}}}\nplatform_name: "CUDA"\n'
    described += f'dnn_version_info {{ major: 9 }}\ndevice_description_str: "{card}"\n'
    try:
        one = {"target_config": described, "topology": "1x1x1"}
        found = topologies.get_topology_desc(card, "cuda", **one)
    except RuntimeError:
        return None
    count = ROWS[model][phase]
    files = [str(gin_files.find_recipe(model))]
    with tempfile.TemporaryDirectory() as folder, on_devices(list(found.devices)):
        if kernel == "plain":
            (Path(folder) / "plain.gin").write_text(_PLAIN)
            files.append(f"{folder}/plain.gin")
        run, _ = child.load(files, [f"BATCH_SIZE={count}", "MICROBATCHES=1"], [])
    run = run_phases(run)[phase].run
    row = rows.full_row(run)
    program = build_program(run).lower(rows.whole_row(run, row)).compile()
    memory, text = program.memory_analysis(), program.as_text()
    assert memory is not None, "XLA knows it of GPUs"
    assert text is not None, "XLA has it for GPUs"
    return {
        "card": card,
        "model": model,
        "phase": phase + 1,
        "kernel": kernel,
        "lengths": dict(run.data.with_lengths().lengths or {}),
        "rows": count,
        "gigabytes": round(memory.peak_memory_in_bytes / 1e9, 2),
        "triton_calls": text.count('custom_call_target="__gpu$xla.gpu.triton"'),
    }


def write_page() -> None:
    """Puts the table of all lines between the marks of the page."""
    newest = {
        tuple(one[name] for name in ("card", "model", "phase", "kernel")): one
        for one in recorded.read(LINES)
    }
    names = [key[:3] for key in newest if key[3] == "plain" and (*key[:3], "automatic") in newest]
    body = [["card", "program", "rows", "GB", "with all logits"], ["-", "-", "-:", "-:", "-:"]]
    for name in names:
        ours, plain = (newest[*name, kernel] for kernel in KERNELS)
        program = f"{name[1]}, {' + '.join(map(str, ours['lengths'].values()))} tokens"
        size = [f"{one['gigabytes']:.1f}" for one in (ours, plain)]
        body.append([name[0].upper(), program, str(ours["rows"]), *size])
    table = "".join(f"| {' | '.join(row)} |\n" for row in body)
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
