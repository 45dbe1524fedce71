"""The exit statuses of `t5x_like`; `docs/when_it_goes_wrong.md` says what to do after each."""

DONE = 0
ERROR = 1
USAGE = 2
"""Wrong arguments."""
SAVED = 3
"""A run was asked to leave, and saved its step: start it again."""
DIVERGED = 4
"""A loss or norm is not finite, or the loss is far above its best: a person must look."""
LOST = 5
"""Another process of the run ended or is silent: start all again."""
NO_ROOM = 6
"""A disk has no room for a checkpoint or another file: make room, then start it again."""
STALLED = 7
"""No step was finished in many times the usual time: start all again."""
MISSING = 8
"""A process did not come in time at the start: start all again."""
GAVE_UP = 40
"""A run started too often without a new checkpoint."""
INTERRUPTED = 130

FINAL = (DONE, USAGE, DIVERGED, NO_ROOM, GAVE_UP)
"""After these no launcher starts a run again."""
