"""What is printed is what is run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from t5x_like.launching.commands import (
    Call,
    File,
    LaunchError,
    Note,
    Runner,
    Together,
    Wait,
    WaitedTooLongError,
    shell,
)

SAVE = "import sys; open(sys.argv[1], 'w').write(repr(sys.argv[2:]) + sys.stdin.read())"


def actions(folder: Path, hostile: list[str]) -> list:
    call = Call((sys.executable, "-c", SAVE, f"{folder}/a b", *hostile), stdin="END\n$x `y`\n")
    return [
        Note("a note\nof two lines"),
        File(folder / "it's" / "$(file)", "text $x\nEND\nEND_\n"),
        call,
        Call((sys.executable, "-c", SAVE, f"{folder}/c"), stdin=folder / "it's" / "$(file)"),
        Together((Call(("touch", f"{folder}/d"), host="one"), Call(("touch", f"{folder}/e;f")))),
        Wait(
            Call(("echo", "ready")),
            until="ready",
            dead=frozenset(),
            seconds=1,
            hours=1,
            advice="",
        ),
    ]


def contents(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_text() for path in files}


def test_a_dry_run_prints_a_script_of_what_is_performed(tmp_path, hostile, capfd):
    folder = tmp_path / "folder"
    folder.mkdir()
    Runner(dry=True).perform(actions(folder, hostile))
    assert contents(folder) == {}
    script = capfd.readouterr().out
    subprocess.run(["bash", "-euc", script], check=True, cwd=tmp_path)
    printed = contents(folder)
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        path.unlink()
    Runner(dry=False).perform(actions(folder, hostile))
    assert contents(folder) == printed
    assert set(printed) == {"a b", "it's/$(file)", "c", "d", "e;f"}
    assert printed["a b"] == repr(hostile) + "END\n$x `y`\n"


def test_secrets_are_hidden_and_their_files_private(tmp_path):
    secret = File(tmp_path / "s", "hunter2", secret=True)
    call = Call(("cat",), stdin="hunter2", secret=True)
    assert "hunter2" not in shell(secret) + shell(call)
    Runner(dry=False).perform([secret])
    assert (tmp_path / "s").stat().st_mode & 0o777 == 0o600


def test_a_failure_stops_the_rest(tmp_path):
    rest = Call(("touch", str(tmp_path / "x")))
    for failing in (Call(("false",)), Together((Call(("false",), host="h7"), Call(("true",))))):
        with pytest.raises(LaunchError, match="exit status 1 of: false"):
            Runner(dry=False).perform([failing, rest])
    with pytest.raises(LaunchError, match="no-such-program is not on PATH"):
        Runner(dry=False).perform([Call(("no-such-program",)), rest])
    assert not (tmp_path / "x").exists()


def test_lines_of_several_hosts_tell_their_host(capfd):
    calls = tuple(Call(("echo", f"hello\nof {n}"), host=f"h{n}") for n in range(3))
    Runner(dry=False).perform([Together(calls)])
    lines = capfd.readouterr().out.splitlines()
    assert sorted(lines) == sorted(f"[h{n}] {t}" for n in range(3) for t in ("hello", f"of {n}"))


def test_a_wait_ends(tmp_path):
    say = Call(("cat", str(tmp_path / "state")))
    wait = Wait(say, until="A", dead=frozenset({"D"}), seconds=0, hours=0, advice="try again")
    runner = Runner(dry=False)
    (tmp_path / "state").write_text("D\n")
    with pytest.raises(LaunchError, match="D: try again"):
        runner.perform([wait])
    (tmp_path / "state").write_text("B\n")
    with pytest.raises(WaitedTooLongError, match="still B after 0 hours: try again"):
        runner.perform([wait])
    (tmp_path / "state").write_text("A\n")
    runner.perform([wait])
