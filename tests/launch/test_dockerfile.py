"""The container build file, as far as it goes without Docker and a registry."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FILE = Path(__file__).parents[2] / "launch" / "Dockerfile"


def instructions() -> list[tuple[str, str]]:
    """The instructions, with continued lines joined."""
    text = re.sub(r"^#.*\n", "", FILE.read_text(), flags=re.M).replace("\\\n", " ")
    return [tuple(line.split(None, 1)) for line in text.splitlines() if line.strip()]


def test_its_instructions():
    found = instructions()
    assert {name for name, _ in found} <= {
        *("ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "FROM", "RUN", "USER", "WORKDIR"),
    }
    assert re.fullmatch(r"python:3\.12\.\d+-slim-\w+", found[0][1])  # pinned
    users = [text for name, text in found if name == "USER"]
    assert users == ["trainer"]
    for name, text in found:
        if name in ("CMD", "ENTRYPOINT"):
            assert isinstance(json.loads(text), list)


@pytest.mark.parametrize(
    ("extra", "installed"),
    [
        ("cpu", "[gcs,s3]"),
        ("tpu", "[tpu,gcs,s3]"),
        ("cuda", "[cuda,gcs,s3]"),
        ("rocm", None),
    ],
)
def test_it_installs_the_wheel_with_the_extra(tmp_path, extra, installed):
    command = next(text for name, text in instructions() if name == "RUN" and "EXTRA" in text)
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("python", "useradd"):
        (programs / name).write_text(
            f"#!{sys.executable}\nimport json, sys\n"
            f"open({str(tmp_path / 'calls')!r}, 'a').write(json.dumps(sys.argv[1:]) + '\\n')\n"
        )
        (programs / name).chmod(0o755)
    (tmp_path / "t5x_like-0.1.0-py3-none-any.whl").touch()
    variables = {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "EXTRA": extra}
    done = subprocess.run(
        ["sh", "-c", command], cwd=tmp_path, env=variables, capture_output=True, text=True
    )
    if installed is None:
        assert done.returncode == 1
        assert "give cpu, tpu or cuda" in done.stderr
        assert not (tmp_path / "calls").exists()
        return
    assert done.returncode == 0, done.stderr
    pip, user = map(json.loads, (tmp_path / "calls").read_text().splitlines())
    assert pip[-1] == f"t5x_like-0.1.0-py3-none-any.whl{installed}"
    assert user == ["--create-home", "--uid", "1000", "trainer"]
