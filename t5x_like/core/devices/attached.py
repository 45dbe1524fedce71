"""The accelerators of this machine, found by the files of their drivers, without JAX."""

from __future__ import annotations

import glob

_FILES = {"cuda": ("/dev/nvidia[0-9]*",), "tpu": ("/dev/accel*", "/dev/vfio/[0-9]*")}


def attached() -> list[str]:
    """The kinds that are here, by the extra of the package that they need: "cuda", "tpu"."""
    return [kind for kind, patterns in _FILES.items() if any(map(glob.glob, patterns))]
