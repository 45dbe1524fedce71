"""Saved steps for the tests of checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest
from saved_steps import save_three


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A directory with steps 1, 2 and 3."""
    save_three(tmp_path)
    return tmp_path
