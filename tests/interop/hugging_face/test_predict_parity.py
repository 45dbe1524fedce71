"""What `predict` says is what transformers' pipelines and models say of the same weights."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from stored_models import SIZES, stored

import t5x_like as t5x
from t5x_like.interop.tokenizers import to_files
from t5x_like.objectives.supervised.spans import Spans

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
# model type: class, configuration, kind of vocabulary, further settings
MASKED = {
    "bert": ("BertForMaskedLM", "BertConfig", "wordpiece", {}),
    "roberta": ("RobertaForMaskedLM", "RobertaConfig", "byte_bpe", {}),
    "albert": ("AlbertForMaskedLM", "AlbertConfig", "unigram", {"embedding_size": 8}),
    "electra": ("ElectraForMaskedLM", "ElectraConfig", "wordpiece", {"embedding_size": 8}),
}
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("model_type", MASKED)
def test_blanks_are_filled_as_by_fill_mask(model_type, vocabularies, documents, tmp_path):
    cls, config, kind, more = MASKED[model_type]
    stored(tmp_path, model_type, cls, config, vocabularies[kind], **SIZES, **more)
    texts = []
    for document in documents[:12]:
        words = document.split()[:10]
        for at in (1, 5, 9)[: max(1, len(words) // 4)]:
            texts.append(" ".join([*words[:at], "[MASK]", *words[at + 1 :]]))
    texts += [f"[MASK] {texts[0]}", "[MASK]", "imp[MASK]", "I [MASK] you"]
    model = t5x.load(tmp_path)
    found = model.predict(texts, k=5)
    pipeline = transformers.pipeline("fill-mask", str(tmp_path), top_k=5)
    mask = pipeline.tokenizer.mask_token
    for text, one in zip(texts, found, strict=True):
        want = pipeline(text.replace("[MASK]", mask))
        if isinstance(want[0], list):  # several blanks
            assert len(one["blanks"]) == len(want)
        else:
            want = [want]
        for blank, theirs in zip(one["blanks"], want, strict=True):
            got = [guess["probability"] for guess in blank]
            np.testing.assert_allclose(got, [guess["score"] for guess in theirs], atol=1e-5)
            pieces = [guess["token_str"].strip().removeprefix("##") for guess in theirs]
            for guess, piece in zip(blank, pieces, strict=True):
                assert guess["token"].strip() == piece or not piece.isprintable()
            if kind == "byte_bpe":
                begin = [guess["token_str"].startswith(" ") for guess in theirs]
                assert [guess["begins_word"] for guess in blank] == begin
            if kind == "byte_bpe" and len(want) == 1:
                assert one["filled"].lstrip() == theirs[0]["sequence"].lstrip()


def test_an_xlnet_guesses_a_position_that_sees_the_whole_text(vocabularies, documents, tmp_path):
    vocabulary = vocabularies["unigram"]
    sizes = {"d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 24}
    theirs = stored(tmp_path, "xlnet", "XLNetLMHeadModel", "XLNetConfig", vocabulary, **sizes)
    words = documents[0].split()[:20]
    text = " ".join([*words[:8], "___", *words[9:]])
    model = t5x.load(tmp_path)
    (guesses,) = model.predict(text, k=5)["blanks"]
    row = transformers.AutoTokenizer.from_pretrained(tmp_path)(text.replace("___", "[MASK]"))
    tokens, types = (torch.tensor([row[name]]) for name in ("input_ids", "token_type_ids"))
    assert types[0, -1] == 2
    at = row["input_ids"].index(vocabulary.token_ids.mask)
    hidden = torch.zeros(1, tokens.shape[1], tokens.shape[1])
    hidden[:, :, at] = 1  # no position sees what is predicted
    target = torch.zeros(1, 1, tokens.shape[1])
    target[0, 0, at] = 1
    with torch.no_grad():
        logits = theirs(
            tokens, token_type_ids=types, perm_mask=hidden, target_mapping=target
        ).logits[0, 0]
        states = theirs.transformer(tokens, token_type_ids=types).last_hidden_state[0]
    want = torch.softmax(logits, -1).topk(5)
    np.testing.assert_allclose([one["probability"] for one in guesses], want.values, atol=1e-5)
    (found,) = model.hidden([text.replace("___", "[MASK]")])
    np.testing.assert_allclose(found, states, atol=1e-5)


HEADS = {
    "text-classification": ("BertForSequenceClassification", 3),
    "token-classification": ("BertForTokenClassification", 4),
}


@pytest.mark.parametrize("task", HEADS)
def test_heads_answer_as_pipelines_do(task, vocabularies, documents, tmp_path):
    cls, labels = HEADS[task]
    names = [f"name {i}" for i in range(labels)]
    more = {"id2label": dict(enumerate(names)), "label2id": {v: k for k, v in enumerate(names)}}
    stored(tmp_path, "bert", cls, "BertConfig", vocabularies["wordpiece"], **SIZES, **more)
    model, ask = t5x.load(tmp_path), transformers.pipeline(task, str(tmp_path))
    texts = [" ".join(document.split()[:12]) for document in documents]
    if task == "text-classification":
        whole, some = model.predict(texts), model.predict(texts, k=2)
        for every, likeliest in zip(whole, some, strict=True):
            ordered = sorted(every["probabilities"].items(), key=lambda one: -one[1])
            assert [*likeliest["probabilities"].items()] == ordered[:2]
    else:
        with pytest.raises(ValueError, match="k is the number of classes: this model answers with"):
            model.predict(texts, k=2)
    for text, one in zip(texts, model.predict(texts), strict=True):
        if task == "text-classification":
            want = {each["label"]: each["score"] for each in ask(text, top_k=None)}
            assert one["label"] == max(want, key=want.get)
            assert one["probabilities"] == pytest.approx(want, abs=1e-5)
        else:
            begins = [match.start() for match in re.finditer(r"\S+", text)]
            want = {each["start"]: each["entity"] for each in ask(text, ignore_labels=[])}
            assert one == {"words": text.split(), "tags": [want[place] for place in begins]}


def test_an_answer_is_the_likeliest_span_of_the_context(vocabularies, documents, tmp_path):
    cls, vocabulary = "BertForQuestionAnswering", vocabularies["wordpiece"]
    theirs = stored(tmp_path, "bert", cls, "BertConfig", vocabulary, **SIZES)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    contexts = [" ".join(document.split()[:12]) for document in documents]
    records = [{"inputs": "what is it", "context": context} for context in contexts]
    for context, one in zip(contexts, t5x.load(tmp_path).predict(records), strict=True):
        inputs = tokenizer("what is it", context, return_tensors="pt", return_offsets_mapping=True)
        places = inputs.pop("offset_mapping")[0]
        with torch.no_grad():
            out = theirs(**inputs)
        starts, ends = torch.softmax(out.start_logits[0], -1), torch.softmax(out.end_logits[0], -1)
        ids = inputs["input_ids"][0]
        first, last = int((inputs["token_type_ids"][0] == 1).nonzero()[0]), len(ids) - 2
        spans = {
            (i, j): float(starts[i] * ends[j])
            for i in range(first, last + 1)
            for j in range(i, min(i + 29, last) + 1)
        }
        i, j = max(spans, key=spans.get)
        assert one["score"] == pytest.approx(spans[i, j], rel=1e-4)
        assert one["answer"] == context[places[i, 0] : places[j, 1]]


@pytest.mark.parametrize(
    ("kind", "model_type"),
    [
        *[("wordpiece", "bert"), ("byte_bpe", "roberta"), ("unigram", "xlnet")],
        ("byte_bpe", "gpt2"),
    ],
)
def test_windows_of_texts_are_theirs(kind, model_type, vocabularies, documents, tmp_path):
    vocabulary, family = vocabularies[kind], to_files.FAMILIES[model_type]
    to_files.write(vocabulary, tmp_path, model_type=model_type)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    objective = Spans.of_family(family, (), (), stride=20)
    windows = objective.geometry({"inputs": 64}).windows
    for number, document in enumerate(documents):
        context, question = document[: 200 * (number % 6 + 1)], f"what is {number}"
        question_ids = vocabulary.encode(question)
        ids, places = vocabulary.locate(context)
        bounds = windows.bounds(len(question_ids), len(ids))
        room = windows.room - len(question_ids)
        theirs = tokenizer(
            context,
            add_special_tokens=False,
            truncation=True,
            max_length=room,
            stride=room - windows.stride,  # what two windows share
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        # tokenizers 0.23 encodes no more of a text than two windows need, but for unigrams.
        seen = bounds if kind == "unigram" else bounds[:1]
        assert theirs["input_ids"][: len(seen)] == [ids[begin:end] for begin, end in seen]
        for (begin, end), of_window in zip(seen, theirs["offset_mapping"], strict=False):
            texts = [context[first:last].strip() for first, last in of_window]
            if begin == 0 and tokenizer.convert_ids_to_tokens(ids[0]) == "\u2581":
                texts[0] = ""  # theirs is the character after the mark of a word that is put there
            assert texts == [context[first:last] for first, last in places[begin:end]]
        short = context[:60]
        pair = (short, question) if family.context_first else (question, short)
        short_ids = vocabulary.encode(short)
        sample = {
            "inputs": np.array(question_ids),
            "context": np.array(short_ids),
            "window": np.array([0, len(short_ids)]),
            "answers": np.array([[0, len(short_ids) - 1, 0, 60]]),
        }
        row = objective(sample, np.random.default_rng(0), vocabulary.token_ids)
        assert row["inputs"].tolist() == tokenizer(*pair)["input_ids"]
        answer = row["inputs"][row["start_positions"] : row["end_positions"] + 1]
        assert answer.tolist() == short_ids
        null = row["inputs"][row["null_position"]]
        assert null == getattr(vocabulary.token_ids, family.no_answer or "cls")


def test_an_xlnet_searches_its_answer(vocabularies, documents, tmp_path):
    vocabulary = vocabularies["unigram"]
    sizes = {"d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 24}
    cls = "XLNetForQuestionAnswering"
    theirs = stored(tmp_path, "xlnet", cls, "XLNetConfig", vocabulary, **sizes)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    contexts = [" ".join(document.split()[:10]) for document in documents]
    records = [{"inputs": "what is it", "context": context} for context in contexts]
    for context, one in zip(contexts, t5x.load(tmp_path).predict(records), strict=True):
        inputs = tokenizer(context, "what is it", return_tensors="pt", return_offsets_mapping=True)
        offsets = inputs.pop("offset_mapping")[0]
        ids, types = inputs["input_ids"][0], inputs["token_type_ids"][0]
        hidden = torch.tensor([[float(t == 1 or i == vocabulary.token_ids.sep)
                                for i, t in zip(ids, types, strict=True)]])  # fmt: skip
        last = ids.tolist().index(vocabulary.token_ids.sep)
        with torch.no_grad():
            out = theirs(**inputs, p_mask=hidden)
        # Theirs lists the ends of all starts, end by end.
        count = theirs.config.start_n_top
        spans = {}
        for s, (i, p) in enumerate(zip(out.start_top_index[0], out.start_top_log_probs[0])):  # noqa: B905
            for e in range(theirs.config.end_n_top):
                j, q = (
                    x[0].reshape(-1, count)[e, s]
                    for x in (out.end_top_index, out.end_top_log_probs)
                )
                if i <= j < min(i + 30, last):
                    spans[int(i), int(j)] = float(p * q)
        i, j = max(spans, key=spans.get)
        assert one["score"] == pytest.approx(spans[i, j], rel=1e-3)
        begin, end = int(offsets[i, 0]), int(offsets[j, 1])
        assert one["answer"] == context[begin:end].strip()
        assert one["no_answer"] == pytest.approx(float(out.cls_logits), abs=1e-4)


@pytest.mark.parametrize("theirs_alone", [True, False])
def test_double_heads_choose_between_texts_of_its_tokenizer(
    theirs_alone, vocabularies, documents, tmp_path
):
    vocabulary = vocabularies["byte_bpe"]
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 128}
    cls = "GPT2DoubleHeadsModel"
    theirs = stored(tmp_path, "gpt2", cls, "GPT2Config", vocabulary, **sizes)
    choices = [" ".join(document.split()[:6]) for document in documents[:4]]
    plain = {
        "type": "ByteLevel",
        "trim_offsets": True,
        "add_prefix_space": False,
        "use_regex": True,
    }
    if theirs_alone:
        file = tmp_path / "tokenizer.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"post_processor": plain}))
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    (found,) = t5x.load(tmp_path).predict([{"inputs": "one of ", "choices": choices}])
    logits = []
    for choice in choices:
        ids = tokenizer("one of ", choice).input_ids
        assert (vocabulary.token_ids.eos in ids) == (not theirs_alone)
        with torch.no_grad():
            out = theirs(torch.tensor([[ids]]), mc_token_ids=torch.tensor([[len(ids) - 1]]))
        logits.append(float(out.mc_logits))
    want = torch.softmax(torch.tensor(logits), 0)
    np.testing.assert_allclose(found["probabilities"], want, atol=1e-5)
    assert found["number"] == int(want.argmax())


def test_log_likelihoods_are_theirs(vocabularies, tmp_path):
    vocabulary = vocabularies["unigram"]
    sizes = {"d_model": 16, "d_ff": 24, "d_kv": 8, "num_heads": 2, "num_layers": 2}
    theirs = stored(
        tmp_path / "t5", "t5", "T5ForConditionalGeneration", "T5Config", vocabulary, **sizes,
        decoder_start_token_id=vocabulary.token_ids.pad, eos_token_id=vocabulary.token_ids.eos,
    )  # fmt: skip
    pairs = [("import the module", "and a class"), ("a", "def function of a list"), ("x y", "z")]
    model = t5x.load(tmp_path / "t5")
    records = [{"inputs": inputs, "targets": targets} for inputs, targets in pairs]
    found = [one["log_likelihood"] for one in model.predict(records, ask="score")]
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "t5")
    for (inputs, targets), value in zip(pairs, found, strict=True):
        labels = tokenizer(targets, return_tensors="pt").input_ids
        with torch.no_grad():
            loss = theirs(**tokenizer(inputs, return_tensors="pt"), labels=labels).loss
        assert value == pytest.approx(-float(loss) * labels.shape[1], rel=1e-4)
    choices = [{"inputs": "import", "choices": [targets for _, targets in pairs]}]
    (ranked,) = model.predict(choices, ask="rank")
    assert ranked["number"] == int(np.argmax(ranked["scores"]))

    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64}
    theirs = stored(tmp_path / "gpt", "gpt2", "GPT2LMHeadModel", "GPT2Config", vocabulary, **sizes)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "gpt")
    model = t5x.load(tmp_path / "gpt")
    found = [one["log_likelihood"] for one in model.predict(records, ask="score")]
    for (inputs, targets), value in zip(pairs, found, strict=True):
        prompt, rest = (tokenizer(text).input_ids for text in (inputs, targets))
        with torch.no_grad():
            log_p = torch.log_softmax(theirs(torch.tensor([prompt + rest])).logits[0], -1)
        places = range(len(prompt) - 1, len(prompt) + len(rest) - 1)
        want = sum(float(log_p[at, token]) for at, token in zip(places, rest, strict=True))
        assert value == pytest.approx(want, rel=1e-4)
    text = "and a class"  # alone, it follows the end of another text
    alone, empty = model.predict([{"inputs": text}, {"inputs": "", "targets": text}], ask="score")
    tokens = torch.tensor([[vocabulary.token_ids.eos, *tokenizer(text).input_ids]])
    with torch.no_grad():
        want = -float(theirs(tokens, labels=tokens).loss) * (tokens.shape[1] - 1)
    assert alone["log_likelihood"] == empty["log_likelihood"] == pytest.approx(want, rel=1e-4)
    assert alone["target_tokens"] == tokens.shape[1] - 1


def test_vectors_are_theirs_and_pseudo_likelihoods_mask_each_token(
    vocabularies, documents, tmp_path
):
    vocabulary = vocabularies["wordpiece"]
    theirs = stored(tmp_path, "bert", "BertForMaskedLM", "BertConfig", vocabulary, **SIZES)
    model, text = t5x.load(tmp_path), " ".join(documents[0].split()[:9])
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    inputs = tokenizer(text, return_tensors="pt")
    with torch.no_grad():
        states = theirs.bert(**inputs, output_hidden_states=True).hidden_states
    for layer in (0, 1, 2):
        mean = model.predict(text, ask="embed", layer=layer)["embedding"]
        np.testing.assert_allclose(mean, states[layer][0].mean(0), atol=1e-5)
    mixed = model.predict(text, ask="embed", layer=[0.0, 1.0, 3.0], pooling="first")["embedding"]
    np.testing.assert_allclose(mixed, (0.25 * states[1] + 0.75 * states[2])[0, 0], atol=1e-5)
    ids, want = inputs["input_ids"][0], 0.0
    for at in range(1, len(ids) - 1):
        masked = ids.clone()
        masked[at] = vocabulary.token_ids.mask
        with torch.no_grad():
            log_p = torch.log_softmax(theirs(masked[None]).logits[0, at], -1)
        want += float(log_p[ids[at]])
    found = model.predict(text, ask="score")
    assert found["log_likelihood"] == pytest.approx(want, rel=1e-4)
    assert found["target_tokens"] == len(ids) - 2


def test_a_discriminator_marks_tokens_as_theirs_does(vocabularies, documents, tmp_path):
    vocabulary = vocabularies["wordpiece"]
    theirs = stored(
        tmp_path, "electra", "ElectraForPreTraining", "ElectraConfig", vocabulary, **SIZES,
        embedding_size=8,
    )  # fmt: skip
    text = " ".join(documents[1].split()[:12])
    found = t5x.load(tmp_path).predict(text)
    inputs = transformers.AutoTokenizer.from_pretrained(tmp_path)(text, return_tensors="pt")
    with torch.no_grad():
        want = torch.sigmoid(theirs(**inputs).logits)[0, 1:-1]
    np.testing.assert_allclose(found["probabilities"], want, atol=1e-5)
    assert len(found["replaced"]) == int((want > 0.5).sum())


def test_an_imported_model_writes_with_its_own_settings(vocabularies, documents, tmp_path):
    vocabulary = vocabularies["byte_bpe"]
    ids = vocabulary.token_ids
    sizes = {"d_model": 16, "max_position_embeddings": 128}
    sizes |= {f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in
              {"layers": 2, "attention_heads": 2, "ffn_dim": 24}.items()}  # fmt: skip
    theirs = stored(
        tmp_path, "bart", "BartForConditionalGeneration", "BartConfig", vocabulary, **sizes,
        bos_token_id=ids.bos, eos_token_id=ids.eos, decoder_start_token_id=ids.eos,
    )  # fmt: skip
    theirs.generation_config.update(
        max_length=12, min_length=5, num_beams=3, length_penalty=2.0, no_repeat_ngram_size=2,
        early_stopping=True, forced_bos_token_id=40, forced_eos_token_id=ids.eos,
    )  # fmt: skip
    theirs.generation_config.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "generation_config.json").read_text())
    assert not t5x.load(tmp_path)._asked().unread_decoding()
    more = {"suppress_tokens": [7], "diversity_penalty": 0.0, "eos_token_id": [ids.eos, 9]}
    (tmp_path / "generation_config.json").write_text(json.dumps(saved | more))
    assert t5x.load(tmp_path)._asked().unread_decoding() == ["suppress_tokens", "eos_token_id"]
    (tmp_path / "generation_config.json").write_text(json.dumps(saved))
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    texts = [" ".join(document.split()[:9]) for document in documents]
    model = t5x.load(tmp_path)
    assert model.predictor("write", max_new_tokens=3).writer.decoding.min_new_tokens == 3
    with pytest.raises(ValueError, match="min_new_tokens=9 is above max_new_tokens=3"):
        model.predictor("write", max_new_tokens=3, min_new_tokens=9)
    found = model.predict(texts)
    for text, one in zip(texts, found, strict=True):
        with torch.no_grad():
            (want,) = theirs.generate(**tokenizer(text, return_tensors="pt"))
        tokens = want[1:].tolist()
        tokens = tokens[: tokens.index(ids.eos)]
        assert tokens[0] == 40
        assert one["prediction"] == vocabulary.decode(tokens)
