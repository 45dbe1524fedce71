"""Orbax's checkpoints on `s3://`, which Orbax 0.12.8 has on `gs://` alone.

tensorstore, with which Orbax reads and writes arrays, has a driver for S3. Orbax chooses drivers by
private functions, which `support` replaces; so it checks the release, and refuses others.

No public setting does the same, and two other ways are worse. To save on a local disk and send the
files (`core.buckets.sending`) works for one process alone: with several, process 0 merges what all
have written to one folder, which hosts without a shared disk do not have. To read from copies, each
host would fetch all of a checkpoint where it needs its part of every array. A handler of arrays of
our own would have to do again what Orbax does with shards, merging and commit files.
"""

from __future__ import annotations

import functools
import os
from typing import Any

import orbax.checkpoint as ocp

from t5x_like.core.buckets.storage import StorageError

_RELEASE = "0.12.8"


def support(directory: str) -> None:
    """Lets Orbax keep checkpoints at an address.

    Raises:
      StorageError: it cannot.
    """
    if directory.startswith("gs://"):
        return
    if not directory.startswith("s3://"):
        raise StorageError(
            f"{directory}: checkpoints can be kept on disks, gs:// and s3://, not there"
        )
    if ocp.__version__ != _RELEASE:
        raise StorageError(
            f"{directory}: checkpoints on s3:// need orbax-checkpoint=={_RELEASE}, not "
            f"{ocp.__version__}: install that, or write to a disk or to gs://"
        )
    _support_s3()


@functools.cache
def _support_s3() -> None:
    from orbax.checkpoint._src.path import gcs_utils
    from orbax.checkpoint._src.serialization import tensorstore_utils

    of_gcs = gcs_utils.get_kvstore_for_gcs

    def store(path: str) -> dict[str, Any]:
        return _s3(path) if path.startswith("s3://") else of_gcs(path)

    def normalized(path: str) -> str:
        protocol, _, rest = path.rpartition("://")
        return f"{protocol}://{os.path.normpath(rest)}" if protocol else os.path.normpath(path)

    # With these, a step is whole once it has its commit file; S3 has no renames either.
    gcs_utils._GCS_PATH_PREFIX = ("gs://", "s3://")
    gcs_utils.get_kvstore_for_gcs = store
    tensorstore_utils._use_gcs_driver = lambda path: path.startswith(("gs://", "s3://"))
    tensorstore_utils._normalize_path = normalized


def _s3(path: str) -> dict[str, Any]:
    """tensorstore's description of a place in S3, or in another service with S3's interface."""
    bucket, _, key = path.removeprefix("s3://").partition("/")
    description = {"driver": "s3", "bucket": bucket, "path": key}
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if endpoint:
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
        description |= {"endpoint": endpoint, "aws_region": region}
    return description
