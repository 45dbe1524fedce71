"""`t5x_like devices`: says which devices JAX finds, on this host or on all hosts of a slice."""

from __future__ import annotations

import dataclasses
import json

from t5x_like.cli.common import processes
from t5x_like.cli.common.parsers import CommandParser

_EPILOG = """\
examples:
  t5x_like devices                  what is on this host
  t5x_like devices --distributed    on every host of a TPU slice: what all of them have
  srun t5x_like devices --distributed
"""


def main(argv: list[str]) -> int:
    """Prints a table of hosts. The status is 1 if hosts differ, which no run can use."""
    parser = CommandParser(
        "devices",
        description="Says which devices JAX finds, on this host or on all hosts of a slice.",
        epilog=_EPILOG,
    )
    parser.add_argument("--json", action="store_true", help="as JSON")
    processes.add_distributed(parser)
    args = parser.parse_args(argv)
    with processes.joined(args):
        return _show(as_json=args.json)


def _show(*, as_json: bool) -> int:
    import jax

    from t5x_like.display.tables import aligned
    from t5x_like.training.hosts import inventory

    hosts = inventory.all_hosts()
    different = inventory.differences(hosts)
    if processes.is_first():
        if as_json:
            fields = [dataclasses.asdict(host) for host in hosts]
            print(json.dumps({"backend": jax.default_backend(), "hosts": fields}, indent=1))
        else:
            head = ("process", "host", "devices", "memory of one", "cores", "memory of host")
            rows = [
                (
                    str(host.process),
                    host.name,
                    f"{host.devices} x {host.device_kind}",
                    _gigabytes(host.device_bytes),
                    str(host.cores or "?"),
                    _gigabytes(host.host_bytes),
                )
                for host in hosts
            ]
            print(aligned([head, *rows], right={0, 3, 4, 5}))
            versions = ", ".join(f"{name} {it}" for name, it in hosts[0].versions.items())
            parts = [inventory.summary(hosts), inventory.peak_line(hosts), versions]
            print("; ".join(filter(None, parts)))
            for line in (*different, *(text for host in hosts for text in host.unused)):
                print(f"note: {line}")
    return 1 if different else 0


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count else "not known"
