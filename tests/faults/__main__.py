"""Runs parts of the fault injection and prints what came of each case."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent.parent), str(HERE.parent), str(HERE.parent / "runs")]
os.environ["JAX_PLATFORMS"] = "cpu"
# As in tests/conftest.py: tiny models take their time to be compiled, not to run.
FAST = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count=8 {FAST}"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(Path(tempfile.gettempdir()) / "t5x_like-faults-compiled")
)
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"


def main() -> int:
    """Returns 0 if all cases are done and good, 1 if one is bad, 3 if some are left."""
    import damage
    import disk
    import fuzz
    import healthy
    import hosts
    import kills
    import soak
    import turns
    from cases import Cases

    parts = {
        **{f"kills-{name}": lambda cases, name=name: kills.run(cases, name) for name in kills.RUNS},
        "leaving": lambda cases: kills.run(cases, "t5", kills.ASKING),
        "hosts": hosts.run,
        "damage": damage.run,
        "disk": disk.run,
        "turns": turns.run,
        "fuzz": fuzz.run,
        "healthy": healthy.run,
        "soak": soak.run,
    }
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", choices=[*parts, []])
    parser.add_argument("--folder", type=Path, default=Path(".faults"))
    args = parser.parse_args()
    folder = args.folder.absolute()
    status = 0
    for name in args.parts or [one for one in parts if one != "soak"]:
        cases = Cases(folder, name)
        parts[name](cases)
        cases.show()
        status = max(status, cases.status())
    return status


if __name__ == "__main__":
    sys.exit(main())
