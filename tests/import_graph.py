"""Who imports whom among our files, for the rules of test_architecture.py and a picture of them."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCES = sorted(
    path for folder in ("t5x_like", "tasks", "launch") for path in (ROOT / folder).rglob("*.py")
)


@dataclasses.dataclass(frozen=True)
class Import:
    """One import statement: a dotted name, and whether it waits for a call."""

    name: str
    line: int
    in_function: bool


def imports_of(source: str, module: str) -> Iterator[Import]:
    """All imports of a file, `importlib.import_module("...")` and the like among them."""

    def visit(node: ast.AST, in_function: bool) -> Iterator[Import]:
        names: list[str] = []
        match node:
            case ast.Import():
                names = [alias.name for alias in node.names]
            case ast.ImportFrom():
                parent = module.split(".")[: -node.level] if node.level else []
                origin = ".".join([*parent, *filter(None, [node.module])])
                names = [f"{origin}.{alias.name}" for alias in node.names]
            case ast.Call(
                func=ast.Name(id=called) | ast.Attribute(attr=called),
                args=[ast.Constant(value=str(name)), *_],
            ) if called in ("__import__", "import_module", "require"):
                names = [name]
            case ast.If(test=ast.Name(id=test) | ast.Attribute(attr=test)):
                in_function = in_function or test == "TYPE_CHECKING"
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                in_function = True
        yield from (Import(name, node.lineno, in_function) for name in names)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, in_function)

    return visit(ast.parse(source), False)


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def module_name(path: Path) -> str:
    """The dotted name under which a file is installed."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts if parts[0] == "t5x_like" else ("t5x_like", *parts))


def files_between() -> dict[str, set[str]]:
    """{module of ours: the modules of ours that it imports, inside functions too}."""
    known = {module_name(path).removesuffix(".__init__"): path for path in SOURCES}
    found: dict[str, set[str]] = {}
    for name, path in known.items():
        named = [one.name for one in imports_of(text(path), module_name(path))]
        # `from a.b import c` is read as a.b.c, which may be a name in module a.b.
        there = {one if one in known else one.rpartition(".")[0] for one in named}
        found[name] = {one for one in there if one in known and one != name}
    return found


def packages_between() -> dict[str, set[str]]:
    """{package, or module beside them: those that it imports}, names without `t5x_like.`."""
    found: dict[str, set[str]] = {}
    for name, targets in files_between().items():
        here = name.partition(".")[2].partition(".")[0]
        there = {target.partition(".")[2].partition(".")[0] for target in targets}
        if here:
            found.setdefault(here, set()).update(there - {here, ""})
    # Whose modules it imports by name, for the corpora that they register.
    found["data"].discard("tasks")
    return found


def circles(graph: Mapping[str, set[str]]) -> list[str]:
    """A circle of a graph, if it has one: `a`, `b`, `a`."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def picture() -> str:
    """The packages as a mermaid graph; an arrow that follows from two others is left out."""
    graph = packages_between()
    reached = {name: _reached(graph, name) for name in graph}
    lines = ["```mermaid", "graph TD"]
    for name in sorted(graph):
        direct = {
            one
            for one in graph[name]
            if not any(one in reached[other] for other in graph[name] - {one})
        }
        lines += [f"    {name} --> {one}" for one in sorted(direct)]
    return "\n".join([*lines, "```"])


def _reached(graph: Mapping[str, set[str]], name: str) -> set[str]:
    found: set[str] = set()
    waiting = [*graph[name]]
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting += graph.get(one, ())
    return found


def rooms_between(package: str) -> dict[str, set[str]]:
    """{file or folder of a package: those that it imports}, names without the package's."""
    found: dict[str, set[str]] = {}
    start = f"t5x_like.{package}."
    for name, targets in files_between().items():
        if not name.startswith(start):
            continue
        here = name.removeprefix(start).partition(".")[0]
        inside = (
            one.removeprefix(start).partition(".")[0] for one in targets if one.startswith(start)
        )
        found.setdefault(here, set()).update(room for room in inside if room != here)
    return found
