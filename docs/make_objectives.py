# ruff: noqa: E501 (prose)
"""Writes docs/objectives.md: every objective with an example, as `t5x_like show` prints it.

    python docs/make_objectives.py

Run it when an objective or the look of examples changes.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

from t5x_like import objectives

INTRODUCTION = """\
# Objectives

An objective says what a model learns from a text: which tokens it sees, and which it must predict.
With any corpus of plain text it makes a task, `<corpus>.<objective>`. One cache of a corpus serves all
objectives at any length. Those of chosen parts, and those from text to text on, read rows with columns in place of plain text.
`t5x_like objectives` lists them, and `t5x_like objectives NAME` prints the fields of one. A run sets
fields by their class: `--gin.mlm.MaskedLM.masked_rate=0.2`. [new_objective.md](new_objective.md) shows
how to add an objective.

```sh
t5x_like show stdlib_docs.mlm                     # three examples, in colour
t5x_like show --corpus 'data/*.txt' --objective xlnet --html xlnet.html
```

Without colour, `{braces}` mark a token that was replaced by a random one, `=signs=` a token that was
kept and is predicted too, and `[brackets]` what is predicted. The examples come from the documentation
inside Python 3.11, with a vocabulary of 8,000 pieces trained on it. The line above an example says how
full the objective's rows are on that text.

