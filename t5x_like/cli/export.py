"""`t5x_like export`: a trained or imported model becomes a directory that transformers opens."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etils import epath

from t5x_like.cli import arguments

if TYPE_CHECKING:
    from t5x_like.runs.saved_model import SavedModel

_EPILOG = """\
examples:
  t5x_like export --from runs/mine --to exported/mine
      the newest checkpoint; then AutoModel.from_pretrained("exported/mine") in Python
  t5x_like export --from runs/mine --step 100000 --to exported/mine-100k
      another one

An ELECTRA is written as two models, to HF_DIR/discriminator and HF_DIR/generator.
"""


def main(argv: list[str]) -> int:
    """Writes config.json, the weights and the tokenizer's files."""
    parser = argparse.ArgumentParser(
        prog="t5x_like export",
        description="Exports a model to the format of Hugging Face.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--from", dest="source", required=True, metavar="DIR", help="of a run, or of an import"
    )
    parser.add_argument("--to", dest="target", required=True, metavar="HF_DIR")
    parser.add_argument("--step", type=int, metavar="N", help="default: the newest")
    parser.add_argument(
        "--overwrite", action="store_true", help="replace the weights that HF_DIR holds"
    )
    arguments.add_modules(parser)
    args = parser.parse_args(argv)

    from t5x_like.interop.hugging_face import model_directory, safetensors_files
    from t5x_like.runs import saved_model

    target = Path(args.target)
    if not args.overwrite:
        safetensors_files.check_free(target)
    model = saved_model.read(args.source, step=args.step, modules=args.module)
    ids = None if model.vocabulary is None else model.vocabulary.token_ids
    halves = model_directory.halves(model.model, model.params)
    if not args.overwrite:
        for name in halves:
            safetensors_files.check_free(target / name)
    for name, (part, params) in halves.items():
        directory = target / name
        architecture = model_directory.write(
            directory,
            part,
            params,
            ids=ids,
            original=_original_config(model),
            overwrite=args.overwrite,
        )
        _write_tokenizer(directory, model, max_length=model_directory.max_length(part))
        print(f"{directory}: {architecture}, step {model.step}")
    return 0


def _original_config(model: SavedModel) -> dict[str, Any] | None:
    """What config.json said where the model was imported."""
    if model.original is None or not (model.original / "config.json").exists():
        return None
    return json.loads((model.original / "config.json").read_text())


def _write_tokenizer(directory: Path, model: SavedModel, *, max_length: int | None) -> None:
    """The imported files as they were, or those that the vocabulary makes."""
    from t5x_like.interop.hugging_face import model_directory
    from t5x_like.interop.tokenizers import to_files
    from t5x_like.runs import run_directory

    kept = [] if model.original is None else list(model.original.iterdir())
    kept = [file for file in kept if file.name != "config.json"]
    if any("generation" not in file.name for file in kept):
        run_directory.copy(kept, epath.Path(directory))
        if model.vocabulary is not None:
            model.vocabulary.save(directory / to_files.SAVED)
    elif model.vocabulary is not None:
        model_type = model_directory.read_config(directory)["model_type"]
        to_files.write(model.vocabulary, directory, model_type=model_type, max_length=max_length)
    else:
        print("note: no vocabulary is known, so no tokenizer is written", file=sys.stderr)
