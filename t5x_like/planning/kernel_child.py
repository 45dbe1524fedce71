"""A process that compiles Pallas kernels one by one; the compiler dumps the bundles of each."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import SingleDeviceSharding

from t5x_like.planning.kernels import TARGET
from t5x_like.planning.topologies import topology

_ARRAY = re.compile(r"\b([a-z]\w*)\[([\d,]*)\]")
_DTYPES = {"pred": "bool", "bf16": "bfloat16", "s": "int", "u": "uint", "f": "float"}


def main() -> None:
    """Compiles the kernels that standard input lists; kernel n's bundles go to folder n."""
    request = json.load(sys.stdin)
    folder = Path(request["folder"])
    device = topology(request["topology"]).devices()[0]
    for n, kernel in enumerate(request["kernels"]):
        try:
            _compile(kernel, device)
        except jax.errors.JaxRuntimeError as error:
            print(f"kernel {n}: {error}", file=sys.stderr)  # the caller has another way
        (folder / str(n)).mkdir()
        for dump in [file for file in folder.glob("*bundles.txt") if "call" in file.name]:
            shutil.move(dump, folder / str(n))
        for dump in folder.glob("*-*.txt"):
            dump.unlink()


def _compile(kernel: dict[str, Any], device: jax.Device) -> None:
    where = SingleDeviceSharding(device)
    operands = [
        jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=where)
        for shape in kernel["operands"]
        for array in _arrays(shape)
    ]
    call = jax.ffi.ffi_call(
        TARGET,
        _arrays(kernel["result"]),
        custom_call_api_version=1,
        legacy_backend_config=kernel["config"],
        has_side_effect=True,
    )
    jax.jit(lambda *arrays: call(*arrays)).lower(*operands).compile()


def _arrays(shape: str) -> list[jax.ShapeDtypeStruct]:
    return [
        jax.ShapeDtypeStruct([int(side) for side in sides.split(",") if side], _dtype(name))
        for name, sides in _ARRAY.findall(shape)
    ]


def _dtype(name: str) -> Any:
    """JAX's dtype for XLA's name of it: `s32` is int32."""
    known = _DTYPES.get(name) or re.sub(r"^[suf](?=\d+$)", lambda m: _DTYPES[m[0]], name)
    return jnp.dtype(known)


if __name__ == "__main__":
    main()
