"""Fields that several launchers have, with their usual values."""

from __future__ import annotations

from typing import Any

INSTALLED: dict[str, Any] = {
    "package": "",  # wheel, or git+https://...@COMMIT; empty packs this checkout
    "extras": "cuda",  # extras of the package, such as "cuda,gcs" or "cuda,s3" for buckets
    "python": "3.12",  # Python that uv installs on the hosts
    "environment": "",  # folder of an environment that all hosts have; empty makes one
}
"""Of launchers that install the package on the hosts."""

OF_RUN: dict[str, Any] = {
    "env": "",  # variables of the run, no secrets: "A=1 B='two words'"
    "secrets": "",  # names of variables of this shell whose values the run gets: A,B
    "prepare": "",  # shell command on every host before each start, such as a mount
    "restarts_without_progress": 5,  # restarts at the same checkpoint before it gives up
    "stop_seconds": 600,  # time to save after a notice to leave
    "price_per_chip_hour": 0.0,  # price of a chip or GPU for an hour, for the cost of the run
    "hours": 0.0,  # expected length of the run, for its cost
}
"""Of all launchers."""
