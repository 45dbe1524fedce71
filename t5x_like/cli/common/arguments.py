"""Arguments that several subcommands share: gin files and bindings, text files, vocabularies."""

from __future__ import annotations

import argparse
import difflib
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from t5x_like.cli.common import parsers
from t5x_like.config.settings import SETTINGS, bindings

if TYPE_CHECKING:
    from t5x_like.cli.common.parsers import CommandParser
    from t5x_like.data.dataset import Data
    from t5x_like.data.vocabulary_choice import VocabularyChoice

OBJECTIVE = "span_corruption"
"""The objective that `train` uses by default."""

VOCAB_TYPES = ("unigram", "bpe", "wordpiece", "words", "byte_bpe", "characters")
"""The same as `vocabulary_recipe.KINDS`, whose import would make `--help` slow."""


def add_gin(parser: argparse.ArgumentParser, *, default: str, recipe: str = "--recipe") -> None:
    """Adds `--recipe`, and T5X's `--gin_file`, `--gin_search_paths` and `--gin.NAME=value`.

    With `recipe` "recipe" it is the first argument, which needs no name.
    """
    group = parser.add_argument_group("configuration")
    name = group.add_argument(
        recipe,
        nargs=None if recipe.startswith("-") else "?",
        metavar="NAME",
        help="a published pretraining run, such as bert_base, or its small twin bert-mini "
        "(`t5x_like recipes` lists them); gin files and overrides come after it",
    )
    parsers.offer(name, _recipes)
    group.add_argument(
        "--gin_file",
        action="append",
        metavar="FILE",
        help=f"a gin file, looked for here and in the package; may be repeated, and later files "
        f"override earlier ones (default: {default})",
    )
    group.add_argument(
        "--gin_search_paths",
        default=[],
        type=lambda text: text.split(","),
        metavar="DIRS",
        help="more folders with gin files, separated by commas",
    )
    group.add_argument(
        "--gin.NAME=VALUE",
        dest="_gin",
        action="append",
        metavar="",
        help="overrides a macro or a parameter; VALUE is Python: --gin.MODEL_DIR=\"'runs/mine'\"",
    )
    parser.set_defaults(default_gin_file=default)


def _recipes() -> list[str]:
    from t5x_like.config import gin_files

    return list(gin_files.published_recipes())


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Adds a flag for each of `settings.SETTINGS`, with the same name as in Python."""
    group = parser.add_argument_group(
        "settings", "what most runs set; --gin.NAME=VALUE sets everything else"
    )
    kinds: dict[str, Callable[[str], Any]] = {
        "int": int,
        "float": float,
        "str": str,
        "texts": str,
        "sizes": sizes,
    }
    for name, setting in SETTINGS.items():
        if setting.kind == "flag":
            group.add_argument(f"--{name}", action="store_const", const=True, help=setting.help)
            continue
        group.add_argument(
            f"--{name}",
            type=kinds[setting.kind],
            nargs="+" if setting.kind == "texts" else None,
            metavar=setting.example,
            help=setting.help,
        )


def given_settings(args: argparse.Namespace) -> list[str]:
    """Gin bindings of the flags of `add_settings`."""
    values = {name: getattr(args, name) for name in SETTINGS}
    if values["corpus"] and len(values["corpus"]) == 1:
        (values["corpus"],) = values["corpus"]
    return bindings(values)


def gin_of(args: argparse.Namespace, bindings: list[str]) -> tuple[list[str], list[str], list[str]]:
    """Gin files, bindings and folders of the flags of `add_gin` and `add_settings`."""
    from t5x_like.config import gin_files

    recipe = [str(gin_files.find_recipe(args.recipe))] if args.recipe else []
    return [*recipe, *args.gin_file], [*given_settings(args), *bindings], args.gin_search_paths


def sizes(text: str) -> dict[str, int]:
    """The type of `--mesh data=4,tensor=2`; a size of -1 takes the remaining devices."""
    try:
        pairs = [part.split("=") for part in text.split(",")]
        return {axis.strip(): int(size) for axis, size in pairs}
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not of the form AXIS=N,AXIS=N, such as data=4,tensor=2"
        ) from error


def add_seqio(parser: argparse.ArgumentParser) -> None:
    """Adds T5X's flags about where SeqIO and TFDS look for data."""
    group = parser.add_argument_group("SeqIO and TFDS")
    group.add_argument(
        "--tfds_data_dir", metavar="DIR", help="folder of data sets that TFDS prepared"
    )
    group.add_argument(
        "--seqio_additional_cache_dirs",
        type=lambda text: text.split(","),
        default=[],
        metavar="DIRS",
        help="folders of caches that seqio_cache_tasks made, separated by commas",
    )


