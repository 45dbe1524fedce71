"""Faults that others have had in public: which test keeps each of them from being ours."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
HUGGING_FACE = "interop/hugging_face"

# (reports, what happened, a test that would fail if it happened here), once for each of the tests.
KNOWN = [
    (
        "transformers#4682 transformers#1531 transformers#774",
        "XLNet continues what follows the text's end",
        "api/test_predictors.py::a_continuation_follows_the_text_alone",
    ),
    (
        "transformers#5984 transformers#4727 albert#29",
        "a loss that stays near that of frequencies is taken for divergence",
        "training/health/test_bad_steps.py::a_run_that_learns_goes_on",
    ),
    (
        "transformers#12762 tokenizers#323",
        "a tokenizer of SentencePiece's kind is not read from tokenizer.json",
        "interop/tokenizers/test_saved_by_transformers.py"
        "::ids_are_those_of_transformers_before_and_after_a_round_trip",
    ),
    (
        "transformers#1413 transformers#11241 tokenizers#247",
        "added tokens have no ids of their own",
        "interop/tokenizers/test_saved_by_transformers.py"
        "::tokens_that_somebody_adds_to_an_export_count",
    ),
    (
        "transformers#1413",
        "a larger vocabulary needs a new model",
        "runs/test_init_from.py::a_model_of_hugging_face_gets_tokens",
    ),
    (
        "fairseq#1048 fairseq#2167",
        "a table has fewer rows than there are ids",
        "cli/test_import_export.py::a_tokenizer_fits_the_table_or_is_refused_by_name",
    ),
    (
        "tokenizers#219 bert#886",
        "accents vanish although the settings keep them",
        "interop/tokenizers/test_from_files.py::word_pieces_as_the_settings_say",
    ),
    (
        "fairseq#1306 transformers#8507 transformers#11934 transformers#12678",
        "a filled mask lacks or gains a space",
        "inference/test_masked_words.py::a_token_brings_its_space_or_takes_one_away",
    ),
    (
        "keras-hub#236 TransformerLens#1347",
        "more guesses than tokens, or none, are a crash",
        "api/test_predictors.py::options_that_are_none_are_refused",
    ),
    (
        "transformers#16668 transformers#25384",
        "a shortest answer above the longest is accepted",
        "inference/test_decoding.py::settings_that_mean_nothing_are_refused",
    ),
    (
        "DeepLearningExamples#421 FARM#154 transformers#272 bert#125",
        "pairs of one document, or of lone sentences, teach nothing",
        "runs/checks/test_teaching.py::labels_that_teach_nothing_are_named",
    ),
    (
        "transformers#452",
        "one long text gives no examples",
        "data/corpora/test_text_pieces.py::a_long_file_is_one_document_in_pieces",
    ),
    (
        "transformers#7161",
        "an empty document is drawn as a second text",
        "data/corpora/test_text_files.py::rows_without_text_are_counted",
    ),
    (
        "transformers#22707 keras-hub#571",
        "a prompt among others is answered in another way",
        "inference/test_decoding.py::prompts_of_several_lengths_are_continued_as_by_the_whole_model",
    ),
    (
        "mlx-embeddings#80 transformers#35988",
        "padded rows are not finite",
        "layers/attention/test_attention_kernels.py::any_shapes_and_broadcasts_give_what_plain_gives",
    ),
    (
        "transformers#31035",
        "padding in bfloat16 is not finite",
        "models/test_every_family.py::in_bfloat16_parameters_and_metrics_stay_float32",
    ),
    (
        "transformers#14189 transformers#4586 transformers#9295",
        "float16 loses gradients without a word",
        "runs/checks/test_teaching.py::a_precision_without_small_gradients_is_named",
    ),
    (
        "transformers#14282",
        "sentinels count in another direction in the exported tokenizer",
        "interop/tokenizers/test_to_files.py::written_sentinels_get_their_ids",
    ),
    (
        "llm-foundry#841 GLM#122 sentencepiece#798",
        "ids without a token are drawn",
        "inference/test_decoding.py::ids_beyond_the_vocabulary_are_never_chosen",
    ),
    (
        "transformers#1730",
        "a table grows and the bias of its head does not",
        "runs/test_init_from.py::a_longer_student_of_more_ids_starts_from_its_teacher",
    ),
    (
        "transformers#6150 text-to-text-transfer-transformer#390",
        "a vocabulary loses white space and braces",
        "vocabularies/test_trained.py::byte_level_bpe_keeps_any_text",
    ),
    (
        "transformers#12390",
        "guesses for a mask are not those of fill-mask",
        f"{HUGGING_FACE}/test_predict_parity.py::blanks_are_filled_as_by_fill_mask",
    ),
    (
        "tokenizers#756 tokenizers#399",
        "lower-casing takes letters and vowel signs away",
        "vocabularies/learning/test_vocabulary_recipe.py"
        "::marks_are_kept_where_that_is_chosen_and_missed_where_they_are_not",
    ),
    (
        "transformers#16711 transformers#16522 tokenizers#1193",
        "in a short text nothing is masked",
        "objectives/noise/test_masking.py::published_budgets",
    ),
    (
        "text#349 text#612 pytext#376",
        "a stray quote swallows rows",
        "data/corpora/formats/test_text_formats.py::tsv_takes_quotes_as_text_and_csv_does_not",
    ),
    (
        "datasets#3729 datasets#3910",
        "separators of Unicode cut lines",
        "data/corpora/formats/test_text_formats.py::plain_text_loses_no_line",
    ),
    (
        "LDL#3",
        "a byte order mark is read as text",
        "data/corpora/formats/test_compression.py::a_byte_order_mark_is_no_text",
    ),
    (
        "transformers#11809 candle#1887",
        "old files name norms by gamma and beta",
        f"{HUGGING_FACE}/test_bert_parity.py::files_of_old_are_read",
    ),
    (
        "transformers#38870 transformers#41038 candle#2879",
        "a tied table has another of its names alone",
        f"{HUGGING_FACE}/test_t5_parity.py::a_table_may_have_another_of_its_names_alone",
    ),
    (
        "transformers#4875 transformers#20043",
        "a table has more rows than there are tokens",
        "cli/test_import_export.py::a_tokenizer_fits_the_table_or_is_refused_by_name",
    ),
    (
        "transformers#5738 tokenizers#450 machinelearning#7725",
        "odd text has other ids",
        "interop/tokenizers/test_to_files.py::the_same_ids_on_real_text_and_odd_text",
    ),
    (
        "trl#784 mesh#173",
        "packed examples see one another",
        "models/test_t5.py::packed_examples_score_as_each_does_alone",
    ),
    (
        "fairseq#1103",
        "a sentence longer than a row is dropped",
        "objectives/parts/test_sentence_blocks.py::segments_stay_whole_unless_they_are_too_long",
    ),
    (
        "electra#94 turkish-bert#23",
        "a converted ELECTRA predicts something else",
        f"{HUGGING_FACE}/test_electra_parity.py::a_joint_model_goes_out_as_two",
    ),
    (
        "orbax#331 orbax#487 t5x#1392",
        "parameters cannot be opened without the optimizer's state",
        "training/checkpointing/test_checkpoints.py::inference_reads_the_averaged_parameters_alone",
    ),
    (
        "transformers#12755 transformers#15359 transformers#23248",
        "special tokens that stand in a text count as such",
        "vocabularies/test_trained.py::no_text_becomes_a_special_token",
    ),
    (
        "seqio#535 transformers#19742",
        "the end of a text that fills its row is lost",
        "data/samples/test_packing.py::rows_fit_after_trimming_and_eos",
    ),
    (
        "transformers#28544",
        "patience begins anew after a restart",
        "training/health/test_early_stopping.py::a_killed_run_stops_where_it_would_have_stopped",
    ),
    (
        "flowgym#51 verl#7395",
        "a restart removes the wrong checkpoint",
        "training/checkpointing/test_checkpoints.py::the_latest_and_the_best_are_kept",
    ),
    (
        "ModernBERT#212 transformers#1395",
        "special tokens are masked",
        "objectives/test_mlm.py::budgets_count_special_tokens",
    ),
    (
        "datasets#6162 datasets#7169 datasets#2181 arrow#45394",
        "rows that differ in their fields, or are long, are a crash or are lost",
        "data/corpora/formats/test_text_formats.py::what_cannot_be_read_is_named_with_its_place",
    ),
    (
        "fairseq#1187 japanese-pretrained-models#3 transformers#9116",
        "a RoBERTa's positions depend on its padding",
        f"{HUGGING_FACE}/test_roberta_parity.py::padding_on_the_left_moves_no_position",
    ),
    (
        "pytorch-lightning#1922",
        "fewer steps than are taken begin the run anew",
        "training/test_loop.py::a_run_is_finished_at_its_last_step_and_beyond",
    ),
    (
        "insightface#2143",
        "the logged learning rate is none that was used",
        "training/test_metrics.py::the_learning_rate_is_that_of_the_last_step",
    ),
    (
        "transformers#8005 transformers#11174",
        "a BART repeats or drops its first token",
        "models/test_bart.py::the_first_token_reads_row_2_of_the_positions_and_padding_none",
    ),
    (
        "transformers#108",
        "a text that is too long is a crash",
        "inference/test_text_rows.py::a_long_text_loses_its_end_and_keeps_the_special_tokens",
    ),
    (
        "transformers#11768 transformers#9866 transformers#12665",
        "whole words are masked in WordPiece alone",
        "objectives/parts/test_words.py::words_begin_where_the_rule_says",
    ),
]


@pytest.mark.parametrize(("reports", "fault", "test"), KNOWN, ids=[one[0] for one in KNOWN])
def test_a_known_fault_has_its_test(reports: str, fault: str, test: str) -> None:
    assert all(re.fullmatch(r"[\w-]+#\d+", report) for report in reports.split())
    file, _, name = test.partition("::")
    assert f"\ndef test_{name}(" in (TESTS / file).read_text(), fault
