"""Lets the tests of training import their tiny model."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