def use_seqio_flags(args: argparse.Namespace) -> None:
    """Applies the flags of `add_seqio` to this process and to those that it starts."""
    if args.tfds_data_dir:
        os.environ["TFDS_DATA_DIR"] = args.tfds_data_dir
    if args.seqio_additional_cache_dirs:
        from t5x_like.data.extras import require

        seqio = require("seqio", "data", purpose="--seqio_additional_cache_dirs")
        seqio.add_global_cache_dirs(args.seqio_additional_cache_dirs)


def parse(parser: CommandParser, argv: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Parses `argv`, except for `--gin.NAME=value` (or `--gin.NAME value`).

    Returns:
      The parsed arguments, and the gin bindings as `NAME=value`.
    """
    rest: list[str] = []
    gin_bindings: list[str] = []
    words = iter(argv)
    for word in words:
        # The second is T5X's way: --gin_bindings="NAME = value".
        name, is_whole, binding = word.partition("--gin_bindings=")
        if not name and is_whole:
            gin_bindings.append(binding)
            continue
        if not word.startswith("--gin."):
            rest.append(word)
            continue
        binding = word.removeprefix("--gin.")
        if "=" not in binding:
            value = next(words, None)
            if value is None:
                parser.error(f"{word} has no value: {word}=VALUE")
            binding = f"{binding}={value}"
        gin_bindings.append(binding)
    parser.complete()
    args, unknown = parser.parse_known_intermixed_args(rest)
    if unknown:
        advice = parser.nearest_flag(unknown[0])
        if hasattr(args, "gin_file"):
            advice = _as_setting(unknown, otherwise=advice)
        parser.refuse(unknown, advice)
    if hasattr(args, "gin_file"):
        args.gin_file = args.gin_file or ([] if args.recipe else [args.default_gin_file])
    return args, gin_bindings


def _as_setting(words: Sequence[str], *, otherwise: str) -> str:
    """Advice for an unknown flag, such as `--dtype`, whose name is like a setting of a run."""
    from t5x_like.config import settings, t5x_names
    from t5x_like.core.spelling import alike

    name, _, value = words[0].lstrip("-").replace("-", "_").partition("=")
    if meant := t5x_names.advice(name, t5x_names.FLAGS):
        return meant
    near = alike(name.upper(), settings.macros(), at_most=1)
    if not near or (
        otherwise and difflib.SequenceMatcher(None, name.upper(), near[0]).ratio() < 0.8
    ):
        return otherwise
    if not value:
        value = words[1] if len(words) > 1 and not words[1].startswith("-") else "VALUE"
    flags = {setting.target: word for word, setting in SETTINGS.items()}
    flag = flags.get(near[0], f"gin.{near[0]}")
    return f"; a setting of a run is given as --{flag}={value}"


def add_text(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that name the text: a task, or the user's files."""
    group = parser.add_argument_group("text")
    group.add_argument(
        "task",
        nargs="?",
        metavar="TASK",
        help="a corpus (stdlib_docs), <corpus>.<objective>, or a task or mixture of --module",
    )
    group.add_argument("--module", metavar="M", help="the module or .py file that registers TASK")
    group.add_argument(
        "--corpus",
        action="append",
        metavar="FILES",
        help="in place of TASK: a path or glob of text, JSONL, TSV, CSV or Parquet files (also .gz "
        "and .zst; may be repeated), or tfds:<name>",
    )
    group.add_argument("--field", help="the field that holds the text (default: text)")
    group.add_argument(
        "--separator",
        default="blank_line",
        choices=["line", "blank_line", "file"],
        help="what separates documents in plain text (default: blank_line)",
    )
    group.add_argument(
        "--sentences",
        default="en",
        metavar="LANGUAGE",
        help="the language by whose rules plain text is cut into sentences, such as de or zh; "
        "lines for one sentence a line (default: en)",
    )
    group.add_argument(
        "--validation",
        type=float,
        default=0.01,
        metavar="F",
        help="share of documents held out (default: 0.01)",
    )
    group.add_argument(
        "--cache_dir",
        metavar="DIR",
        help="folder of vocabularies and caches (default: $T5X_LIKE_CACHE or ~/.cache/t5x_like)",
    )


def add_vocabulary(parser: argparse.ArgumentParser, *, size: int) -> None:
    """Adds the arguments that name a vocabulary, or train one of `size` pieces by default."""
    group = parser.add_argument_group("vocabulary")
    group.add_argument(
        "--vocabulary",
        metavar="V",
        help="bytes, a .model, vocab.txt or tokenizer.json file, or the directory of a vocabulary "
        "(default: one is trained)",
    )
    group.add_argument(
        "--vocab_size",
        type=int,
        default=size,
        metavar="N",
        help=f"pieces of a trained vocabulary (default: {size})",
    )
    group.add_argument(
        "--vocab_type",
        default="unigram",
        choices=VOCAB_TYPES,
        help="kind of a trained vocabulary (default: unigram)",
    )


def vocabulary_choice(args: argparse.Namespace) -> VocabularyChoice:
    """The vocabulary that the arguments of `add_vocabulary` name."""
    from t5x_like.data.vocabulary_choice import VocabularyChoice

    return VocabularyChoice(name=args.vocabulary, size=args.vocab_size, kind=args.vocab_type)


def feature_lengths(text: str) -> dict[str, int]:
    """The type of `--lengths inputs=512,targets=114`."""
    try:
        pairs = [part.split("=") for part in text.split(",")]
        return {name: positive(length) for name, length in pairs}
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not of the form F=N,F=N, such as inputs=512,targets=114"
        ) from error


