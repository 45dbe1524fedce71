"""`t5x_like export`: writes a trained or imported model as a directory for transformers."""

from __future__ import annotations

import argparse

from t5x_like.cli.common import opening
from t5x_like.cli.common.parsers import CommandParser

_EPILOG = """\
examples:
  t5x_like export --from runs/mine --to exported/mine
      the newest checkpoint; AutoModel.from_pretrained("exported/mine") opens it in Python
  t5x_like export --from runs/mine --step 100000 --to exported/mine-100k
      another checkpoint
  t5x_like export --from runs/mine-lora --adapter --base me/my-base --to exported/my-lora
      the adapters alone; PeftModel.from_pretrained(base, "exported/my-lora") opens them
  t5x_like export --from runs/mine --to mine.vec --vectors
      the vectors of its words as a file of word2vec (a name that ends with .bin: binary)
  t5x_like export --from runs/mine --to exported/mine --push me/mine --private
      also uploads it to the hub, where huggingface_hub is installed and you are logged in

README.md is the model card, with what the run's directory says. An ELECTRA is written as two
models, to HF_DIR/discriminator and HF_DIR/generator; --push adds these words to NAME.
"""


def main(argv: list[str]) -> int:
    """Writes config.json, the weights, the tokenizer's files and a model card."""
    parser = CommandParser(
        "export",
        description="Exports a model to the format of Hugging Face.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "--from", dest="source", required=True, metavar="DIR", help="a run or an import"
    )
    parser.add_argument(
        "--to", dest="target", required=True, metavar="HF_DIR", help="the directory to write"
    )
    opening.add_step(parser)
    opening.add_task_head(parser)
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="replace the weights and the README.md that HF_DIR holds",
    )
    parser.add_argument(
        "--push", metavar="NAME", help="upload to the model NAME of the hub, such as me/my-model"
    )
    parser.add_argument(
        "--private", action="store_true", help="with --push: only its owner sees the model"
    )
    parser.add_argument(
        "--adapter",
        action="store_true",
        help="write the adapters (LoRA, rsLoRA, DoRA, IA3) and the head alone, for PEFT",
    )
    parser.add_argument(
        "--base",
        metavar="NAME",
        help="with --adapter: the base as a model of Hugging Face (default: the directory that the "
        "run started from)",
    )
    parser.add_argument(
        "--vectors",
        action="store_true",
        help="write the vectors of tokens that are words to a file of word2vec, named by --to",
    )
    opening.add_modules(parser)
    args = parser.parse_args(argv)
    if args.vectors:
        return _vectors(args)
    if args.adapter:
        return _adapter(args)
    if args.base:
        raise ValueError("--base is for --adapter: a whole model has no base")

    from t5x_like.api.exporting.export import export

    lines = export(
        args.source,
        args.target,
        step=args.step,
        overwrite=args.overwrite,
        push=args.push,
        private=args.private,
        task_head=args.task_head,
        modules=args.module,
    )
    print("\n".join(lines))
    return 0


def _vectors(args: argparse.Namespace) -> int:
    """Writes a file of word vectors."""
    for flag in ("adapter", "base", "push", "private", "task_head"):
        if getattr(args, flag):
            raise ValueError(f"--{flag} is for models, and --vectors writes words alone")

    from t5x_like.api.exporting.vectors_export import export_vectors

    line = export_vectors(
        args.source,
        args.target,
        step=args.step,
        overwrite=args.overwrite,
        modules=args.module,
    )
    print(line)
    return 0


def _adapter(args: argparse.Namespace) -> int:
    """Writes the files of an adapter."""
    if args.task_head:
        raise ValueError("--task_head is for whole models: an adapter has one head")
    if args.push:
        raise ValueError("--push uploads whole models: upload an adapter with `hf upload`")

    from t5x_like.api.exporting.adapter_export import export_adapter

    line = export_adapter(
        args.source,
        args.target,
        base=args.base,
        step=args.step,
        overwrite=args.overwrite,
        modules=args.module,
    )
    print(line)
    return 0
