"""`t5x_like import`: a model in Hugging Face's format becomes a model of ours."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

_EPILOG = """\
examples:
  t5x_like import --from bert-base-uncased --to imported/bert
      from a directory with config.json, model.safetensors (or its shards) and a tokenizer's files
  t5x_like inspect imported/bert
      its parameters
  t5x_like export --from imported/bert --to bert-again
      and back

Nothing is downloaded, and nothing pickled is read. DIR then holds config.gin, the vocabulary and a
checkpoint, as the directory of a run does.
"""


def main(argv: list[str]) -> int:
    """Reads configuration, weights and tokenizer, and writes them as a run's directory."""
    parser = argparse.ArgumentParser(
        prog="t5x_like import",
        description="Imports a model in Hugging Face's format.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--from", dest="source", required=True, metavar="HF_DIR")
    parser.add_argument(
        "--to", dest="target", required=True, metavar="DIR", help="new, or an empty directory"
    )
    parser.add_argument(
        "--architecture",
        metavar="CLASS",
        help="the class in transformers whose weights these are (default: the first that "
        "config.json names)",
    )
    args = parser.parse_args(argv)

    from t5x_like.cli import stored
    from t5x_like.interop import hugging_face, tokenizers_in

    stored.check_new(args.target)
    source = Path(args.source)
    vocabulary, notes = tokenizers_in.read(source)
    imported = hugging_face.read(source, architecture=args.architecture)
    stored.write(
        args.target,
        imported.make,
        imported.params,
        title=f"{imported.architecture}, imported from {source.name}.",
        vocabulary=vocabulary,
        tokenizer_files=tokenizers_in.files(source),
    )
    if imported.unused:
        more = f" and {len(imported.unused) - 4} more" if len(imported.unused) > 4 else ""
        notes.append(
            f"{imported.architecture} has no use for {', '.join(imported.unused[:4])}{more}"
        )
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    print(f"{args.target}: {imported.architecture}; look at it with `t5x_like inspect`")
    return 0
