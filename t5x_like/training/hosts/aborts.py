"""An abort of this process that waits until its reason is told."""

from __future__ import annotations

import ctypes
import signal


def wait_for_the_reason() -> None:
    """Gives this process 6 seconds between JAX's decision to abort it and the end.

    JAX aborts where process 0 has gone. This is noticed here at the same moment: there is time to
    say so, and to leave with the right status. Else the process ends as it would have.

    The handler is C's `sleep`. One in Python would never run: JAX aborts in a thread that does not
    return to Python, and Python's handlers run in the main thread alone. POSIX lets a handler call
    few functions; `sleep` is one. A handler is called with the number of its signal, and that of
    SIGABRT is 6: so many seconds it sleeps, while the other threads go on.
    """
    libc = ctypes.CDLL(None)
    libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    libc.signal.restype = ctypes.c_void_p
    libc.signal(signal.SIGABRT, ctypes.cast(libc.sleep, ctypes.c_void_p))
