"""4, 2 and 1 processes take turns on one run: the same rows, and the same losses to rounding."""

from __future__ import annotations

from cases import Cases
from tiny_run import Tiny, finish, losses, recorded_rows, write_text

TURNS = (4, 2, 1, 2, 4)
EACH = 6


def run(cases: Cases) -> None:
    cases.run("4, 2, 1, 2, 4 processes", lambda: _turns(cases))


def _turns(cases: Cases) -> str:
    folder = cases.folder
    tiny = Tiny(folder, None, {"CORPUS": str(write_text(folder / "text.txt", 300))})
    for turn, count in enumerate(TURNS, 1):
        argv = tiny.flags("turns", TRAIN_STEPS=turn * EACH, CHECKPOINT_PERIOD=EACH)
        finish(*tiny.start_many(argv, count=count, driver=["--record"]))
    whole = tiny.flags("alone", TRAIN_STEPS=len(TURNS) * EACH)
    finish(*tiny.start_many(whole, count=1, driver=["--record"]))
    assert recorded_rows(folder / "turns") == recorded_rows(folder / "alone")
    one, other = losses(folder / "turns"), losses(folder / "alone")
    assert one.keys() == other.keys()
    apart = max(abs(one[step] - other[step]) / other[step] for step in one)
    assert apart < 1e-5, apart
    return f"the same rows, losses within {apart:.1g}"
