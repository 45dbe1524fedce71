"""Errors that Orbax also raises are not printed; those of others are."""

from __future__ import annotations

import logging

import pytest

from t5x_like.training.checkpointing import quiet_saves


@pytest.mark.parametrize(
    ("file", "shown"), [("/site/orbax/checkpoint/path.py", False), ("/mine/writer.py", True)]
)
def test_an_error_that_nobody_waited_for_is_shown_unless_it_is_of_orbax(
    file: str, shown: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """asyncio says whose it is in the traceback alone."""
    quiet_saves.quieten()
    try:
        exec(compile("raise OSError(30, 'Read-only file system')", file, "exec"))
    except OSError as error:
        logging.getLogger("asyncio").error(
            "Future exception was never retrieved\nfuture: <Future finished>", exc_info=error
        )
    assert ("never retrieved" in caplog.text) == shown


def test_an_error_of_a_read_array_has_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    quiet_saves.quieten()
    text = "future: <Future finished exception=ValueError('NOT_FOUND: ... [tensorstore_spec=...]')>"
    logging.getLogger("asyncio").error(f"Future exception was never retrieved\n{text}")
    assert not caplog.records
