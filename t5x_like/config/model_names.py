"""The names of published models: gin/models/t5_1_1/xxl.gin is `t5_1_1_xxl`."""

from __future__ import annotations

import re
from pathlib import Path


def model_files(folder: Path) -> dict[str, Path]:
    """{name: file} of the models below `folder`: families by name, each from small to large.

    A file's name is its path with `_` for `/`. Files called shared.gin are parts of models.
    """
    files = sorted(
        (file for file in folder.rglob("*.gin") if file.stem != "shared"),
        key=lambda file: (_family(file, folder), stated_count(file) or 0, file),
    )
    return {"_".join(file.relative_to(folder).with_suffix("").parts): file for file in files}


def stated_count(file: Path) -> int | None:
    """The "N parameters" of a gin file's comment; None where it states none."""
    found = re.search(r"^#.*?\b(\d[\d,]*) parameters", file.read_text(encoding="utf-8"), re.M)
    return int(found[1].replace(",", "")) if found else None


def _family(file: Path, folder: Path) -> str:
    """`gpt2` of gpt2.gin and of gpt2/medium.gin."""
    return file.relative_to(folder).with_suffix("").parts[0]
