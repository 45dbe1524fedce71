"""Measures the memory of `t5x_like import` and `export` beside one copy of a model's weights.

    python benchmarks/weights_memory.py --model bert_large

Writes a model of a published size with random weights in Hugging Face's format, imports it and
exports it again, each in its own process, and prints the peaks of their memory.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import math
import multiprocessing
import subprocess
import sys
import tempfile
from pathlib import Path

RUN = """
import json, sys, threading, time
from pathlib import Path
from t5x_like.cli.main import main

peak = 0

def watch():
    # Anonymous memory: pages of a mapped file can be taken back at any time.
    global peak
    while True:
        lines = Path("/proc/self/status").read_text().splitlines()
        peak = max(peak, *(int(line.split()[1]) for line in lines if line.startswith("RssAnon")))
        time.sleep(0.005)

threading.Thread(target=watch, daemon=True).start()
status = main(sys.argv[1:])
print(json.dumps([status, peak]))
"""


def main() -> None:
    """Prints the weights' size and the peaks as a JSON line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="bert_large", help="a name of `t5x_like inspect`")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source, imported, exported = (Path(folder) / name for name in ("hf", "imported", "again"))
        # In its own process: a child's peak begins with what its parent holds.
        with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as one:
            size = one.submit(_write_random, args.model, source).result()
        base = _peak("inspect", args.model, "--count")
        found = {
            "model": args.model,
            "weights_mb": round(size / 2**20),
            "base_mb": round(base),
            "import_mb": round(_peak("import", f"--from={source}", f"--to={imported}")),
            "export_mb": round(_peak("export", f"--from={imported}", f"--to={exported}")),
        }
    weights = found["weights_mb"]
    for name in ("import", "export"):
        found[f"{name}_copies"] = round((found[f"{name}_mb"] - found["base_mb"]) / weights, 2)
    print(json.dumps(found))


def _write_random(model: str, directory: Path) -> int:
    """Writes random weights; returns their bytes."""
    import jax
    import numpy as np
    from flax import nnx

    from t5x_like.config import gin_config
    from t5x_like.interop.hugging_face import model_directory

    gin_config.load([model])
    make = gin_config.macro("MODEL")
    abstract = nnx.eval_shape(lambda: make(rngs=nnx.Rngs(0)))
    shapes = nnx.to_pure_dict(nnx.state(abstract, nnx.Param))
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda x: rng.standard_normal(x.shape, np.float32), shapes)
    model_directory.write(directory, abstract, params)
    return 4 * sum(math.prod(x.shape) for x in jax.tree.leaves(shapes))


def _peak(*argv: str) -> float:
    """Peak memory of a `t5x_like` command, in MiB."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, *argv], capture_output=True, text=True, check=True
    )
    status, kibibytes = json.loads(done.stdout.splitlines()[-1])
    if status:
        raise SystemExit(done.stderr)
    return kibibytes / 2**10


if __name__ == "__main__":
    main()
