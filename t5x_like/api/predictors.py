"""The predictors of a loaded model: what it can be asked, with its vocabulary and its mesh."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from etils import epath

from t5x_like.api.options import Options
from t5x_like.core.abilities import (
    AnswersTask,
    AnswersTasks,
    GivesStates,
    GuessesMasked,
    MarksReplaced,
    Writes,
    can,
)
from t5x_like.data.rows.feature_converters import PrefixDecoder, start_id
from t5x_like.inference import replaced_tokens
from t5x_like.inference.decoding.settings import Decoding
from t5x_like.inference.embeddings import Embeddings
from t5x_like.inference.fill_blanks import Blanks, has_blank
from t5x_like.inference.heads.head_answers import HeadAnswers, Kind
from t5x_like.inference.heads.learned import Learned
from t5x_like.inference.heads.span_answers import Reading
from t5x_like.inference.heads.text_windows import TextReading
from t5x_like.inference.heads.zero_shot import ZeroShot
from t5x_like.inference.likelihoods.blank_scorer import BlankScorer
from t5x_like.inference.likelihoods.masked_scorer import MaskedScorer
from t5x_like.inference.likelihoods.scoring import Ranking, Scoring
from t5x_like.inference.likelihoods.target_scorer import TargetScorer
from t5x_like.inference.masked_words import MaskedWords
from t5x_like.inference.model_on_mesh import ModelOnMesh
from t5x_like.inference.predictions import Predictor
from t5x_like.inference.rewriting import Rewriting
from t5x_like.inference.text_rows import Framing
from t5x_like.inference.writing import Answering, Writer
from t5x_like.interop.hugging_face import families
from t5x_like.interop.tokenizers.to_files import FAMILIES, Family, as_imported
from t5x_like.runs.trained import one_head

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import Objective, Vocabulary
    from t5x_like.runs.run import Run

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
_GO_ON = ("write", "score", "rank")
_OF_TOKENS = (
    "bos_token_id",
    "cache_implementation",
    "decoder_start_token_id",
    "eos_token_id",
    "max_length",
    "min_length",
    "pad_token_id",
    "transformers_version",
)
_CHANGES_NOTHING: Sequence[Any] = (None, False, 0, 1, "", [], {})


@dataclasses.dataclass(frozen=True)
class Asked:
    """A model that is asked.

    Attributes:
      mesh: the model and where it lies.
      vocabulary: the model's.
      run: the run that trained it; None if it was imported.
      original: the folder of the files that came with it from Hugging Face; None for a run.
      labels: the names of the classes that the run has learned.
      no_answer_threshold, class_threshold, temperature: those of `TrainedRun`.
    """

    mesh: ModelOnMesh
    vocabulary: Vocabulary
    run: Run | None = None
    original: epath.Path | None = None
    labels: Sequence[str] = ()
    no_answer_threshold: float | None = None
    class_threshold: float | None = None
    temperature: float | None = None

    @property
    def module(self) -> Any:
        return self.mesh.model

    @property
    def writes(self) -> bool:
        """Whether it writes token by token."""
        return can(self.module, Writes)

    @property
    def alone(self) -> bool:
        """Whether it is a decoder without an encoder."""
        return self.writes and not self.module.reads_apart

    def goes_on(self, ask: Ask) -> bool:
        """Whether what answers `ask` follows a text itself, without special tokens after it."""
        of_targets = ask == "write" or (ask in _GO_ON and not self.guesses)
        return of_targets and self.alone and not self.sees_prefix

    @property
    def guesses(self) -> bool:
        """Whether it predicts masked tokens."""
        return can(self.module, GuessesMasked)

    @property
    def rewrites(self) -> bool:
        """Whether it writes a whole text again, with what belongs at the masks that it reads."""
        ids = self.vocabulary.token_ids
        if not self.writes or self.alone or ids.mask is None:
            return False
        if self.run is None:  # sentinels are what models with both were trained on
            return not ids.sentinels
        return any("mask" in objective.needs for objective in self.run.data.task_objectives())

    @property
    def has_head(self) -> bool:
        """Whether it has a task's head."""
        return can(self.module, AnswersTask)

    def check_one_head(self) -> None:
        """Raises ValueError where it has the heads of several tasks."""
        if can(self.module, AnswersTasks):
            raise one_head.which(self.module)

    @property
    def family(self) -> Family:
        """The special tokens around texts, as in the family's tokenizers at Hugging Face."""
        of = self.module
        model = of.of_task(of.tasks[0]) if can(of, AnswersTasks) else of
        try:
            family = FAMILIES[families.model_type(model)]
            return family if self.run else as_imported(family, self.file)
        except (KeyError, ValueError):  # a family of the user's, or without a counterpart there
            return _WRITER if self.writes else _ENCODER

    def able(self) -> list[Ask]:
        """The requests that the model can answer."""
        spans = self.writes and bool(self.vocabulary.token_ids.sentinels)
        fills = self.guesses or self.rewrites or spans
        likely = self.writes or self.guesses
        possible: dict[Ask, bool] = {
            "write": self.writes,
            "fill": fills,
            "mark": can(self.module, MarksReplaced),
            "answer": self.has_head,
            "score": likely,
            "rank": likely,
            "embed": can(self.module, GivesStates),
        }
        return [ask for ask, can in possible.items() if can]

    def file(self, name: str) -> dict[str, Any]:
        """A JSON file that came with imported weights; empty where there is none."""
        if self.original is None or not (self.original / name).exists():
            return {}
        content: dict[str, Any] = json.loads((self.original / name).read_text())
        return content

    def usual_decoding(self, *, most: int | None = None) -> dict[str, Any]:
        """The settings that came with imported weights, as transformers' `generate` takes them.

        Args:
          most: the most tokens that are asked for, which is then also the most of the fewest.
        """
        saved = self.file("generation_config.json")
        known = {field.name for field in dataclasses.fields(Decoding)}
        settings = {
            name: value for name, value in saved.items() if name in known and value is not None
        }
        # Theirs count the token that the decoder begins with.
        for their_name, ours in (
            ("max_length", "max_new_tokens"),
            ("min_length", "min_new_tokens"),
        ):
            if saved.get(their_name) and ours not in settings and not self.alone:
                settings[ours] = max(saved[their_name] - 1, 0)
        if most is not None and "min_new_tokens" in settings:
            settings["min_new_tokens"] = min(settings["min_new_tokens"], most)
        if not settings.get("do_sample"):
            for name in ("temperature", "top_k", "top_p"):
                settings.pop(name, None)
        return settings

    def unread_decoding(self) -> list[str]:
        """Names of imported settings that transformers' `generate` obeys and nothing here does."""
        saved = self.file("generation_config.json")
        known = {field.name for field in dataclasses.fields(Decoding)}.union(_OF_TOKENS)
        names = [
            name
            for name, value in saved.items()
            if name not in known and not name.startswith("_") and value not in _CHANGES_NOTHING
        ]
        end = saved.get("eos_token_id")
        return names + ["eos_token_id"] * (end not in (None, self.vocabulary.token_ids.eos))

    def start(self) -> int | None:
        """The id that a decoder reads first; None for padding, or where the text is read first."""
        if self.run is not None:
            return start_id(self.run.feature_converter, self.vocabulary.token_ids)
        if self.alone:
            return None
        named = (self.file(name) for name in ("generation_config.json", "config.json"))
        starts = (settings.get("decoder_start_token_id") for settings in named)
        return next((int(start) for start in starts if start is not None), None)

    @property
    def sees_prefix(self) -> bool:
        """Whether inputs and targets are one sequence, whose inputs are seen from both sides."""
        return self.run is not None and isinstance(self.run.feature_converter, PrefixDecoder)


