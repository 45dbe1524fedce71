"""`t5x_like inspect`: lists the published models, or the parameters of one as a table."""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from t5x_like.cli.common import arguments, opening
from t5x_like.cli.common.parsers import CommandParser
from t5x_like.core.buckets import storage
from t5x_like.display.tables import aligned

if TYPE_CHECKING:
    from t5x_like.core.partitioning import Layout
    from t5x_like.display.parameter_table import Parameter

_EPILOG = """\
examples:
  t5x_like inspect
      the names of all models, also for `t5x_like train --gin_file=NAME`
  t5x_like inspect t5_1_1_xxl --mesh data=4,tensor=2
      every parameter, how it is split, and what a device of that mesh holds
  t5x_like inspect t5_small --count --gin.t5.Config.d_ff=1024
      the number of parameters alone

Nothing is allocated, so models and meshes may be larger than this machine.
"""


def main(argv: list[str]) -> int:
    """Prints the models, or a table or the number of one model's parameters."""
    parser = _parser()
    args, bindings = arguments.parse(parser, argv)
    if args.model is None and (args.count or args.mesh or bindings):
        parser.error("name the MODEL")

    if args.model is None:
        print(_listing())
        return 0
    _configure(args.model, bindings, args.module)

    from t5x_like.display.parameter_table import abstract_parameters, layout_without_devices

    parameters = abstract_parameters(_constructor())
    if args.count:
        print(f"{sum(parameter.count for parameter in parameters):,}")
        return 0
    layout = layout_without_devices(args.mesh) if args.mesh else None
    print(_table(parameters, layout))
    print()
    print("\n".join(_summary(args.model, parameters, layout)))
    return 0


def _constructor() -> Callable[..., Any]:
    """The constructor of the configured model, with `ADAPT` applied if it is configured."""
    import gin

    from t5x_like.config import gin_config
    from t5x_like.runs.run import adapted

    make = gin_config.macro("MODEL")
    adapt = gin_config.macro("ADAPT") if gin.get_bindings("ADAPT/gin.macro") else None
    return lambda rngs: adapted(make(rngs=rngs), adapt, rngs)


def _parser() -> CommandParser:
    parser = CommandParser(
        "inspect",
        description="Lists the published models, or the parameters of one: shape, logical axes, "
        "sharding on a mesh, count and share.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "model",
        nargs="?",
        metavar="MODEL",
        help="a name (t5_1_1_xxl), a gin file, or the directory of a run or of imported weights",
    )
    parser.add_argument(
        "--mesh",
        type=_mesh,
        metavar="AXIS=N,AXIS=N",
        help="a mesh of devices, which need not exist: show how it splits each parameter",
    )
    parser.add_argument("--count", action="store_true", help="print the total alone")
    opening.add_modules(parser)
    parser.add_argument(
        "--gin.NAME=VALUE",
        dest="_gin",
        action="append",
        metavar="",
        help="overrides a macro or a parameter of the model: --gin.t5.Config.d_ff=1024",
    )
    return parser


def _mesh(text: str) -> dict[str, int]:
    """The sizes of a mesh, without -1, as there are no devices to count."""
    sizes = arguments.sizes(text)
    if min(sizes.values()) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: the size of an axis is at least 1")
    return sizes


def _listing() -> str:
    """A table of the models: name, number of parameters and gin file."""
    from t5x_like.config import gin_files

    root = gin_files.gin_root()
    rows = [
        (name, f"{file.parameters:,}", str(file.family.relative_to(root)))
        for name, file in gin_files.published_models().items()
    ]
    return aligned([("model", "parameters", "gin file"), *rows], right={1})


def _configure(model: str, bindings: Sequence[str], modules: Sequence[str]) -> None:
    """Loads the configuration of a model's name, a gin file or a directory."""
    from t5x_like.config import gin_config, gin_files
    from t5x_like.runs import run_directory

    directory = storage.path(model)
    if directory.is_dir() and model not in gin_files.published_models():
        run_directory.load_config(directory, modules)
        gin_config.bind(bindings)
    else:
        gin_config.load([model], bindings)


def _table(parameters: Sequence[Parameter], layout: Layout | None) -> str:
    """A table of the parameters, with a subtotal above each module that has several."""
    total = sum(parameter.count for parameter in parameters)

    def row(name: str, of: Sequence[Parameter], *cells: str) -> tuple[str, ...]:
        count = sum(parameter.count for parameter in of)
        padding = ("",) * (len(head) - 3 - len(cells))
        return (name, *cells, *padding, f"{count:,}", f"{count / total:.2%}")

    head = ("parameter", "shape", "axes", "dtype", *(["sharding"] if layout else []))
    head = (*head, "count", "share")
    rows = []
    for module, group in itertools.groupby(parameters, lambda parameter: parameter.module):
        members = list(group)
        if len(members) > 1:
            rows.append(row(module, members))
        indent = "  " * (len(members) > 1)
        rows += [
            row(indent + parameter.path, [parameter], *_cells(parameter, layout))
            for parameter in members
        ]
    counts = {len(head) - 2, len(head) - 1}
    return aligned([head, *rows, row("total", parameters)], right=counts)


def _cells(parameter: Parameter, layout: Layout | None) -> list[str]:
    """Shape, axes, dtype and, on a mesh, the sharding."""
    shape = "x".join(map(str, parameter.shape)) or "scalar"
    cells = [shape, " ".join(axis or "-" for axis in parameter.axes), parameter.dtype.name]
    return [*cells, _split(layout.spec(parameter.axes, parameter.shape))] if layout else cells


def _split(spec: Iterable[Any]) -> str:
    """A `PartitionSpec` as code writes it, or "replicated"."""
    entries = tuple(spec)
    return f"P({', '.join(map(repr, entries))})" if any(entries) else "replicated"


def _summary(name: str, parameters: Sequence[Parameter], layout: Layout | None) -> Iterable[str]:
    """Lines with the total, its bytes, and the bytes on each device of the mesh."""
    from t5x_like.display.parameter_table import bytes_per_device

    count, size = (
        sum(parameter.count for parameter in parameters),
        sum(parameter.bytes for parameter in parameters),
    )
    yield f"{name}: {count:,} parameters, {_size(size)}"
    if layout:
        shape = dict(layout.mesh.shape)
        mesh = ", ".join(f"{axis}={size}" for axis, size in shape.items())
        yield (
            f"on each of {math.prod(shape.values())} devices ({mesh}): "
            f"{_size(bytes_per_device(parameters, layout))} of parameters, without an optimizer"
        )


def _size(count: float) -> str:
    """A number of bytes with four digits and a unit."""
    power = min(int(math.log2(max(count, 1)) // 10), 4)
    return f"{count / 1024**power:.4g} {('bytes', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"
