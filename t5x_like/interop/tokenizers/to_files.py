"""Writes tokenizer files for a Hugging Face directory, from a vocabulary and a model family."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from t5x_like.core.protocols.data import TokenIds, Vocabulary
from t5x_like.interop.tokenizers import kinds
from t5x_like.vocabularies import files, special_tokens
from t5x_like.vocabularies.code_points import CodePointVocabulary

CODE_POINTS = "CanineTokenizer"
"""The class that needs no file: its ids are code points."""
SAVED = "vocabulary"
"""The folder with the unchanged vocabulary, for when the directory is imported again."""


@dataclasses.dataclass(frozen=True)
class Family:
    """The special tokens that a family adds to a text (A) and to a pair of texts (A, B).

    Words of `text` and `pair` are a text or the role of a special token, then its token type.
    "begin" is <s> where the vocabulary has it, else its [CLS]. `context_first`: whether a text
    comes before the question about it. `no_answer`: the role of the special token whose place is
    that of no answer; None for [CLS] or <s>, or else the first token.
    """

    text: str
    pair: str
    token_types: bool = False
    context_first: bool = False
    no_answer: str | None = None
    config: Mapping[str, Any] = dataclasses.field(default_factory=dict)


_BERT = Family("cls:0 A:0 sep:0", "cls:0 A:0 sep:0 B:1 sep:1", token_types=True)
_ROBERTA = Family("cls:0 A:0 sep:0", "cls:0 A:0 sep:0 sep:0 B:0 sep:0")
_BART = Family("begin:0 A:0 eos:0", "begin:0 A:0 eos:0 eos:0 B:0 eos:0")
_T5 = Family("A:0 eos:0", "A:0 eos:0 B:0 eos:0")
_GPT = Family("A:0", "A:0 eos:0 B:0", no_answer="eos")
_XLNET = Family(
    "A:0 sep:0 cls:2",
    "A:0 sep:0 B:1 sep:1 cls:2",
    token_types=True,
    context_first=True,
    config={"padding_side": "left", "pad_token_type_id": 3},
)
FAMILIES = {
    "albert": _BERT,
    "bart": _BART,
    "bert": _BERT,
    "canine": _BERT,
    "deberta": dataclasses.replace(_BERT, token_types=False),
    "deberta-v2": dataclasses.replace(_BERT, token_types=False),
    "distilbert": dataclasses.replace(_BERT, token_types=False),
    "electra": _BERT,
    "eurobert": dataclasses.replace(_BERT, token_types=False),
    "gpt2": _GPT,
    "led": _BART,
    "longformer": _ROBERTA,
    "longt5": _T5,
    "mbart": _BART,
    "modernbert": dataclasses.replace(_BERT, token_types=False),
    "modernbert-decoder": _GPT,
    "mt5": _T5,
    "neobert": dataclasses.replace(_BERT, token_types=False),
    "openai-gpt": _GPT,
    "roberta": _ROBERTA,
    "t5": _T5,
    "umt5": _T5,
    "xlnet": _XLNET,
}
"""The families, by the `model_type` of `config.json`."""


def as_imported(family: Family, read: Callable[[str], Mapping[str, Any]]) -> Family:
    """The special tokens that came with a model, where tokenizers of its family differ.

    GPT's put nothing between two texts, unless they were exported here.

    Args:
      family: that of the model.
      read: gives the contents of a JSON file that came with it, empty for none.
    """
    if family is not _GPT:
        return family
    template = (read("tokenizer.json").get("post_processor") or {}).get("pair", ())
    if [*map(next, map(iter, template))] == ["Sequence", "SpecialToken", "Sequence"]:
        return family
    return dataclasses.replace(family, pair="A:0 B:0", no_answer=None)


def write(
    vocabulary: Vocabulary, directory: str | Path, *, model_type: str, max_length: int | None = None
) -> None:
    """Writes the files of a tokenizer, and the vocabulary itself in `SAVED`.

    They are `tokenizer.json`, `tokenizer_config.json` and `special_tokens_map.json`; of code points
    `tokenizer_config.json` alone, which names `CODE_POINTS`.

    `transformers.AutoTokenizer` then gives the vocabulary's ids, with the family's tokens around a
    text. The special tokens are the vocabulary's. Unlike in the vocabulary, one written in a text,
    such as [MASK], gets its id, as in Hugging Face's tokenizers.

    Args:
      vocabulary: one of text.
      directory: created if it does not exist; earlier files are replaced.
      model_type: one of `FAMILIES`.
      max_length: the number of ids that the model has positions for; None for any number.

    Raises:
      ValueError: there is no such family, or such a vocabulary can have no tokenizer.
      OSError: the directory cannot be written to.
    """
    if model_type not in FAMILIES:
        raise ValueError(f"no tokenizer for model type {model_type!r}: {', '.join(FAMILIES)}")
    family, folder = FAMILIES[model_type], Path(directory)
    vocabulary.save(folder / SAVED)
    length = {} if max_length is None else {"model_max_length": max_length}
    if isinstance(vocabulary, CodePointVocabulary):
        (folder / "tokenizer.json").unlink(missing_ok=True)
        _write_json(folder / "tokenizer_config.json", {"tokenizer_class": CODE_POINTS, **length})
        return
    fields = kinds.describe(vocabulary, folder / SAVED)
    roles = _roles(vocabulary, {token["content"] for token in fields["added_tokens"]})
    fields["post_processor"] = _template(family, roles, vocabulary.token_ids)
    types = ["token_type_ids"] * family.token_types
    config = {
        # Every release knows this name; the newest call it TokenizersBackend.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "do_lower_case": _lower_cases(fields["normalizer"]),  # for BertTokenizer and the like
        "model_input_names": ["input_ids", *types, "attention_mask"],
        **length,
        **{f"{role}_token": name for role, name in roles.items()},
        **family.config,
    }
    named = {f"{role}_token": name for role, name in roles.items()}
    special = [token["content"] for token in fields["added_tokens"] if token["special"]]
    others = [name for name in special if name not in roles.values()]
    more = {"additional_special_tokens": others} if others else {}
    for name, content in (
        ("tokenizer.json", fields),
        ("tokenizer_config.json", {**config, **more}),
        ("special_tokens_map.json", {**named, **more}),
    ):
        _write_json(folder / name, content)


def _write_json(file: Path, content: Mapping[str, Any]) -> None:
    text = json.dumps(content, ensure_ascii=False, indent=2)
    files.write_atomically(file, text.encode())


def _lower_cases(normalizer: Mapping[str, Any] | None) -> bool:
    steps = normalizer.get("normalizers", [normalizer]) if normalizer else []
    return any(step.get("lowercase") or step["type"] == "Lowercase" for step in steps)


def _roles(vocabulary: Vocabulary, special: set[str]) -> dict[str, str]:
    """The special token of each role, where the vocabulary has one."""
    ids = vocabulary.token_ids
    by_role = {role: getattr(ids, role) for role in special_tokens.ROLES}
    if ids.pad == ids.unk:  # a vocabulary without padding uses 0 in its place
        by_role["pad"] = None
    names = {role: vocabulary.piece(i) for role, i in by_role.items() if i is not None}
    return {role: name for role, name in names.items() if name in special}


def _template(family: Family, roles: Mapping[str, str], ids: TokenIds) -> dict[str, Any]:
    """A post-processor; it leaves out tokens that the vocabulary lacks."""
    used: dict[str, int] = {}

    def steps(text: str) -> list[dict[str, Any]]:
        template_steps: list[dict[str, Any]] = []
        for word in text.split():
            what, token_type = word.split(":")
            if what in ("A", "B"):
                template_steps.append({"Sequence": {"id": what, "type_id": int(token_type)}})
                continue
            role = ("bos" if "bos" in roles else "cls") if what == "begin" else what
            if role in roles:
                used[roles[role]] = ids.given(role)
                template_steps.append(
                    {"SpecialToken": {"id": roles[role], "type_id": int(token_type)}}
                )
        return template_steps

    return {
        "type": "TemplateProcessing",
        "single": steps(family.text),
        "pair": steps(family.pair),
        "special_tokens": {
            name: {"id": name, "ids": [i], "tokens": [name]} for name, i in sorted(used.items())
        },
    }