def usual_ask(model: Asked, records: Sequence[Mapping[str, Any]]) -> Ask:
    """The default request for records: to fill their blanks if any, else what the model is for.

    Raises:
      ValueError: the model does nothing with such texts; the error says what it can do.
    """
    model.check_one_head()
    able = model.able()
    blanks = any(has_blank(str(record.get("inputs", ""))) for record in records)
    for ask in ("answer", *(["fill"] * blanks), "mark", "write"):
        if ask in able:
            return ask
    name = type(model.module).__name__
    if "fill" in able:
        raise ValueError(
            f"a {name} guesses the blanks of a text: write ___ or [MASK] in it. It can also score "
            "texts and embed them (--score, --embed)"
        )
    raise ValueError(f"a {name} has only states to give (--embed)")


def predictor(model: Asked, ask: Ask, options: Options) -> Predictor:
    """The predictor that answers `ask`.

    Raises:
      ValueError: the model cannot be asked this, or not with these options.
    """
    if ask == "answer":
        model.check_one_head()
    able = model.able()
    if ask not in able:
        can = ", ".join(f"{name} ({ASKS[name]})" for name in able)
        what = f" ({ASKS[ask]})" if ask in ASKS else ""
        raise ValueError(f"a {type(model.module).__name__} cannot {ask}{what}; it can {can}")
    form = model.module.answer_form if ask == "answer" else None
    options.check(
        ask, form=form, guesses=model.guesses, has_temperature=model.temperature is not None
    )
    framing, size = _framing(model, ask, options), options.batch_size
    match ask:
        case "write":
            return Answering(_writer(model, options), framing)
        case "fill" if model.guesses:
            return MaskedWords(model=model.mesh, framing=framing, k=options.k or 1, batch_size=size)
        case "fill":
            if options.k not in (None, 1):
                raise ValueError("an encoder-decoder writes one answer: k must be 1")
            filler = Rewriting if model.rewrites else Blanks
            return filler(_writer(model, options), framing)
        case "mark":
            return replaced_tokens.ReplacedTokens(model.mesh, framing, size)
        case "answer":
            judge = _head(model, framing, options)
            if not options.candidate_labels:
                return judge
            labels, template = options.candidate_labels, options.hypothesis_template
            return ZeroShot(judge=judge, candidate_labels=labels, hypothesis_template=template)
        case "embed":
            return Embeddings(
                model=model.mesh,
                framing=framing,
                layer=options.layer,
                pooling=options.pooling,
                batch_size=size,
            )
    scoring = _scoring(model, framing, options)
    return Ranking(scoring, options.per_token) if ask == "rank" else scoring


