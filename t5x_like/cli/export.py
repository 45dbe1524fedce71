"""`t5x_like export`: writes a trained or imported model as a directory for transformers."""

from __future__ import annotations

import argparse

from t5x_like.cli import arguments

_EPILOG = """\
examples:
  t5x_like export --from runs/mine --to exported/mine
      the newest checkpoint; AutoModel.from_pretrained("exported/mine") opens it in Python
  t5x_like export --from runs/mine --step 100000 --to exported/mine-100k
      another checkpoint

An ELECTRA is written as two models, to HF_DIR/discriminator and HF_DIR/generator.
"""


def main(argv: list[str]) -> int:
    """Writes config.json, the weights, the tokenizer's files and a model card."""
    parser = argparse.ArgumentParser(
        prog="t5x_like export",
        description="Exports a model to the format of Hugging Face.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--from", dest="source", required=True, metavar="DIR", help="a run or an import"
    )
    parser.add_argument(
        "--to", dest="target", required=True, metavar="HF_DIR", help="the directory to write"
    )
    arguments.add_step(parser)
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="replace the weights and the README.md that HF_DIR holds",
    )
    arguments.add_modules(parser)
    args = parser.parse_args(argv)

    from t5x_like.api.export import export

    lines = export(
        args.source, args.target, step=args.step, overwrite=args.overwrite, modules=args.module
    )
    print("\n".join(lines))
    return 0
