"""Loads a vocabulary from what a user names: `bytes`, `code_points`, a file or a directory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from t5x_like.core import whole_files
from t5x_like.core.buckets import staging, storage
from t5x_like.core.protocols.data import Vocabulary
from t5x_like.core.spelling import alike
from t5x_like.vocabularies import files, sentinels, subwords
from t5x_like.vocabularies.byte import ByteVocabulary
from t5x_like.vocabularies.characters import CharacterVocabulary
from t5x_like.vocabularies.code_points import CodePointVocabulary
from t5x_like.vocabularies.passthrough import PassThroughVocabulary
from t5x_like.vocabularies.sentencepiece import SentencePieceVocabulary
from t5x_like.vocabularies.subwords import SubwordVocabulary
from t5x_like.vocabularies.tokenizer_files import byte_bpe, wordpiece

BYTES = "bytes"
CODE_POINTS = "code_points"
WORDPIECE = "vocab.txt"
_PACKED = (".gz", ".bz2", ".xz", ".zst", ".zip", ".tar", ".tgz")

_FROM_SAVED: dict[str, Callable[[Path, Mapping[str, Any]], Vocabulary]] = {
    "Byte": ByteVocabulary.from_saved,
    "Characters": CharacterVocabulary.from_saved,
    "CodePoints": CodePointVocabulary.from_saved,
    "PassThrough": PassThroughVocabulary.from_saved,
    "SentencePiece": SentencePieceVocabulary.from_saved,
    "Subword": SubwordVocabulary.from_saved,
}


def load(spec: str | Path, *, extra_ids: int | None = None) -> Vocabulary:
    """The vocabulary that `spec` names.

    Args:
      spec: `bytes`, `code_points`, or, on a disk or in a bucket, a SentencePiece `.model` file,
        BERT's `vocab.txt`, a `tokenizer.json`, or a directory: one where a vocabulary was saved, or
        one with `tokenizer.json`, `vocab.json` and `merges.txt`, or `vocab.txt`.
      extra_ids: sentinels to add; None for the usual number (100 for a `.model` file, none for the
        others). A saved vocabulary has its own number, which `extra_ids` must match.

    Raises:
      FileNotFoundError: nothing has this name; says what is there.
      ValueError: the file or directory is not a vocabulary, or not the saved one; or
        `extra_ids` is out of range.
    """
    if extra_ids is not None:
        sentinels.check_number(extra_ids, where=spec)
    path = staging.fetched(spec)
    if str(spec) == BYTES:
        return ByteVocabulary(extra_ids or 0)
    if str(spec) == CODE_POINTS:
        if extra_ids:
            raise ValueError(
                f"{CODE_POINTS} have no sentinels, and {extra_ids} extra ids are wanted: give 0 or "
                f"None, or the vocabulary {BYTES!r}"
            )
        return CodePointVocabulary()
    if path.is_dir():
        return _of_directory(path, extra_ids)
    if path.is_file():
        return _of_file(path, extra_ids)
    raise FileNotFoundError(
        f"no vocabulary {str(spec)!r}: give {BYTES!r}, {CODE_POINTS!r}, a SentencePiece .model "
        f"file, a {WORDPIECE}, a {files.TOKENIZER} or a directory"
        + ("" if storage.is_url(spec) else _nearest(path))
    )


def _of_file(path: Path, extra_ids: int | None) -> Vocabulary:
    if path.name == files.DESCRIPTION:
        return _saved(path.parent, extra_ids)
    if path.suffix in _PACKED:
        raise ValueError(f"{path} is packed: unpack it, and name the file or folder that comes out")
    if path.suffix == ".json":
        return subwords.read(path, extra_ids=extra_ids or 0)
    if path.suffix == ".txt":
        return wordpiece.read(path, extra_ids=extra_ids or 0)
    return SentencePieceVocabulary(
        path, sentinels.USUAL_EXTRA_IDS if extra_ids is None else extra_ids
    )


def _of_directory(directory: Path, extra_ids: int | None) -> Vocabulary:
    if (directory / files.DESCRIPTION).is_file():
        return _saved(directory, extra_ids)
    for name in (files.TOKENIZER, WORDPIECE):
        if (directory / name).is_file():
            return _of_file(directory / name, extra_ids)
    for names in byte_bpe.FILES:
        vocab, merges = (directory / name for name in names)
        if vocab.is_file() and merges.is_file():
            return byte_bpe.read(vocab, merges, extra_ids=extra_ids or 0)
    models = ", ".join(sorted(str(path) for path in directory.glob("*.model")))
    advice = f"; give the file itself: {models}" if models else ""
    known = ", ".join([files.DESCRIPTION, files.TOKENIZER, WORDPIECE])
    raise ValueError(
        f"{directory} holds no vocabulary: none of {known}, nor "
        f"{' with '.join(byte_bpe.FILES[0])}{advice}"
    )


def _saved(directory: Path, extra_ids: int | None) -> Vocabulary:
    description = directory / files.DESCRIPTION
    fields = whole_files.read_json(description)
    try:
        saved = fields.get("extra_ids", 0)
        sentinels.check_number(saved, where=description)
        vocabulary = _FROM_SAVED[fields["class"]](directory, fields)
        fingerprint, expected = vocabulary.fingerprint, str(fields["fingerprint"])
    except (KeyError, TypeError, UnicodeError) as error:
        raise ValueError(
            f"{description} does not describe a vocabulary of this version ({error!r}): "
            "save the vocabulary again"
        ) from error
    if fingerprint != expected:
        raise ValueError(
            f"the vocabulary in {directory} is not the one described in {files.DESCRIPTION}: its "
            f"fingerprint is {fingerprint[:12]}, not {expected[:12]}; a file was replaced "
            "or damaged"
        )
    if extra_ids is not None and extra_ids > saved:
        raise ValueError(
            f"the vocabulary in {directory} was saved with {saved} extra ids, and {extra_ids} are "
            f"wanted: train one with them (`t5x_like vocab --extra_ids {extra_ids}`), or name a "
            ".model file, which takes any number"
        )
    return vocabulary


def _nearest(path: Path) -> str:
    """Advice on what the directory holds instead, the most similar names first."""
    if not path.parent.is_dir():
        return f" (there is no directory {path.parent} either)"
    names = [entry.name for entry in path.parent.iterdir()]
    near = alike(path.name, names) or sorted(name for name in names if name.endswith(".model"))[:3]
    return f" (in {path.parent}: {', '.join(near)})" if near else ""
