"""Code, gin files and versions that go to all hosts, so that all run the same."""

from __future__ import annotations

import hashlib
import importlib.metadata
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from t5x_like.launching.commands import Action, Call, LaunchError, Note
from t5x_like.launching.job import Job, option, options
from t5x_like.training.hosts.code_version import SOURCES, checkout, commit, is_installed

_GIT = re.compile(r"git\+(https|ssh)://([^/]*)/.*@[0-9a-f]{40}")
_INCLUDE = re.compile(r"""^\s*include\s+(['"])(.+?)\1""", re.M)


def package_problems(package: str) -> list[str]:
    """The errors in `--config.package`, one line each; its text is never repeated."""
    if not is_installed():
        return ["this checkout is not installed, so its version is not known: pip install -e ."]
    if not package:
        if checkout():
            return []
        return [
            "--config.package is missing: give a wheel of t5x_like, or git+https://...@COMMIT (40 "
            "digits); only a checkout can be packed without it"
        ]
    if package.startswith("git+"):
        match = _GIT.fullmatch(package)
        if "@" in package.partition("://")[2].partition("/")[0] and not (
            match and match[1] == "ssh" and ":" not in match[2]
        ):
            return [
                "--config.package holds a name or token before @: it would be printed and stored. "
                "Leave it out; git asks its credential helper on this machine"
            ]
        if not match:
            return [
                "--config.package: end it with @ and a commit of 40 digits, so that it is pinned"
            ]
        return []
    if not package.endswith(".whl") or not Path(package).is_file():
        return ["--config.package: there is no such wheel; leave it out to pack this checkout"]
    return []


def wheel_name(package: str) -> str:
    """The name of the wheel on the hosts; that of a checkout tells its commit."""
    if package.endswith(".whl"):
        return Path(package).name
    version = importlib.metadata.version("t5x_like")
    if package.startswith("git+"):
        tag = f"0g{package.rpartition('@')[2][:10]}"
    else:
        state = commit()
        tag = f"0g{str(state['commit'] or '0')[:10]}{'modified' if state['modified'] else ''}"
    return f"t5x_like-{version}-{tag}-py3-none-any.whl"


def make_wheel(job: Job) -> Iterator[Action]:
    """Puts the wheel into the bundle: built from a copy of the checkout or from git, or copied."""
    package = job.config.package
    target = job.bundle / wheel_name(package)
    yield Call(("mkdir", "-p", str(job.bundle)))
    if package.endswith(".whl"):
        yield Call(("cp", "-f", "--", package, str(target)))
        return
    built = job.directory / "build"
    yield Call(("rm", "-rf", str(built)))
    yield Call(("mkdir", "-p", str(built / "source")))
    source = package
    if not package:
        root = checkout()
        assert root is not None
        names = [name for name in SOURCES if (root / name).exists()]
        # A copy: setuptools writes into the folder that it builds, and packs what is left there.
        yield Note(f"the code: commit {commit()['commit']}, modified: {commit()['modified']}")
        files = (str(root / name) for name in names)
        yield Call(("cp", "-R", "--", *files, str(built / "source")))
        source = str(built / "source")
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(built))
    yield Call((*pip, source))
    version = importlib.metadata.version("t5x_like")
    if package.startswith("git+"):
        yield Call(
            ("bash", "-c", 'mv -f "$1"/t5x_like-*.whl "$2"', "bash", str(built), str(target))
        )
    else:
        yield Call(("mv", "-f", str(built / f"t5x_like-{version}-py3-none-any.whl"), str(target)))
    yield Call(("rm", "-rf", str(built)))


def constraints() -> str:
    """The versions installed here of all that t5x_like needs, as pip's constraints."""
    versions: dict[str, str] = {}
    waiting = ["t5x_like"]
    while waiting:
        name = waiting.pop()
        for line in importlib.metadata.requires(name) or []:
            wanted = re.match(r"[A-Za-z0-9][\w.-]*", line)
            if wanted is None or ("extra ==" in line and name != "t5x_like"):
                continue
            other = re.sub(r"[-_.]+", "-", wanted[0]).lower()
            try:
                version = importlib.metadata.version(other)
            except importlib.metadata.PackageNotFoundError:
                continue
            if other not in versions:
                versions[other] = version.partition("+")[0]
                waiting.append(other)
    return "".join(f"{name}=={version}\n" for name, version in sorted(versions.items()))


def user_files(arguments: Sequence[str]) -> dict[str, str]:
    """The texts of the user's gin files and modules below the working folder, by relative path.

    Raises:
      LaunchError: one lies elsewhere.
    """
    from t5x_like.config import gin_files

    root = gin_files.gin_root().resolve()
    texts: dict[str, str] = {}
    folders = [
        directory
        for text in options(arguments, "gin_search_paths")
        for directory in text.split(",")
    ]
    waiting = [*options(arguments, "gin_file")]
    while waiting:
        name = waiting.pop()
        path = gin_files.find(name, folders)
        if not path.is_file() or path.resolve().is_relative_to(root):
            continue  # the package has it
        key = _relative(path)
        if key not in texts:
            texts[key] = path.read_text(encoding="utf-8")
            waiting += [included for _, included in _INCLUDE.findall(texts[key])]
    module = option(arguments, "module", "MIXTURE_OR_TASK_MODULE")
    path = Path(module if module.endswith(".py") else f"{module.replace('.', '/')}.py")
    if module and path.is_file():
        texts[_relative(path)] = path.read_text(encoding="utf-8")
    elif module.endswith(".py"):
        raise LaunchError(f"there is no module {module} in {Path.cwd()}")
    return texts


def _relative(path: Path) -> str:
    try:
        if path.is_absolute():
            raise ValueError
        return str(path.resolve().relative_to(Path.cwd().resolve()))
    except ValueError:
        raise LaunchError(
            f"{path} is shipped to all hosts: name it relative to the working folder, {Path.cwd()},"
            " and below it"
        ) from None


def digest(path: Path) -> str | None:
    """The SHA-256 of a file; None if it is not there yet, as in a dry run."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
