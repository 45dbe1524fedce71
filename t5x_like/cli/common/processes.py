"""The arguments of a command that runs in several processes, and how they begin and end."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator

from t5x_like.cli.common import arguments, errors


def add_run(parser: argparse.ArgumentParser) -> None:
    """Adds all flags that describe a run and its processes."""
    arguments.add_gin(parser, default="runs/local.gin")
    arguments.add_settings(parser)
    arguments.add_seqio(parser)
    add_distributed(parser)


def add_distributed(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of a run over several processes."""
    group = parser.add_argument_group("several processes")
    group.add_argument(
        "--distributed",
        action="store_true",
        help="join the other processes, one for each host; on a TPU slice no other flag is needed",
    )
    group.add_argument("--coordinator_address", metavar="HOST:PORT", help="address of process 0")
    group.add_argument("--num_processes", type=int, metavar="N", help="number of processes")
    group.add_argument("--process_id", type=int, metavar="I", help="number of this one, from 0")
    group.add_argument(
        "--watch_port",
        type=int,
        metavar="PORT",
        help="port of process 0 over which processes notice that one is missing or lost; 0 for "
        "none (default: the port after the coordinator's)",
    )
    group.add_argument(
        "--start_seconds",
        type=float,
        default=600.0,
        metavar="S",
        help="how long processes wait for each other at the start (default: 600)",
    )
    group.add_argument(
        "--lost_seconds",
        type=float,
        default=45.0,
        metavar="S",
        help="after how long without a sign of it a process is lost (default: 45)",
    )


@contextlib.contextmanager
def joined(args: argparse.Namespace) -> Iterator[None]:
    """Joins the other processes with `--distributed`. Enter it before JAX uses a device.

    If the block fails, this process ends here: the others hear why, and end as well.
    """
    if not args.distributed:
        yield
        return
    from t5x_like.training.hosts import joining

    peers = joining.join(
        joining.Members(args.coordinator_address, args.num_processes, args.process_id),
        watch_port=args.watch_port,
        start_seconds=args.start_seconds,
        lost_seconds=args.lost_seconds,
    )
    if peers is None:
        yield
        return
    try:
        yield
    except BaseException as error:
        joining.follow(error)
        with contextlib.suppress(OSError):  # nobody may read it any more
            errors.show(error)
        peers.fail(errors.text_of(error), errors.status_of(error))
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(errors.status_of(error))  # the usual end would wait for the others
    peers.leave()


def is_first() -> bool:
    """Whether this is process 0, or the only one."""
    import jax

    return jax.process_index() == 0
