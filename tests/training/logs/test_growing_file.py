"""Files that grow by lines: what a kill or a full disk has cut is removed."""

from __future__ import annotations

from pathlib import Path

import pytest
from etils import epath

from t5x_like.training.logs import growing_file
from t5x_like.training.logs.growing_file import GrowingFile


@pytest.mark.parametrize("begun", ["", '{"step": 1}\n', '{"step": 1}\n{"step": 2}\n'])
@pytest.mark.parametrize("torn", ["", '{"st', "x" * (2 * growing_file._CHUNK + 5)])
def test_a_torn_line_is_cut_back(begun: str, torn: str, tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(begun + torn)
    GrowingFile(epath.Path(path)).add('{"step": 3}')
    assert path.read_text() == begun + '{"step": 3}\n'


def test_a_line_that_a_full_disk_has_cut_comes_whole_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = epath.Path(tmp_path) / "metrics.jsonl"
    file = GrowingFile(path)
    file.add('{"step": 1}')
    real = type(path).open

    class Full:
        """A file on a disk that has room for five bytes more."""

        def __init__(self, inner: object) -> None:
            self.inner = inner

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None:
            self.inner.close()

        def write(self, text: str) -> None:
            self.inner.write(text[:5])
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(path), "open", lambda self, mode="r": Full(real(self, mode)))
    with pytest.raises(OSError, match="No space"):
        file.add('{"step": 2}')
    monkeypatch.undo()
    file.add('{"step": 3}')
    assert path.read_text().splitlines() == [f'{{"step": {n}}}' for n in (1, 2, 3)]
