"""A TOML file of tasks that are learned at once: a table for each, with what is said of its files.

[reviews]
train = "reviews.csv"
label = "verdict"

[mrpc]
task = "mrpc"
data_dir = "data/MRPC"
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from t5x_like.data.corpora.corpus import CorpusError

ENDING = ".toml"


def read(file: str) -> dict[str, dict[str, Any]]:
    """{name of a task: what is said of it}, in the order of the file.

    Raises:
      CorpusError: it is not TOML, has no tasks, or something else than tables.
      OSError: it cannot be read.
    """
    try:
        content = tomllib.loads(Path(file).expanduser().read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CorpusError(f"{file} is not TOML: {error}") from error
    if not content:
        raise CorpusError(f"{file} has no task: each is a table, such as [reviews]")
    for name, said in content.items():
        if not isinstance(said, dict):
            raise CorpusError(
                f"{file}: {name!r} is not in the table of a task: begin each with its name, such "
                "as [reviews]"
            )
    return content