def positive(text: str) -> int:
    """The type of a number that is at least 1."""
    return _at_least(1, text)


def natural(text: str) -> int:
    """The type of a number that is at least 0."""
    return _at_least(0, text)


def _at_least(least: int, text: str) -> int:
    if (number := int(text)) < least:
        raise argparse.ArgumentTypeError(f"{number} is less than {least}")
    return number


def text_data(
    args: argparse.Namespace,
    *,
    lengths: Mapping[str, int] | None = None,
    objective: str = OBJECTIVE,
    **fields: Any,
) -> Data:
    """The `Data` that the arguments of `add_text` name.

    Args:
      args: the parsed arguments.
      lengths: the length of each task feature.
      objective: the preset for a corpus that is named without one.
      **fields: further fields of `Data`.

    Raises:
      ValueError: neither a task nor files are named, or both.
    """
    from t5x_like import objectives
    from t5x_like.data.corpora.user_corpus import user_corpus
    from t5x_like.data.dataset import Data

    if bool(args.task) == bool(args.corpus):
        raise ValueError("name either a TASK or files with --corpus")
    corpus = args.corpus[0] if args.corpus and len(args.corpus) == 1 else args.corpus
    return Data(
        lengths=lengths or {},
        mixture_or_task_name=args.task,
        mixture_or_task_module=args.module,
        corpus=corpus,
        read_corpus=functools.partial(
            user_corpus, field=args.field, separator=args.separator, validation=args.validation
        ),
        objective=objectives.preset(objective),
        sentences=args.sentences,
        cache_dir=args.cache_dir,
        **fields,
    )
