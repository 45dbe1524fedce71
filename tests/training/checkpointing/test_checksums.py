"""Checksums by one or several processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from etils import epath

from t5x_like.training.checkpointing import checksums


@pytest.fixture
def folder(tmp_path: Path) -> epath.Path:
    (tmp_path / "params" / "d").mkdir(parents=True)
    for n in range(5):
        (tmp_path / "params" / "d" / f"{n}").write_bytes(bytes([n]) * (n + 1))
    (tmp_path / "metadata").write_text("{}")
    return epath.Path(tmp_path)


@pytest.mark.parametrize(("writers", "readers"), [(1, 1), (2, 1), (1, 3), (3, 2)])
def test_any_number_of_processes_finds_the_damage(
    folder: epath.Path, writers: int, readers: int
) -> None:
    for process in range(writers):
        checksums.write(folder, process=process, processes=writers)

    def damaged(under: str = "") -> list[str]:
        return sorted(
            line
            for process in range(readers)
            for line in checksums.verify(folder, under=under, process=process, processes=readers)
        )

    assert damaged() == []
    (folder / "params/d/1").write_bytes(b"xy")
    (folder / "params/d/2").write_bytes(b"xy")
    (folder / "params/d/4").unlink()
    assert damaged() == [
        "params/d/1: content changed",
        "params/d/2: 2 bytes, not 3",
        "params/d/4: missing",
    ]
    assert damaged("metadata") == []


NO_LISTS = ["{}", "[1]", '{"params/d/0": 7}', "{", '{"params/d/0": [1, "a"]}']


@pytest.mark.parametrize("content", NO_LISTS)
def test_a_list_that_is_no_list_of_all_files_is_damage(folder: epath.Path, content: str) -> None:
    for process in range(2):
        checksums.write(folder, process=process, processes=2)
    (folder / "checksums.1of2.json").write_text(content)
    assert checksums.verify(folder)


def test_a_file_that_a_file_browser_leaves_is_no_damage(folder: epath.Path) -> None:
    checksums.write(folder, process=0, processes=1)
    (folder / ".DS_Store").write_bytes(b"x")
    assert checksums.verify(folder) == []


def test_a_missing_list_is_told(folder: epath.Path) -> None:
    assert not checksums.complete(folder)
    checksums.write(folder, process=1, processes=2)
    assert not checksums.complete(folder)
    checksums.write(folder, process=0, processes=2)
    assert checksums.complete(folder)


def test_a_list_that_is_written_meanwhile_damages_nothing(
    folder: epath.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that has saved its own may go on while another still writes its list."""
    checksums.write(folder, process=0, processes=2)
    found = checksums._sizes_and_digests

    def late(directory: epath.Path) -> object:
        monkeypatch.undo()
        checksums.write(folder, process=1, processes=2)
        return found(directory)

    monkeypatch.setattr(checksums, "_sizes_and_digests", late)
    assert checksums.verify(folder) == []
    assert checksums.complete(folder)
