"""The manifest, index and vocabulary of a cache; most manifests agree with the damaged files."""

from __future__ import annotations

import io
import json

import numpy as np
from hypothesis import strategies as st
from mutations import of_bytes, of_json, of_value, one_of
from test_arrayrecord import MANIFEST, make, read, signed

from t5x_like.data.cache import format

__all__ = ["make", "read"]


def damage(draw, files):
    if draw(st.booleans()):
        return _other_manifest(draw, files)
    small = [name for name in files if name.endswith((".npy", ".json")) and name != MANIFEST]
    name = draw(st.sampled_from(small))
    changes = [of_json] if name.endswith(".json") else [of_bytes, _array, _array]
    damaged = one_of(draw, files, draw(st.sampled_from(changes)), [name])
    return signed(damaged) if draw(st.integers(0, 4)) else damaged


def _other_manifest(draw, files):
    if draw(st.integers(0, 3)) == 0:
        return one_of(draw, files, of_json, [MANIFEST])
    fields = json.loads(files[MANIFEST])
    fields.pop("sha256")
    changed = of_value(draw, fields)
    if isinstance(changed, dict):
        changed["sha256"] = format._digest(changed)
    return {**files, MANIFEST: json.dumps(changed).encode()}


def _array(draw, content):
    """An array of other numbers, type or shape."""
    array = np.load(io.BytesIO(content))
    match draw(st.sampled_from(["number", "type", "shape", "longer"])):
        case "number" if array.size:
            value = draw(st.sampled_from([-1, 0, 1, 10**12, 2**62]))
            array.flat[draw(st.integers(0, array.size - 1))] = (
                value % 2 if array.dtype == bool else value
            )
        case "type":
            array = array.astype(draw(st.sampled_from(["int8", "float64", "bool", "U3"])))
        case "shape":
            array = array.reshape(-1) if array.ndim > 1 else array[None]
        case "longer":
            array = np.concatenate([array, array], axis=-1)
    made = io.BytesIO()
    np.save(made, array)
    return made.getvalue()


def test_damaged_manifests(fuzz):
    fuzz(__file__, damage)