def _writer(model: Asked, options: Options) -> Writer:
    return Writer(
        model=model.mesh,
        ids=model.vocabulary.token_ids,
        start=model.start(),
        prefix=model.sees_prefix,
        decoding=options.decoding,
        batch_size=options.batch_size,
        max_positions=model.module.max_tokens,
    )


def _framing(model: Asked, ask: Ask, options: Options) -> Framing:
    """How texts become rows of the model."""
    limits = [options.max_input_length]
    if ask in ("write", "score", "rank") and model.run is not None and not model.alone:
        limits = [options.max_input_length or (model.run.data.lengths or {}).get("inputs")]
    positions = model.module.max_tokens if can(model.module, GivesStates) else None
    if positions is not None and model.alone and ask in ("write", "fill"):
        positions -= options.decoding.max_new_tokens
        if positions < 1:
            raise ValueError(
                f"max_new_tokens={options.decoding.max_new_tokens} leaves no room for a text: the "
                f"model has {positions + options.decoding.max_new_tokens} positions"
            )
    known = [limit for limit in (*limits, positions) if limit is not None]
    family = model.family
    return Framing(
        vocabulary=model.vocabulary,
        template="A:0" if model.goes_on(ask) else family.text,
        pair=family.pair,
        max_length=min(known, default=None),
        keeps_end=model.alone and ask in _GO_ON,
        token_types=family.token_types,
        masks=ask in ("mark", "embed") or (ask in ("score", "rank") and model.guesses),
    )


def _head(model: Asked, framing: Framing, options: Options) -> HeadAnswers:
    kind: Kind = model.module.answer_form
    imported = model.file("config.json").get("id2label") or {}
    if options.k is not None and kind != "classes":
        raise ValueError(f"k is the number of classes: this model answers with {kind}")
    return HeadAnswers(
        model=model.mesh,
        framing=framing,
        kind=kind,
        labels=model.labels or [imported[i] for i in sorted(imported, key=int)],
        k=options.k,
        class_threshold=_first_known(options.class_threshold, model.class_threshold),
        temperature=(options.calibrated and model.temperature) or 1.0,
        batch_size=options.batch_size,
        reading=TextReading.of_family(model.family, _learned(model, framing)),
        questions=_questions(model, framing, options) if "spans" in kind else None,
    )


def _questions(model: Asked, framing: Framing, options: Options) -> Reading:
    """How questions and texts are read, and when a question has no answer."""
    above = _first_known(options.no_answer_threshold, model.no_answer_threshold)
    form, learned = model.module.answer_form, _learned(model, framing)
    return Reading.of_family(model.family, learned, form=form, no_answer_above=above)


def _first_known(*thresholds: float | None) -> float | None:
    return next((threshold for threshold in thresholds if threshold is not None), None)


def _learned(model: Asked, framing: Framing) -> Learned:
    """What the run of a model says of how it read texts."""
    if model.run is None:
        return Learned(most=framing.max_length)
    data = model.run.data
    length = (data.lengths or {}).get("inputs")
    objectives: Sequence[Objective] = ()
    with contextlib.suppress(ValueError):  # SeqIO's tasks need not be known here
        objectives = data.task_objectives()
    return Learned(objectives, length, framing.max_length)


def _scoring(model: Asked, framing: Framing, options: Options) -> Scoring:
    size = options.batch_size
    if model.guesses:
        masked = MaskedScorer(
            model=model.mesh,
            framing=framing,
            within_word=options.within_word,
            batch_size=size,
        )
        return Scoring(masked, framing, None, batch_size=size)
    targets = TargetScorer(
        model=model.mesh,
        ids=framing.ids,
        start=model.start(),
        prefix=model.sees_prefix,
        batch_size=size,
        max_positions=model.module.max_tokens,
    )
    template = "A:0" if model.goes_on("score") else "A:0 eos:0"
    fills = not model.alone and "fill" in model.able()
    blanks = BlankScorer(targets, framing, model.rewrites) if fills else None
    return Scoring(targets, framing, Framing(framing.vocabulary, template), blanks, size)