Noise is drawn again in every epoch. It depends on the run's seed, the task, the objective and the
example's number alone, so that a resumed run, another number of hosts and SeqIO get the same noise. A
`static` objective repeats its noise in every epoch. Sentences are found by the rules of the text's
language ([data.md](data.md#sentences)); the [last section](#other-scripts) shows other scripts. Where a
paper and its published code differ, the objective follows the code, and the docstring of the class says
so.
"""

FAMILIES = {
    "T5": (
        "These are for encoder-decoders (Raffel et al. 2020, section 3.3). The sentinels "
        "`<extra_id_0>`, ... are the highest ids of the vocabulary. `iid_*` draw each token "
        "independently. Fields set the share of noise and the mean length of spans: "
        "`SpanCorruption.noise_density` and `.mean_noise_span_length`, and for `iid_*` "
        "`IidNoise.density`. A greater density also needs a greater `Denoising.targets_share`.",
        "span_corruption drop_spans iid_replace iid_drop bert_style mass_style deshuffling prefix_lm",
    ),
    "MASS": ("This is for encoder-decoders (Song et al. 2019).", "mass"),
    "LongT5": (
        "This is for encoder-decoders (Guo et al. 2022, section 3.2, after PEGASUS, Zhang et al. 2020). The overlap of a "
        "sentence with the others is ROUGE-1 (F1) of the pieces of both, each counted once.",
        "gap_sentences",
    ),
    "UL2": (
        "This is for encoder-decoders (Tay et al. 2022). One of seven denoisers is drawn for each "
        "example, and a mode token names its kind.",
        "ul2",
    ),
    "BART": (
        "These are for encoder-decoders (Lewis et al. 2020, section 2.2). Five kinds of noise are "
        "applied alone or one after another. The target is always the whole text.",
        "bart text_infilling token_masking token_deletion sentence_permutation document_rotation",
    ),
    "BERT": (
        "These are for encoders (Devlin et al. 2019, section 3.1). A share of the tokens is "
        "predicted: 80 % of these are masked, 10 % replaced and 10 % kept; or all are masked.",
        "mlm mlm_static mlm_whole_word mlm_specials mlm_all_masked mlm_nsp",
    ),
    "Chosen parts": (
        "These are for encoders, and read rows with `targets` and `parts`, the places of its parts as in SQuAD's answers; or "
        "texts with markers around them, which `MarkedParts.markers=('<e>', '</e>')` names and which are left out. Nothing "
        "else is predicted. Entities can be masked as wholes (Sun et al. 2019, section 3.2).",
        "mlm_parts mlm_whole_parts",
    ),
    "RoBERTa": (
        "These are for encoders (Liu et al. 2019, section 4.2). Masks are drawn again in every epoch, "
        "and there are four input formats.",
        "segment_pair sentence_pair full_sentences doc_sentences",
    ),
    "SpanBERT": ("This is for encoders (Joshi et al. 2020, section 3).", "spanbert"),
    "ALBERT": ("These are for encoders (Lan et al. 2020, section 3.1).", "albert mlm_sop"),
    "ELECTRA": (
        "These are for a generator and a discriminator (Clark et al. 2020, section 3). The ablations "
        "of its section 3.5 (ELECTRA 15 %, Replace MLM, All-Tokens MLM) read the same inputs. "
        "`discriminator_loss_weights` say where the discriminator is scored.",
        "electra electra_15 electra_replace_mlm electra_all_tokens_mlm",
    ),
    "DeBERTa": (
        "These are for encoders (He et al. 2021), and for a generator and a discriminator (He, Gao and "
        "Chen 2023). Words are predicted from left to right until 15 % of the row are: its last tenth rarely is.",
        "ngrams replaced_tokens",
    ),
    "CANINE": (
        "These are for encoders of characters (Clark et al. 2022, section 3.3). With `canine_c` all characters of masked "
        "words are predicted, in the order in which `masked_positions` come: each from those before it. "
        "`OBJECTIVE = @canine.CanineS()` predicts subwords, whose vocabulary `canine.CanineS.vocabulary` names. The published "
        "code has no pretraining: both follow the paper's words.",
        "canine_c",
    ),
    "DistilBERT": (
        "This is for a student that learns from a teacher (Sanh et al. 2019).",
        "distilbert",
    ),
    "Word vectors": (
        "This is for word vectors (Mikolov et al. 2013). After the text, each of its first words is shown with the words "
        "around it and those that were drawn.",
        "skip_gram",
    ),
    "XLNet": (
        "This is for encoders with memory (Yang et al. 2019, sections 2.2 to 2.4). Rows continue from "
        "batch to batch. Position i may not see position j if `permutation_query_order` of i is at "
        "most `permutation_key_order` of j. The model makes its masks from these two features.",
        "xlnet",
    ),
    "Language models": (
        "These are for decoders (Radford et al. 2019; Raffel et al. 2020). A decoder can also learn "
        "from `prefix_lm`, UL2 and any other objective with inputs and targets, if "
        "`feature_converters.PrefixDecoder()` makes its rows: it joins inputs and targets, lets the "
        "model see inputs from both sides, and scores the targets alone.",
        "lm lm_t5 lm_continued",
    ),
    "Text to text": (
        "This is for encoder-decoders (Raffel et al. 2020, section 2.4), and reads rows with `inputs` "
        "and `targets`: JSONL, TSV, CSV or Parquet.",
        "text_to_text bart_text_to_text",
    ),
    "Classes": (
        "This is for encoders with a head (Devlin et al. 2019, section 4.1), and reads rows with `inputs` and "
        "`label`, and `inputs2` where there are two texts. The names of the labels are numbered in their order, which `labels.json` in the run's directory "
        "has: by value where all are whole numbers, else by the alphabet.",
        "classes pair_classes",
    ),
    "Several classes": (
        "This is for encoders with a head of classes, each of which may hold or not, and reads rows with `inputs` and "
        "`label`, a list of names, and `inputs2` where there are two texts. `labels` has 1 for each class that holds; "
        "`Several.num_labels` is their number.",
        "several pair_several",
    ),
    "Ordered classes": (
        "This is for encoders with a head of one logit less than there are classes (Shi, Cao and Raschka 2021, "
        "section 3), and reads rows with `inputs` and `label`, and `inputs2` where there are two texts. `CORPUS_LABELS` "
        "gives the order of names, from the lowest.",
        "ordered pair_ordered",
    ),
    "Choices": (
        "This is for encoders with a head of one number (Devlin et al. 2019, section 4.4: SWAG), and reads rows with "
        "`inputs`, `choice_0`, `choice_1` and so on, and `label`, which names the right one as `Choices.names` does. "
        "Each choice makes a row of tokens.",
        "choices",
    ),
    "Numbers": (
        "This is for encoders with a head of one number (Devlin et al. 2019, section 4.1: STS-B), and reads rows with "
        "`inputs` and a number in `label`, and `inputs2` where there are two texts.",
        "numbers pair_numbers",
    ),
    "Tags": (
        "This is for encoders with a head for tokens (Devlin et al. 2019, section 5.3), and reads rows with `words` "
        "and `tags`, such as those of `.conll` files. `labels` has the number of a word's tag at its first token, and "
        "-1 where a token has none.",
        "tags",
    ),
    "Spans": (
        "This is for encoders with a head for starts and ends (Devlin et al. 2019, sections 4.2 and 4.3), and reads rows "
        "with a question in `inputs`, a text in `context` and `answers`, or files of SQuAD. A long text is read in "
        "windows. `start_positions` and `end_positions` are those of [CLS] (`null_position`) where a window does not "
        "have the answer; `text_position` is that of the window's first token. XLNet's own head (Yang et al. 2019) "
        "searches for the end of an answer from its start. Its rows also have `answer_mask`, 1 where an answer or "
        "none may be, and `is_impossible`.",
        "spans searched_spans",
    ),
}

_PARTS = (
    '{"targets": "Ada lived in Turin.", '
    '"parts": {"text": ["Ada", "Turin"], "answer_start": [0, 13]}}\n'
)
ROWS = {
    "canine_c": (
        "texts.txt",
        "The river was calm. Did you see the boats?\nThey came at dawn! Nobody spoke to Dr. Brown.\n",
        "--objective canine_c --vocabulary code_points",
    ),
    "mlm_parts": (
        "texts.jsonl",
        _PARTS,
        "--objective mlm_parts --vocab_type characters --vocab_size 99",
    ),
    "mlm_whole_parts": (
        "texts.jsonl",
        _PARTS,
        "--objective mlm_whole_parts --vocab_type characters --vocab_size 99",
    ),
    "text_to_text": (
        "pairs.tsv",
        "inputs\ttargets\ntranslate English to German: The river was calm.\tDer Fluss war ruhig.\n",
        "--vocabulary bytes",
    ),
    "bart_text_to_text": (
        "pairs.tsv",
        "inputs\ttargets\nAlimentum, riverside\tAlimentum is by the river.\n",
        "--objective bart_text_to_text --vocab_type byte_bpe --vocab_size 270",
    ),
    "classes": (
        "reviews.tsv",
        "inputs\tlabel\nThe river was calm.\tgood\nThe river was wild!\tbad\n",
        "--objective classes --vocab_type characters --vocab_size 99",
    ),
    "pair_classes": (
        "claims.tsv",
        "inputs\tinputs2\tlabel\nIt rains.\tIt is wet.\tyes\nIt rains.\tIt is dry.\tno\n",
        "--objective pair_classes --vocab_type characters --vocab_size 99",
    ),
    "several": (
        "topics.jsonl",
        '{"inputs": "The river was calm.", "label": ["nature"]}\n{"inputs": "The boat raced!", "label": ["nature", "sport"]}\n',
        "--objective several --vocab_type characters --vocab_size 99",
    ),
    "pair_several": (
        "both.jsonl",
        '{"inputs": "It rains.", "inputs2": "It is wet.", "label": ["alike", "wet"]}\n',
        "--objective pair_several --vocab_type characters --vocab_size 99",
    ),
    "ordered": (
        "stars.tsv",
        "inputs\tlabel\nThe river was calm.\t5\nThe boat raced!\t2\n",
        "--objective ordered --vocab_type characters --vocab_size 99",
    ),
    "pair_ordered": (
        "alike.tsv",
        "inputs\tinputs2\tlabel\nIt rains.\tIt is wet.\t3\nIt rains.\tI sing.\t0\n",
        "--objective pair_ordered --vocab_type characters --vocab_size 99",
    ),
    "choices": (
        "endings.tsv",
        "inputs\tchoice_0\tchoice_1\tchoice_2\tchoice_3\tlabel\nIt rains.\tIt is wet.\tIt is dry.\tI sing.\tNo.\t0\n",
        "--objective choices --vocab_type characters --vocab_size 99",
    ),
    "numbers": (
        "rated.jsonl",
        '{"inputs": "The river was calm.", "label": 4.5}\n{"inputs": "The river was wild!", "label": 2}\n',
        "--objective numbers --vocab_type characters --vocab_size 99",
    ),
    "pair_numbers": (
        "alike.jsonl",
        '{"inputs": "It rains.", "inputs2": "It is wet.", "label": 3.8}\n',
        "--objective pair_numbers --vocab_type characters --vocab_size 99",
    ),
    "tags": (
        "news.conll",
        "Ada B-PER\nlives O\nin O\nTurin B-LOC\n\nIt O\nrains O\n",
        "--objective tags --vocab_type characters --vocab_size 99",
    ),
    "spans": (
        "asked.jsonl",
        '{"inputs": "Where?", "context": "Ada lives in Turin.", '
        '"answers": {"text": ["Turin"], "answer_start": [13]}}\n',
        "--objective spans --vocab_type characters --vocab_size 99",
    ),
    "searched_spans": (
        "asked.jsonl",
        '{"inputs": "Where?", "context": "Ada lives in Turin.", '
        '"answers": {"text": ["Turin"], "answer_start": [13]}}\n',
        "--objective searched_spans --vocab_type characters --vocab_size 99",
    ),
}
"""For objectives that do not read plain text, or not in pieces: a file, its rows, and flags."""

VARIANT = re.compile(r"_(rate|length)_\d+$")
"""Names that differ from another one in a number; the page has no example of them."""

SCRIPTS = """\
## Other scripts

`bart` shuffles sentences and masks spans of words, so its examples show what sentences and words are in a
script. Sentences end where the rules of the language say. A word ends before the next space. In scripts
without spaces between words (Chinese, Japanese, Thai, Lao, Khmer, Burmese, Tibetan) every piece of the
vocabulary is a word; here a piece is a character, as the vocabularies hold characters. Thai has no mark
that ends a sentence, only a space that also stands elsewhere, and the library finds no ends there.
"""

TEXTS = {
    "English": (
        "en",
        "The river was calm. Did you see the boats? They came at dawn! Nobody spoke to Dr. Brown.",
    ),
    "Chinese": ("zh", "河水很平静。你看见船了吗？它们黎明时来了！没有人说话。"),  # noqa: RUF001
    "Hindi": ("hi", "नदी शांत थी। क्या तुमने नावें देखीं? वे भोर में आईं! कोई नहीं बोला।"),
    "Arabic": ("ar", "كان النهر هادئا. هل رأيت القوارب؟ لقد جاءت عند الفجر! لم يتكلم أحد."),
    "Thai": ("th", "แม่น้ำสงบนิ่ง คุณเห็นเรือไหม พวกมันมาถึงตอนรุ่งสาง ไม่มีใครพูดอะไร"),
}


def main() -> None:
    """Writes the page."""
    parts = [INTRODUCTION]
    summaries = objectives.summaries()
    listed = {name for _, names in FAMILIES.values() for name in names.split()}
    others = " ".join(n for n in summaries if n not in listed and not VARIANT.search(n))
    families = FAMILIES | ({"Others": ("", others)} if others else {})
    for family, (about, names) in families.items():
        parts.append(f"## {family}\n\n{textwrap.fill(about, 100)}\n")
        for name in names.split():
            summary = summaries[name][0].upper() + summaries[name][1:]
            parts.append(f"### {name}\n\n{summary}.\n\n{_example(name)}")
    parts.append(SCRIPTS)
    parts += [f"### {name}\n\n{_of_script(*text)}" for name, text in TEXTS.items()]
    Path(__file__).with_name("objectives.md").write_text("\n".join(parts), encoding="utf-8")


def _example(name: str) -> str:
    if name not in ROWS:
        command = f"t5x_like show stdlib_docs.{name} -n 1 --length 64"
        return f"```\n$ {command}\n{_output(command)}\n```\n"
    with tempfile.TemporaryDirectory() as folder:
        file, rows, flags = ROWS[name]
        Path(folder, file).write_text(rows, encoding="utf-8")
        command = f"t5x_like show --corpus {file} {flags} --validation 0 -n 1 --length 64"
        shown = _output(f"{command} --cache_dir .", folder)
        return f"```\n$ cat {file}\n{rows}$ {command}\n{shown}\n```\n"


def _of_script(language: str, text: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, f"{language}.txt").write_text(text, encoding="utf-8")
        command = (
            f"t5x_like show --corpus {language}.txt --sentences {language} --objective bart "
            "--vocab_type characters --vocab_size 99 --validation 0 --length 100 -n 1"
        )
        shown = _output(f"{command} --cache_dir .", folder)
    return f"```\n$ {command}\n{shown}\n```\n"


def _output(command: str, folder: str | None = None) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *command.split(), "--color", "never"],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
    )
    # What was made on the first use, and what the page says once.
    lines = done.stdout.splitlines()
    first = next(i for i, line in enumerate(lines) if " rows an epoch;" in line)
    return "\n".join(line for line in lines[first:] if not line.startswith("marks:")).strip()


if __name__ == "__main__":
    main()
