"""The predictors of a loaded model: what it can be asked, with its vocabulary and its mesh."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from t5x_like.core.protocols import Decodable, lacking
from t5x_like.data.feature_converters import PrefixDecoder
from t5x_like.inference import masked_words, text_rows
from t5x_like.inference.decoding.settings import Decoding
from t5x_like.inference.embeddings import Embeddings
from t5x_like.inference.fill_blanks import Blanks, has_blank
from t5x_like.inference.head_answers import HeadAnswers, Kind
from t5x_like.inference.likelihoods import MaskedScorer, Ranking, Scoring, TargetScorer
from t5x_like.inference.masked_words import MaskedWords
from t5x_like.inference.predictions import Predictor
from t5x_like.inference.replaced_tokens import ReplacedTokens
from t5x_like.inference.text_rows import Framing
from t5x_like.inference.writing import Answering, Writer
from t5x_like.interop.hugging_face import families, task_heads
from t5x_like.interop.tokenizers.to_files import FAMILIES, Family
from t5x_like.models.finetuned import FineTuned

if TYPE_CHECKING:
    from t5x_like.api.loaded_model import LoadedModel

Ask = Literal["write", "fill", "mark", "answer", "score", "rank", "embed"]
ASKS: Mapping[str, str] = {
    "write": "an answer (encoder-decoders) or a continuation (language models)",
    "fill": "what belongs into the blanks of a text",
    "mark": "which tokens were replaced (ELECTRA)",
    "answer": "what the head of a fine-tuned model says",
    "score": "the log-likelihood of a target, or of a text",
    "rank": "the best of several choices",
    "embed": "states as vectors",
}
_ENCODER = Family("cls:0 A:0 sep:0", "cls:0 A:0 sep:0 B:1 sep:1")
_WRITER = Family("A:0 eos:0", "A:0 eos:0 B:0 eos:0")
_HEADS: Mapping[str, Kind] = {
    task_heads.TAGS: "tags",
    task_heads.SPANS: "spans",
    task_heads.CHOICES: "choices",
}


def asks(model: LoadedModel, records: Sequence[Mapping[str, Any]]) -> Ask:
    """What records ask of a model: to fill their blanks if they have some, else what it is for.

    Raises:
      ValueError: the model does nothing with such texts; the error says what it can do.
    """
    module = model.model
    blanks = any(has_blank(str(record.get("inputs", ""))) for record in records)
    if isinstance(module, FineTuned) and module.head is not None:
        return "answer"
    if blanks and (_guesses(module) or (_writes(module) and _sentinels(model))):
        return "fill"
    if _marks(module):
        return "mark"
    if _writes(module):
        return "write"
    if _guesses(module):
        raise ValueError(
            f"a {type(module).__name__} guesses the blanks of a text: write ___ or [MASK] in it. "
            "It can also be asked for --score (of a text) and --embed"
        )
    raise ValueError(f"a {type(module).__name__} only has states to give: ask it for --embed")


def predictor(
    model: LoadedModel,
    ask: Ask,
    *,
    decoding: Decoding | None = None,
    k: int = 1,
    layer: int | Sequence[float] = -1,
    pooling: Any = "mean",
    per_token: bool = False,
    batch_size: int = text_rows.ROWS,
    max_input_length: int | None = None,
) -> Predictor:
    """The predictor that answers `ask`.

    Args:
      model: the model.
      ask: one of `ASKS`.
      decoding: how it writes.
      k: the guesses for a blank of a masked language model.
      layer: of embeddings.
      pooling: of embeddings.
      per_token: whether a rank divides log-likelihoods by the number of tokens.
      batch_size: the rows that are computed at once.
      max_input_length: the most tokens of an input; None for what the run reads, or what the model
        has positions for.

    Raises:
      ValueError: the model cannot be asked this.
    """
    module = model.model
    able = {
        "write": _writes(module),
        "fill": _guesses(module) or (_writes(module) and _sentinels(model)),
        "mark": _marks(module),
        "answer": isinstance(module, FineTuned) and module.head is not None,
        "score": _writes(module) or _guesses(module),
        "embed": True,
    }
    able["rank"] = able["score"]
    if ask not in able:
        raise ValueError(f"a model is asked to {', '.join(ASKS)}, not to {ask!r}")
    if not able[ask]:
        can = [f"{name} ({ASKS[name]})" for name, possible in able.items() if possible]
        raise ValueError(
            f"a {type(module).__name__} cannot {ask} ({ASKS[ask]}); it can {', '.join(can)}"
        )
    decoding = decoding or Decoding()
    mesh = model.on_mesh()
    framing = framing_of(model, max_input_length, new_tokens=decoding.max_new_tokens)
    match ask:
        case "write":
            return Answering(writer(model, decoding, batch_size=batch_size), framing)
        case "fill" if _guesses(module):
            return MaskedWords(model=mesh, framing=framing, k=k, batch_size=batch_size)
        case "fill":
            if k != 1:
                raise ValueError("an encoder-decoder writes one answer: k must be 1")
            return Blanks(writer(model, decoding, batch_size=batch_size), framing)
        case "mark":
            return ReplacedTokens(mesh, framing, batch_size)
        case "answer":
            return _head(model, framing, batch_size)
        case "embed":
            return Embeddings(
                model=mesh, framing=framing, layer=layer, pooling=pooling, batch_size=batch_size
            )
    scoring = _scoring(model, framing, batch_size)
    return Ranking(scoring, per_token) if ask == "rank" else scoring


def writer(model: LoadedModel, decoding: Decoding, *, batch_size: int = text_rows.ROWS) -> Writer:
    """What writes answers to rows of tokens."""
    return Writer(
        model=model.on_mesh(),
        ids=model.known_vocabulary().token_ids,
        start=_start(model),
        prefix=_sees_prefix(model),
        decoding=decoding,
        batch_size=batch_size,
        max_positions=getattr(model.model, "max_positions", None),
    )


def framing_of(
    model: LoadedModel, max_length: int | None = None, *, new_tokens: int = 0
) -> Framing:
    """How texts become rows of this model.

    Args:
      model: the model.
      max_length: the most tokens of a row; None for what the run reads, or what the model has
        positions for.
      new_tokens: positions to leave for what a decoder alone writes.
    """
    family, module = _family(model), model.model
    limits = [max_length]
    if max_length is None and model.run is not None and hasattr(module, "encode"):
        limits.append((model.run.run.data.lengths or {}).get("inputs"))
    config = getattr(module, "config", None)
    positions = getattr(config, "room", getattr(config, "max_positions", None))
    if positions is not None and _writes(module) and not hasattr(module, "encode"):
        positions -= new_tokens + 1
    limits.append(positions)
    known = [limit for limit in limits if limit is not None]
    return Framing(
        model.known_vocabulary(), family.text, family.pair, min(known) if known else None
    )


def _family(model: LoadedModel) -> Family:
    """The special tokens around texts, as in the family's tokenizers at Hugging Face."""
    try:
        return FAMILIES[families.of_model(model.model).MODEL_TYPES[0]]
    except (KeyError, ValueError):  # a family of the user's, or without a counterpart there
        return _WRITER if _writes(model.model) else _ENCODER


