"""The records of a cache, with a manifest that agrees with the damage: anybody can write one."""

from __future__ import annotations

import hashlib
import json

from hypothesis import strategies as st
from mutations import of_bytes, one_of

from t5x_like.data.cache import format
from t5x_like.data.cache.reader import Cache
from t5x_like.data.cache.writer import write_cache
from t5x_like.data.corpora.text_files import TextFiles
from t5x_like.vocabularies.byte import ByteVocabulary

MANIFEST = format.MANIFEST


def make(folder):
    text = folder.with_name("text.jsonl")
    rows = [{"inputs": f"question {i}", "targets": f"answer {i}" * (i % 5)} for i in range(60)]
    text.write_text("\n".join(map(json.dumps, rows)))
    for name, corpus, vocabulary in (
        ("pairs", TextFiles(text), ByteVocabulary()),
        ("texts", TextFiles(text, field="targets"), ByteVocabulary(5)),
    ):
        write_cache(folder / name, corpus, vocabulary, workers=1, progress=False)


def read(folder):
    cache = Cache.open(folder)
    cache.token_ids, cache.vocabulary  # noqa: B018 (computed when asked for)
    for name in cache.manifest.splits:
        split = cache.split(name)
        for i in range(len(split)):
            split.record(i)
            split.segments(i)
        for feature in cache.manifest.features:
            split.joined(0, len(split), feature)
            split.lengths(feature).sum()
        split.counts, split.new_document  # noqa: B018 (computed when asked for)


def signed(files):
    """The files with their sizes and digests in the manifest."""
    fields = json.loads(files[MANIFEST])

    def correct(node):
        for name, one in node.items() if isinstance(node, dict) else enumerate(node):
            if isinstance(one, dict | list):
                correct(one)
            if isinstance(one, dict) and {"bytes", "sha256"} <= one.keys():
                content = files.get(one.get("file", name), b"")
                one |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}

    correct(fields)
    fields.pop("sha256", None)
    fields["sha256"] = format._digest(fields)
    return {**files, MANIFEST: json.dumps(fields).encode()}


def damage(draw, files):
    shards = [name for name in files if name.endswith(".arrayrecord")]
    others = [files[name] for name in shards]
    damaged = one_of(draw, files, lambda d, content: of_bytes(d, content, others=others), shards)
    return signed(damaged) if draw(st.integers(0, 4)) else damaged


def test_damaged_records(fuzz):
    fuzz(__file__, damage)
