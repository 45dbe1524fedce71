from collections import Counter

from t5x_like.vocabularies.learning import sampling


def test_sample_is_uniform_and_bounded():
    documents = ["\n".join(f"line {10 * i + j}" for j in range(10)) for i in range(10)]
    counts = Counter(
        line
        for seed in range(400)
        for line in sampling.sample_sentences(documents, max_sentences=20, seed=seed)
    )
    assert sum(counts.values()) == 400 * 20
    assert len(counts) == 100
    # Binomial with mean 80 and standard deviation 8.
    assert 40 < min(counts.values()) <= max(counts.values()) < 120


def test_small_texts_are_taken_whole():
    kept = sampling.sample_sentences(["b\n\na", " c "], max_sentences=5, seed=0)
    assert kept == ["b", "a", "c"]


def test_long_lines_are_cut_at_spaces(monkeypatch):
    monkeypatch.setattr(sampling, "MAX_SENTENCE", 10)
    kept = sampling.sample_sentences(["one two three four", "x" * 25], max_sentences=9, seed=0)
    assert kept == ["one two", "three four", "x" * 10, "x" * 10, "x" * 5]


def test_the_whole_sample_is_bounded(monkeypatch):
    monkeypatch.setattr(sampling, "MAX_SAMPLE", 100)
    lines = [f"line {i}" for i in range(10, 60)]
    kept = sampling.sample_sentences(lines, max_sentences=1000, seed=0)
    assert len(kept) == 14
    assert len(set(kept)) == 14
    assert set(kept) <= set(lines)
    assert kept != lines[:14]