def _writes(module: Any) -> bool:
    return not lacking(module, Decodable)


def _guesses(module: Any) -> bool:
    return masked_words.guesses(module)


def _marks(module: Any) -> bool:
    from t5x_like.models import electra

    return isinstance(module, electra.Electra | electra.Discriminator)


def _sentinels(model: LoadedModel) -> bool:
    return bool(model.known_vocabulary().token_ids.sentinels)


def _start(model: LoadedModel) -> int | None:
    """The id that a decoder reads first; None for padding, or where the text is read first."""
    ids = model.known_vocabulary().token_ids
    if model.run is not None:
        name = getattr(model.run.run.feature_converter, "decoder_start", "pad")
        return getattr(ids, name)
    if not hasattr(model.model, "encode"):
        return None
    for file in ("generation_config.json", "config.json"):
        start = _json(model, file).get("decoder_start_token_id")
        if start is not None:
            return int(start)
    return None


def _sees_prefix(model: LoadedModel) -> bool:
    """Whether inputs and targets are one sequence, whose inputs are seen from both sides."""
    run = None if model.run is None else model.run.run
    return isinstance(run and run.feature_converter, PrefixDecoder)


def _head(model: LoadedModel, framing: Framing, batch_size: int) -> HeadAnswers:
    module = model.model
    ending = task_heads.ending_of(module)
    numbers = getattr(module.task, "__name__", "") == "numbers"
    names = _json(model, "config.json").get("id2label") or {}
    return HeadAnswers(
        model=model.on_mesh(),
        framing=framing,
        kind=_HEADS.get(ending, "numbers" if numbers else "classes"),
        labels=[names[i] for i in sorted(names, key=int)],
        alone=_writes(module.body) and not hasattr(module.body, "encode"),
        token_types=_family(model).token_types,
        batch_size=batch_size,
    )


def _scoring(model: LoadedModel, framing: Framing, batch_size: int) -> Scoring:
    ids, mesh = framing.ids, model.on_mesh()
    if _writes(model.model) and not _guesses(model.model):
        score = TargetScorer(
            model=mesh,
            ids=ids,
            start=_start(model),
            prefix=_sees_prefix(model),
            batch_size=batch_size,
        )
        whole = _WRITER if hasattr(model.model, "encode") else Family("A:0", "A:0 B:0")
        targets = Framing(framing.vocabulary, whole.text, whole.pair)
        return Scoring(score, framing, targets, batch_size)
    masked = MaskedScorer(model=mesh, ids=ids, max_length=framing.max_length, batch_size=batch_size)
    return Scoring(masked, framing, None, batch_size)


def _json(model: LoadedModel, name: str) -> dict[str, Any]:
    """A file that came with imported weights; empty where there is none."""
    if model.original is None or not (model.original / name).exists():
        return {}
    found: dict[str, Any] = json.loads((model.original / name).read_text())
    return found
