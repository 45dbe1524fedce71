"""`t5x_like export`: a trained or imported model becomes a directory that transformers opens."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from t5x_like.cli.stored import Stored

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
    args = parser.parse_args(argv)

    from t5x_like.cli import stored
    from t5x_like.interop import hugging_face, safetensors_files

    target = Path(args.target)
    if not args.overwrite:
        for directory in (target, *target.glob("*/")):
            safetensors_files.check_free(directory)
    model = stored.read(args.source, step=args.step)
    ids = None if model.vocabulary is None else model.vocabulary.token_ids
    for name, (part, params) in hugging_face.halves(model.model, model.params).items():
        directory = target / name
        architecture = hugging_face.write(
            directory, part, params, ids=ids, overwrite=args.overwrite
        )
        _write_tokenizer(directory, model)
        print(f"{directory}: {architecture}, step {model.step}")
    return 0


def _write_tokenizer(directory: Path, model: Stored) -> None:
    """The imported files as they were, or those that the vocabulary makes."""
    from t5x_like.interop import hugging_face, tokenizers_out

    if model.tokenizer is not None:
        for file in model.tokenizer.iterdir():
            shutil.copyfile(file, directory / file.name)
        return
    if model.vocabulary is None:
        print("note: no vocabulary is known, so no tokenizer is written", file=sys.stderr)
        return
    model_type = hugging_face.read_config(directory)["model_type"]
    tokenizers_out.write(model.vocabulary, directory, model_type=model_type)
