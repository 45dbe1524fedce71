"""The exit statuses of `t5x_like`; `docs/launching.md` says what follows each of them."""

DONE = 0
ERROR = 1
USAGE = 2
"""Wrong arguments."""
SAVED = 3
"""A run was asked to leave, and saved its step: start it again."""
NO_ROOM = 6
"""A disk has no room for a checkpoint: make room, then start the run again."""
GAVE_UP = 40
"""A run started too often without a new checkpoint."""
INTERRUPTED = 130

FINAL = (DONE, USAGE, NO_ROOM, GAVE_UP)
"""After these no launcher starts a run again."""
