"""Labelled rows that are written once as JSON lines: `t5x_like finetune` reads files alone."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from t5x_like.core import whole_files
from t5x_like.data.cache.lock import sole_writer
from t5x_like.data.corpora.corpus import CorpusError

Row = Mapping[str, Any]


def written(
    splits: Mapping[str, Iterable[Row]], *, identity: Any, name: str, root: Path
) -> dict[str, str]:
    """The file of each split, which is written if it is not there.

    Args:
      splits: {name of the file: its rows}, which are read only where they are written.
      identity: JSON that tells these rows from others of the name.
      name: a name for the folder.
      root: the folder of caches.

    Raises:
      CorpusError: a split has no rows, or they cannot be read.
      OSError: the folder cannot be written to.
    """
    digest = hashlib.sha256(json.dumps([identity, sorted(splits)]).encode()).hexdigest()[:12]
    folder = root / "labelled" / f"{name}-{digest}"
    paths = {split: folder / f"{split}.jsonl" for split in splits}
    with sole_writer(folder):
        for split, path in paths.items():
            if path.exists():
                continue
            rows = iter(splits[split])
            if (first := next(rows, None)) is None:
                raise CorpusError(f"{name} has no rows for {split}")
            with whole_files.writing(path) as out:
                for row in itertools.chain([first], rows):
                    text = json.dumps(row, ensure_ascii=False)
                    out.write(text.encode(errors="surrogateescape") + b"\n")
    return {split: str(path) for split, path in paths.items()}
