"""Arguments that several subcommands share: gin files and bindings, processes, text files."""

from __future__ import annotations

import argparse
import os


def add_gin(parser: argparse.ArgumentParser, *, default: str) -> None:
    """Adds T5X's flags `--gin_file`, `--gin_search_paths`; `--gin.NAME=value` is read by `parse`."""
    group = parser.add_argument_group("configuration")
    group.add_argument(
        "--gin_file",
        action="append",
        metavar="FILE",
        help=f"a gin file, looked for here and in the package; may be repeated, later ones win "
        f"(default: {default})",
    )
    group.add_argument(
        "--gin_search_paths",
        default=[],
        type=lambda text: text.split(","),
        metavar="DIRS",
        help="comma-separated folders to look for gin files in as well",
    )
    group.add_argument(
        "--gin.NAME=VALUE",
        dest="_gin",
        action="append",
        metavar="",
        help='overrides a macro or a parameter; VALUE is Python: --gin.MODEL_DIR="\'runs/mine\'"',
    )
    parser.set_defaults(default_gin_file=default)


def add_distributed(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of a run over several processes."""
    group = parser.add_argument_group("several processes")
    group.add_argument(
        "--distributed",
        action="store_true",
        help="join the other processes (one a host); a TPU slice finds them by itself",
    )
    group.add_argument("--coordinator_address", metavar="HOST:PORT", help="of process 0")
    group.add_argument("--num_processes", type=int, metavar="N")
    group.add_argument("--process_id", type=int, metavar="I")


def parse(
    parser: argparse.ArgumentParser, argv: list[str]
) -> tuple[argparse.Namespace, list[str]]:
    """Parses `argv`, taking `--gin.NAME=value` (or `--gin.NAME value`) out first.

    Returns:
      The parsed arguments and the bindings, each `NAME=value`.
    """
    rest: list[str] = []
    bindings: list[str] = []
    words = iter(argv)
    for word in words:
        if not word.startswith("--gin."):
            rest.append(word)
            continue
        binding = word.removeprefix("--gin.")
        if "=" not in binding:
            value = next(words, None)
            if value is None:
                parser.error(f"{word} has no value: {word}=VALUE")
            binding = f"{binding}={value}"
        bindings.append(binding)
    args = parser.parse_args(rest)
    if hasattr(args, "gin_file"):
        args.gin_file = args.gin_file or [args.default_gin_file]
    return args, bindings


def join_processes(args: argparse.Namespace) -> None:
    """Joins the other processes when asked to; must come before anything touches a device."""
    if not args.distributed:
        return
    import jax

    if os.environ.get("JAX_PLATFORMS") == "cpu":
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        coordinator_address=args.coordinator_address,
        num_processes=args.num_processes,
        process_id=args.process_id,
    )
