"""`t5x_like import`: a model of Hugging Face, an adapter of PEFT or a checkpoint of T5X as ours."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from t5x_like.cli.common import arguments
from t5x_like.cli.common.parsers import CommandParser

if TYPE_CHECKING:
    from t5x_like.interop.hugging_face.model_directory import ImportedModel

_EPILOG = """\
examples:
  t5x_like import --from google-bert/bert-base-uncased --to imported/bert
      from the hub, where huggingface_hub is installed
  t5x_like import --from saved/bert --to imported/bert
      from a directory with config.json, model.safetensors (or its shards) and a tokenizer's files
  t5x_like import --from checkpoint_999900 --model t5_base --vocabulary my.model --to imported/t5
      from a checkpoint of T5X, which does not name its model
  t5x_like import --from my-lora --base imported/bert --to imported/my-lora
      an adapter of PEFT (LoRA, DoRA, IA3), with its head; its base stays where it is
  t5x_like inspect imported/bert
      shows its parameters
  t5x_like export --from imported/bert --to bert-again
      writes it for Hugging Face again

No pickle is read. Like the directory of a run, the new directory holds
config.gin, the vocabulary and a checkpoint.
"""


def main(argv: list[str]) -> int:
    """Reads configuration, weights and tokenizer, and writes them as a run's directory."""
    args, bindings = arguments.parse(_parser(), argv)

    from t5x_like.interop import t5x_arrays
    from t5x_like.interop.peft import adapter_directory
    from t5x_like.runs import saved_model
    from t5x_like.runs.settings import imported
    from t5x_like.vocabularies import loading

    saved_model.check_new(args.target)
    source, name = imported.locate(args.source)
    if (source / adapter_directory.CONFIG).exists():
        return _import_adapter(args, source)
    if args.base:
        raise ValueError(f"--base is for adapters of PEFT, and {args.source} is not one")
    if source.is_file():
        raise ValueError(f"{source} is a file: {t5x_arrays.advice(source)}")
    vocabulary = loading.load(args.vocabulary) if args.vocabulary else None
    if t5x_arrays.is_checkpoint(source):
        model = _from_t5x(source, args.model, bindings)
    else:
        model = _from_hugging_face(source, args.architecture)
    notes = imported.write(args.target, model, source=source, name=name, vocabulary=vocabulary)
    for line in notes:
        print(f"note: {line}", file=sys.stderr)
    print(f"{args.target}: {model.architecture}; `t5x_like inspect {args.target}` shows it")
    return 0


def _import_adapter(args: argparse.Namespace, source: Path) -> int:
    from t5x_like.interop.peft import adapter_directory
    from t5x_like.runs.settings import imported, imported_adapter

    named = args.base or adapter_directory.read(source).base
    if named is None:
        raise ValueError(f"{args.source} names no base model: name its directory with --base")
    base, notes = imported.directory(named, None)
    imported_adapter.write(args.target, source, base=base, architecture=args.architecture)
    for line in notes:
        print(f"note: {line}", file=sys.stderr)
    print(f"{args.target}: an adapter of {base}; `t5x_like inspect {args.target}` shows it")
    return 0


def _parser() -> CommandParser:
    parser = CommandParser(
        "import",
        description="Imports a model of Hugging Face, or a T5 of T5X.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "--from",
        dest="source",
        required=True,
        metavar="DIR",
        help="the directory of a model of Hugging Face (or its name at the hub) or a checkpoint of "
        "T5X, on a disk or in a bucket",
    )
    parser.add_argument(
        "--to", dest="target", required=True, metavar="DIR", help="a new or empty directory"
    )
    parser.add_argument(
        "--architecture",
        metavar="CLASS",
        help="the class of transformers that the weights are of (default: the first in "
        "config.json)",
    )
    parser.add_argument(
        "--model", metavar="MODEL", help="for T5X: a model's name (t5_1_1_base) or a gin file"
    )
    parser.add_argument(
        "--base",
        metavar="DIR",
        help="for an adapter of PEFT: its base, a run, an import or a model of Hugging Face "
        "(default: the one that adapter_config.json names)",
    )
    parser.add_argument(
        "--vocabulary",
        metavar="V",
        help="a .model, vocab.txt or tokenizer.json file, or a directory (default: the one beside "
        "the weights)",
    )
    return parser


def _from_hugging_face(source: Path, architecture: str | None) -> ImportedModel:
    from t5x_like.interop.hugging_face import model_directory

    return model_directory.read(source, architecture=architecture)


def _from_t5x(source: Path, model: str | None, bindings: list[str]) -> ImportedModel:
    from flax import nnx

    from t5x_like.config import gin_config
    from t5x_like.interop import t5x
    from t5x_like.interop.hugging_face.model_directory import ImportedModel
    from t5x_like.models.t5 import T5

    if model is None:
        raise ValueError(
            f"{source} is a checkpoint of T5X, which does not say how large it is: name the model, "
            "such as --model t5_1_1_base (`t5x_like inspect` lists them)"
        )
    gin_config.load([model], bindings)
    make = gin_config.macro("MODEL")
    built = gin_config.call(lambda: nnx.eval_shape(lambda: make(rngs=nnx.Rngs(0))))
    if not isinstance(built, T5):
        raise ValueError(f"T5X trained T5s; {model} is a {type(built).__name__}")
    constructor, params = t5x.read(source, built.config)
    return ImportedModel(constructor, params, f"T5 of T5X ({model})", [])
