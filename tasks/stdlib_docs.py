"""The corpus `stdlib_docs`: the English documentation that every CPython carries, about 2 MB."""

from __future__ import annotations

import ast
import hashlib
import inspect
import re
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path

from t5x_like.core.protocols.data import PLAIN_TEXT
from t5x_like.data.corpora import registry
from t5x_like.data.corpora.corpus import Corpus, ReadReport

# Tests, demonstrations and generated tables: hardly any English, or the same sentence repeated.
_LEFT_OUT = {
    "__phello__",
    "encodings",
    "idlelib",
    "lib2to3",
    "pydoc_data",
    "test",
    "tests",
    "turtledemo",
}

_PROSE = re.compile(r"""\s*["'`(]?\w""")


class StdlibDocs(Corpus):
    """Topics of `pydoc`, and docstrings of the standard library read without importing it.

    A document is a topic, a module with its functions, or a class with its methods. The text
    differs between versions and builds of Python; the fingerprint says which it is.
    """

    name = "stdlib_docs"
    held_out = 0.05
    columns = PLAIN_TEXT

    def read(self, split: str, report: ReadReport) -> Iterator[dict[str, str]]:
        del split, report
        for document in _topics():
            yield {"targets": document}
        for path, module in _sources():
            for document in _docstrings(path, module):
                yield {"targets": document}

    def fingerprint(self) -> str:
        sizes = [(module, path.stat().st_size) for path, module in _sources()]
        topics = sum(map(len, _topics()))
        python = (sys.implementation.name, sys.version, sys.platform)
        return hashlib.sha256(repr((python, topics, sizes)).encode()).hexdigest()

    def description(self) -> str:
        python = f"{sys.implementation.name} {sys.version.split()[0]}"
        return f"the documentation inside {python} on {sys.platform}"


def _topics() -> Iterator[str]:
    """Topics of `pydoc`; none where a distribution of Python leaves `pydoc_data` out."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        return
    for name in sorted(topics):
        yield _unwrapped(inspect.cleandoc(topics[name]))


def _sources() -> Iterator[tuple[Path, str]]:
    """Files of the standard library in the order of their names, with their module names."""
    root = Path(sysconfig.get_path("stdlib"))
    for name in sorted(sys.stdlib_module_names):
        if name in _LEFT_OUT:
            continue
        if (root / f"{name}.py").is_file():
            yield root / f"{name}.py", name
        inside = (path.relative_to(root) for path in (root / name).rglob("*.py"))
        for path in sorted(inside):
            if not _LEFT_OUT.intersection(path.parts):
                parts = path.with_suffix("").parts
                yield root / path, ".".join(p for p in parts if p != "__init__")


def _docstrings(path: Path, module: str) -> Iterator[str]:
    """One document for the module with its functions, then one for each class."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    pending: list[tuple[str, ast.Module | ast.ClassDef]] = [(module, tree)]
    while pending:
        name, node = pending.pop(0)
        entries = [_entry(name, node)]
        for child in node.body:
            if isinstance(child, ast.ClassDef):
                pending.append((f"{name}.{child.name}", child))
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                entries.append(_entry(f"{name}.{child.name}", child))
        if document := "\n\n".join(filter(None, entries)):
            yield document


def _entry(
    name: str, node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
) -> str:
    """The name on a line of its own, then the docstring; empty where there is none."""
    docstring = (ast.get_docstring(node) or "").strip()
    return f"{name}\n{_unwrapped(docstring)}" if docstring else ""


def _unwrapped(text: str) -> str:
    """Prose paragraphs on one line each: lines are what sentence-level objectives cut at."""
    paragraphs = re.split(r"\n\s*\n", text.strip("\n"))
    return "\n\n".join(map(_one_line_if_prose, paragraphs))


def _one_line_if_prose(paragraph: str) -> str:
    lines = paragraph.split("\n")
    indents = {len(line) - len(line.lstrip()) for line in lines}
    prose = len(indents) == 1 and all(map(_PROSE.match, lines))
    return " ".join(line.strip() for line in lines) if prose else paragraph


registry.add(StdlibDocs())
