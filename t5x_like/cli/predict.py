"""`t5x_like predict`: asks a trained model about texts."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from t5x_like.cli.common import arguments, opening
from t5x_like.cli.common.parsers import CommandParser
from t5x_like.core.buckets import sending, storage

if TYPE_CHECKING:
    from t5x_like.api.loaded_model import LoadedModel

_EPILOG = """\
examples:
  t5x_like predict runs/sums "17+25" "3+4"
  t5x_like predict runs/local "Return the ___ of the file."
  t5x_like predict runs/bert "The capital of France is [MASK]." --k 5
  t5x_like predict runs/t5 --input questions.txt --output answers.jsonl --num_beams 4
  t5x_like predict runs/t5 --input pairs.tsv --score --output scores.jsonl
  t5x_like predict runs/names "Ada lives in Turin"
  t5x_like predict runs/bert --input texts.txt --embed --output vectors.npy

Without --write, --fill and so on, blanks of a text are filled (___, [MASK] or <extra_id_0>) if it
has some; otherwise encoder-decoders answer, language models continue, an ELECTRA marks replaced
tokens, and fine-tuned models give a class, a number, tags or a span. An output file has a JSON line
for each input, in order. Until it is whole, it is FILE.partial; the same command goes on after a
kill.
"""
_DECODING: dict[str, tuple[type, str]] = {
    "max_new_tokens": (int, "most tokens of an answer (default: 64)"),
    "min_new_tokens": (int, "least tokens of an answer"),
    "num_beams": (int, "sequences that beam search keeps (default: 1, the likeliest token)"),
    "length_penalty": (float, "power of the length that divides a beam's score (default: 1)"),
    "num_return_sequences": (int, "answers to a text (default: 1)"),
    "temperature": (float, "divides the logits before a draw (default: 1)"),
    "top_k": (int, "draw from the K likeliest tokens (default: all)"),
    "top_p": (float, "draw from the fewest tokens with this probability together"),
    "repetition_penalty": (float, "makes tokens that occurred less likely, above 1"),
    "no_repeat_ngram_size": (int, "no N tokens in a row occur twice"),
    "seed": (int, "of the draws (default: 0)"),
}


def main(argv: list[str]) -> int:
    """Prints or writes a prediction for each input."""
    parser = _parser()
    args, bindings = arguments.parse(parser, argv)
    if not (args.texts or args.input or args.held_out):
        parser.error("give a TEXT, --input FILE or --held_out N")
    if args.per_token and args.ask != "rank":
        parser.error("--per_token is an option of --rank")

    from t5x_like.inference import input_files, predictions

    records: list[dict[str, Any]] = [{"inputs": text} for text in args.texts]
    if args.input:
        records += input_files.read(args.input, field=args.field)
    model = opening.load(args, bindings)
    if args.held_out:
        records += _held_out(model, args.held_out)
    ask, options = args.ask or model.usual_ask(records), _options(args)
    predictor = model.predictor(ask, **options)
    predictions.check_all(predictor, records)
    if args.output and args.beside:
        raise ValueError("--output is for one run: leave out --beside, and name each run by itself")
    if args.output:
        identity = {
            "model": storage.absolute(args.model_dir),
            "step": model.step,
            "ask": ask,
            "options": {name: options[name] for name in sorted(options.keys() - {"batch_size"})},
            "inputs": hashlib.sha256(json.dumps(records).encode()).hexdigest(),
        }
        with sending.written(args.output) as file:
            done = predictions.predict_to_file(predictor, records, file, identity=identity)
        print(_summary(done, args.output), file=sys.stderr)
        return 0
    predicted = dict(pair for some in predictions.predict(predictor, records) for pair in some)
    others = {
        name: opening.headed(model.beside(name), args).predictor(ask, **options)
        for name in args.beside
    }
    said = {
        name: dict(pair for some in predictions.predict(other, records) for pair in some)
        for name, other in others.items()
    }
    for number, record in enumerate(records):
        print(readable(record, predicted[number]), flush=True)
        for name, answers in said.items():
            print(f"{name}: {readable(record, answers[number])}", flush=True)
    if cut := sum("truncated" in prediction for prediction in predicted.values()):
        print(f"note: {cut} of {len(records)} inputs were too long: {_CUT}", file=sys.stderr)
    return 0


def _options(args: argparse.Namespace) -> dict[str, Any]:
    """The options of `LoadedModel.predictor` that are given."""
    names = (
        *(*_DECODING, "k", "layer", "pooling", "per_token", "batch_size", "max_input_length"),
        *("no_answer_threshold", "class_threshold", "calibrated", "candidate_labels"),
        "hypothesis_template",
    )
    options = {name: getattr(args, name) for name in names}
    options = {name: value for name, value in options.items() if value is not None}
    # Settings of draws mean that tokens are to be drawn.
    if args.do_sample or {"temperature", "top_k", "top_p"} & options.keys():
        options["do_sample"] = True
    if args.early_stopping is not None:
        options["early_stopping"] = {"true": True, "false": False}.get(args.early_stopping, "never")
    return options


_CUT = "they lost their end, or their beginning where a language model continues them"


def _parser() -> CommandParser:
    parser = CommandParser(
        "predict",
        description="Asks a trained or imported model about texts: it answers, continues, fills "
        "blanks, marks, classifies, scores, ranks or embeds, by what it is.",
        epilog=_EPILOG,
    )
    _add_texts(parser)
    opening.add_step(parser)
    opening.add_task_head(parser)
    parser.add_argument(
        "--batch_size",
        type=arguments.positive,
        default=8,
        metavar="B",
        help="inputs at once (default: 8)",
    )
    parser.add_argument(
        "--max_input_length",
        type=arguments.positive,
        metavar="N",
        help="most tokens of an input; a longer one is cut (default: what the run reads)",
    )
    parser.add_argument(
        "--beside",
        action="append",
        default=[],
        metavar="RUN",
        help="another run beside the same base (--method lora and the like), which answers too; "
        "their base is in memory once",
    )
    _add_asks(parser)
    _add_answers(parser)
    writing = parser.add_argument_group("decoding (names and meanings of transformers)")
    for name, (kind, text) in _DECODING.items():
        writing.add_argument(f"--{name}", type=kind, metavar="X", help=text)
    writing.add_argument("--do_sample", action="store_true", help="draw tokens")
    writing.add_argument(
        "--early_stopping",
        choices=("true", "false", "never"),
        help="when beam search ends: true, with as many answers as beams; never, when no answer "
        "can be better (default: false, in between)",
    )
    opening.add_modules(parser)
    opening.add_allow_paths(parser)
    return parser


def _add_texts(parser: argparse.ArgumentParser) -> None:
    """Adds the run, the texts, and where predictions go."""
    parser.add_argument("model_dir", metavar="RUN", help="the run's MODEL_DIR, or imported weights")
    parser.add_argument("texts", nargs="*", metavar="TEXT", help="an input")
    parser.add_argument(
        "--input",
        metavar="FILE",
        help="inputs: lines of text, .jsonl, .tsv, .csv or .parquet (also .gz and .zst); - is "
        "standard input",
    )
    parser.add_argument("--field", help="the field of the input (default: inputs, text or words)")
    parser.add_argument(
        "--output", metavar="FILE", help="write JSON lines here; with --embed also .npy"
    )
    parser.add_argument(
        "--held_out",
        type=arguments.natural,
        default=0,
        metavar="N",
        help="N short texts of the run's validation split, with blanks made by its objective",
    )


def _add_asks(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that say what is asked, and their options."""
    asks = parser.add_argument_group("what is asked (default: what the model is for)")
    for name, text in (
        ("write", "an answer, or a continuation"),
        ("fill", "what belongs into the blanks"),
        ("mark", "which tokens were replaced"),
        ("answer", "what a task's head says"),
        ("score", "the log-likelihood of `targets` given `inputs`, or of a text alone"),
        ("rank", "the likeliest of `choices`"),
        ("embed", "states as vectors"),
    ):
        asks.add_argument(f"--{name}", dest="ask", action="store_const", const=name, help=text)
    asks.add_argument(
        "--k",
        type=arguments.positive,
        help="guesses for a [MASK] (default: 1), or classes that are shown (default: all)",
    )
    asks.add_argument(
        "--per_token", action="store_true", default=None, help="rank by log-likelihood per token"
    )
    asks.add_argument(
        "--layer",
        type=_layer,
        metavar="N",
        help="layer of --embed: 0 is the input, -1 the last (default); W,W,... mixes all layers",
    )
    asks.add_argument(
        "--pooling",
        choices=("mean", "first", "last", "max", "tokens"),
        help="vector of a text with --embed; tokens gives one for each (default: mean)",
    )


