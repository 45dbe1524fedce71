"""How much memory `t5x_like import` and `export` take, beside one copy of a model's weights.

    python benchmarks/weights_memory.py --model bert_large

Writes a model of a published size with random weights in Hugging Face's format, imports it, exports
it again, each in a process of its own, and prints what those held at most.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

RUN = """
import json, resource, sys
from t5x_like.cli.main import main
status = main(sys.argv[1:])
print(json.dumps([status, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss]))
"""


def main() -> None:
    """Prints the weights' size and the peaks as a JSON line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="bert_large", help="a name of `t5x_like inspect`")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source, imported, exported = (Path(folder) / name for name in ("hf", "imported", "again"))
        size = _write_random(args.model, source)
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
    """Bytes of the weights."""
    import jax
    import numpy as np
    from flax import nnx

    from t5x_like.cli import gin_config
    from t5x_like.interop import hugging_face

    gin_config.load([model])
    make = gin_config.macro("MODEL")
    abstract = nnx.eval_shape(lambda: make(rngs=nnx.Rngs(0)))
    shapes = nnx.to_pure_dict(nnx.state(abstract, nnx.Param))
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda x: rng.standard_normal(x.shape, np.float32), shapes)
    hugging_face.write(directory, abstract, params)
    return 4 * sum(math.prod(x.shape) for x in jax.tree.leaves(shapes))


def _peak(*argv: str) -> float:
    """Of a command of `t5x_like`, MiB."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, *argv], capture_output=True, text=True, check=True
    )
    status, kibibytes = json.loads(done.stdout.splitlines()[-1])
    if status:
        raise SystemExit(done.stderr)
    return kibibytes / 2**10


if __name__ == "__main__":
    main()
