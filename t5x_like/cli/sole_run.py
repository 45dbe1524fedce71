"""One run at a time trains in a directory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import jax
from etils import epath

from t5x_like.data.cache_lock import HeldError, sole_writer
from t5x_like.training import multihost

_LOCK = ".training"


@contextlib.contextmanager
def sole_run(model_dir: epath.Path) -> Iterator[None]:
    """Holds a run's directory while its processes train; process 0 does so for all of them.

    The lock dies with its holder. A bucket has none, nor have some network file systems.

    Raises:
      ProcessError: another run holds it; says who.
    """
    with contextlib.ExitStack() as stack:
        holder = None
        if jax.process_index() == 0 and "://" not in str(model_dir):
            try:
                stack.enter_context(sole_writer(Path(model_dir), lock=_LOCK, wait=False))
            except HeldError as held:
                holder = str(held)
            except ValueError:  # a file system without locks
                pass
        if multihost.everywhere(holder is not None).any():
            raise multihost.ProcessError(
                f"another run is training in {model_dir}: {holder or 'process 0 says which'}. Two "
                "would destroy each other's checkpoints: wait for it, end it, or choose another "
                "MODEL_DIR"
            )
        yield
