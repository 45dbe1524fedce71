"""Every file that a run writes is cut, flipped in one bit, or deleted, before the run goes on.

The run goes on exactly as without the damage, or says in a sentence which file is damaged.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from cases import Cases
from tiny_run import Tiny, assert_same_state, finish, losses, write_text

STEPS = {"CHECKPOINT_PERIOD": 4, "EVAL_PERIOD": 4, "LOG_PERIOD": 1, "VOCABULARY": None}
STEPS |= {"VOCAB_SIZE": 100, "VOCAB_TYPE": "bpe", "PACK": True}
HOW = ("flipped", "cut", "deleted")


def run(cases: Cases) -> None:
    folder = cases.folder
    tiny = Tiny(folder, None, {"CORPUS": str(write_text(folder / "text.txt", 300))})

    def undisturbed() -> str:
        for run, total in (("straight", 12), ("half", 8)):
            shutil.rmtree(folder / run, ignore_errors=True)
            shutil.rmtree(folder / f"{run}-cache", ignore_errors=True)
            finish(tiny.start(_command(tiny, run, total)))
        return "undisturbed"

    cases.run("undisturbed", undisturbed)
    if not cases.is_good("undisturbed"):
        return
    for part in ("half", "half-cache"):
        for path in sorted((folder / part).rglob("*")):
            name = path.relative_to(folder)
            if path.is_file() and "tensorboard" not in path.parts and path.suffix != ".lock":
                for how in HOW:
                    cases.run(
                        f"{name} {how}",
                        lambda name=name, how=how: _damaged(tiny, folder, name, how),
                    )


def _command(tiny: Tiny, run: str, total: int) -> list[str]:
    cache = str(tiny.root / f"{run}-cache")
    return tiny.flags(run, **STEPS, CACHE_DIR=cache, TRAIN_STEPS=total)


def _damaged(tiny: Tiny, folder: Path, name: Path, how: str) -> str:
    for part in ("", "-cache"):
        shutil.rmtree(folder / f"tried{part}", ignore_errors=True)
        shutil.copytree(folder / f"half{part}", folder / f"tried{part}")
    path = folder / str(name).replace("half", "tried", 1)
    content = bytearray(path.read_bytes())
    if how == "deleted":
        path.unlink()
    elif how == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif content:
        place = random.Random(str(name)).randrange(len(content))
        content[place] ^= 1 << random.Random(how).randrange(8)
        path.write_bytes(content)
    process = tiny.start(_command(tiny, "tried", 12))
    _, err = process.communicate(timeout=300)
    if process.returncode == 0:
        assert_same_state(folder / "tried", folder / "straight")
        one, other = losses(folder / "tried"), losses(folder / "straight")
        assert {step: other[step] for step in one} == one
        return "exactly as without the damage"
    assert process.returncode == 1, f"{process.returncode}: {err[-2000:]}"
    assert "Traceback" not in err, err[-2000:]
    assert err.splitlines()[-1].startswith("error: "), err[-2000:]
    return "refused with a sentence"