def _add_answers(parser: argparse.ArgumentParser) -> None:
    """Adds the options of answers of a task's head."""
    asks = parser.add_argument_group("answers of a head")
    asks.add_argument(
        "--no_answer_threshold",
        type=float,
        metavar="X",
        help="questions whose no_answer is above X have none (default: best_f1_thresh of the run)",
    )
    asks.add_argument(
        "--class_threshold",
        type=float,
        metavar="P",
        help="least probability of each of several classes (default: best_threshold of the run)",
    )
    asks.add_argument(
        "--calibrated",
        action="store_true",
        default=None,
        help="probabilities of classes as frequencies: with best_temperature of the run",
    )
    asks.add_argument(
        "--candidate_labels",
        metavar="CLASS,...",
        type=lambda text: [label.strip() for label in text.split(",")],
        help="classes that a model of natural language inference (mnli) has not learned",
    )
    asks.add_argument(
        "--hypothesis_template",
        metavar="TEXT",
        help='with --candidate_labels: a sentence with {} (default: "This example is {}.")',
    )


def _layer(text: str) -> int | list[float]:
    """The type of `--layer -1` and `--layer 0,0,1`."""
    return [float(weight) for weight in text.split(",")] if "," in text else int(text)


def _held_out(model: LoadedModel, n: int) -> list[dict[str, Any]]:
    from t5x_like.runs.trained.held_out_texts import held_out_texts

    if model.run is None:
        raise ValueError(f"{model.directory} is not a run: it holds no text out")
    texts = held_out_texts(model.run.in_phase().run, n)
    return [{"inputs": text, "original": truth} for text, truth in texts]


