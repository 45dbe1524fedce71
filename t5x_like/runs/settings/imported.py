"""A model of Hugging Face, in a directory or at the hub, as the directory of a run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from flax import nnx

from t5x_like.config import gin_files
from t5x_like.core.buckets import staging, storage
from t5x_like.core.protocols.data import Vocabulary
from t5x_like.data.cache import location
from t5x_like.data.cache.lock import sole_writer
from t5x_like.interop.hugging_face import model_directory
from t5x_like.interop.hugging_face.files import hub, kept_files
from t5x_like.interop.hugging_face.model_directory import ImportedModel
from t5x_like.interop.tokenizers import from_files
from t5x_like.runs import run_directory, saved_model


def locate(named: str) -> tuple[Path, str]:
    """The place on this disk of what a user names, and its name; fetches what lies elsewhere.

    Raises:
      OSError: a bucket or the hub cannot be read.
    """
    if hub.is_name(named):
        return hub.download(named), named
    return staging.fetched(named), Path(named).absolute().name


def write(
    target: str,
    imported: ImportedModel,
    *,
    source: Path,
    name: str,
    vocabulary: Vocabulary | None = None,
) -> list[str]:
    """Writes a model that was read, with the tokenizer beside it.

    Args:
      target: a new or empty directory.
      imported: the model.
      source: the directory that it is from.
      name: the name of that directory, for the user.
      vocabulary: the vocabulary, in place of the one of `source`.

    Returns:
      Notes about what was not read, and what has no use.

    Raises:
      ValueError: the table of tokens has no row for an id of the vocabulary.
    """
    tokenizer, line = (vocabulary, "") if vocabulary else from_files.find(source)
    saved_model.write(
        target,
        imported.make,
        imported.params,
        title=f"{imported.architecture}, imported from {name}.",
        vocabulary=tokenizer,
        files=[
            *kept_files.settings(source),
            *([] if vocabulary else kept_files.tokenizer(source)),
        ],
    )
    return [*filter(None, [line]), *_notes(tokenizer, imported)]


def _notes(vocabulary: Vocabulary | None, imported: ImportedModel) -> Iterator[str]:
    rows = nnx.eval_shape(lambda: imported.make(rngs=nnx.Rngs(0))).config.vocab_size
    if vocabulary is not None and vocabulary.vocab_size < rows:
        ids = vocabulary.vocab_size
        yield f"the table has {rows:,} rows and the tokenizer {ids:,} ids: no text uses the last"
    if imported.unread:
        yield f"of config.json these have no meaning here: {', '.join(imported.unread)}"
    if imported.unused:
        more = f" and {len(imported.unused) - 4} more" if len(imported.unused) > 4 else ""
        unused = ", ".join(imported.unused[:4])
        yield f"{imported.architecture} has no use for {unused}{more}"


def directory(named: str, cache_dir: str | None) -> tuple[str, list[str]]:
    """The directory to start a run from.

    That of a run, or of an import, is its own. A model of Hugging Face is imported once, into the
    folder of caches; one whose files have changed is imported again.

    Args:
      named: a directory, on a disk or in a bucket, or a model of the hub.
      cache_dir: the folder of caches (`location.cache_root`).

    Returns:
      The directory, and lines about what was imported.

    Raises:
      OSError, ValueError: the model cannot be downloaded, or has no counterpart here.
    """
    path = storage.path(named)
    is_published = hub.is_name(named) and gin_files.recipe_into(named) is None
    if run_directory.has_config(path) or not (
        is_published or (path / model_directory.CONFIG).exists()
    ):
        return named, []
    source, name = locate(named)
    root = location.cache_root(cache_dir) / "imported"
    target = root / f"{name.rpartition('/')[2]}-{_digest(source)}"
    location.check_place(root.parent, target)
    with sole_writer(root, lock=f".{target.name}.writing"):
        if run_directory.has_config(storage.path(str(target))):
            return str(target), [f"Starts from {named}, which {target} has"]
        notes = write(str(target), model_directory.read(source), source=source, name=name)
    return str(target), [f"Imported {named} as {target}", *notes]


def _digest(source: Path) -> str:
    """Of the names, sizes and times of the files in a folder."""
    digest = hashlib.sha256()
    for file in sorted(path for path in source.iterdir() if path.is_file()):
        status = file.stat()
        digest.update(f"{file.name} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:12]