def _summary(done: Any, output: str) -> str:
    speed = f", {done.predicted / done.seconds:.1f} a second" if done.predicted else ""
    resumed = done.records - done.predicted
    before = f", {resumed:,} were there already" if resumed else ""
    cut = f"; {done.truncated:,} inputs were too long: {_CUT}" if done.truncated else ""
    return f"{output}: {done.records:,} predictions{before}{speed}{cut}"


def readable(record: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """A prediction as people read it, or as JSON where it has no such form."""
    if "original" in record and found.keys() & {"filled", "prediction"}:
        blanks = [
            blank if isinstance(blank, str) else _guesses(blank)
            for blank in found.get("blanks", ())
        ]
        answer = " | ".join(blanks) if blanks else found.get("filled", found.get("prediction"))
        name = "fills:" if "filled" in found else "says: "
        shown = ("text: ", record["inputs"]), (name, answer), ("truth:", record["original"])
        return "".join(f"  {name} {text}\n" for name, text in shown)
    match found:
        case {"filled": filled, "blanks": [[{"token": _}, *_], *_] as blanks}:
            return "\n  ".join([str(filled), *map(_guesses, blanks)])
        case {"filled": text} | {"prediction": text} | {"choice": text}:
            return str(text)
        case {"predictions": texts, "scores": scores}:
            answers = zip(texts, scores, strict=True)
            lines = (f"{n}. {text}  ({score:.3f})" for n, (text, score) in enumerate(answers, 1))
            return "\n  ".join([record["inputs"], *lines])
        case {"probabilities": dict(classes)}:
            likeliest = sorted(classes, key=classes.__getitem__, reverse=True)
            answer = ", ".join(f"{label} {classes[label]:.3f}" for label in likeliest)
            if found.get("label", likeliest[0]) != likeliest[0]:  # of ordered classes
                answer = f"{found['label']} (the median): {answer}"
            return f"{record['inputs']}\n  {answer}"
        case {"words": words, "tags": tags}:
            pairs = zip(words, tags, strict=True)
            return " ".join(f"{word}/{'-' if tag is None else tag}" for word, tag in pairs)
        case {"replaced": replaced, "tokens": _}:
            return f"{record['inputs']}\n  replaced: {' '.join(replaced) or '(none)'}"
    return json.dumps({**record, **found}, ensure_ascii=False)


def _guesses(blank: Sequence[Mapping[str, Any]]) -> str:
    """Guesses in quotes, with the space before those that begin a word."""
    return ", ".join(
        f'"{" " * guess["begins_word"]}{guess["token"]}" {guess["probability"]:.3f}'
        for guess in blank
    )
