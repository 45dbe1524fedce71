"""Maps of one space to another: a known rotation is found, from many pairs and from few."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from t5x_like.evaluation.spaces import alignment, comparison, word_vectors
from t5x_like.evaluation.spaces.word_vectors import WordVectors

WORDS, NUMERALS, SIZE = 600, 14, 16
RNG = np.random.default_rng(0)
ROTATION, _ = np.linalg.qr(RNG.normal(size=(SIZE, SIZE)))


def spaces(noise: float = 0.0) -> tuple[WordVectors, WordVectors]:
    """The same points: turned, with noise, in another order and, but for numbers, renamed."""
    x = RNG.normal(size=(WORDS, SIZE))
    y = x @ ROTATION + noise * RNG.normal(size=x.shape)
    order = RNG.permutation(WORDS)
    names = [str(n) if n < NUMERALS else f"w{n}" for n in range(WORDS)]
    other = [names[n] if n < NUMERALS else f"v{n}" for n in order]
    return WordVectors(names, x), WordVectors(other, y[order])


@pytest.fixture(scope="module")
def dictionary(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("pairs") / "pairs.txt"
    path.write_text("".join(f"w{n} v{n}\n" for n in range(NUMERALS, WORDS)) + "w99999 v1\n")
    return str(path)


def test_an_orthogonal_map_is_the_rotation_and_least_squares_any_matrix() -> None:
    x = RNG.normal(size=(50, SIZE))
    np.testing.assert_allclose(alignment.orthogonal(x, x @ ROTATION), ROTATION, atol=1e-5)
    matrix = RNG.normal(size=(SIZE, 5))
    np.testing.assert_allclose(alignment.least_squares(x, x @ matrix), matrix, atol=1e-5)
    half = alignment.orthogonal(x, x @ matrix)
    np.testing.assert_allclose(half.T @ half, np.eye(5), atol=1e-5)


def test_csls_corrects_words_that_are_near_to_many() -> None:
    """Against its formula, word by word (Conneau et al., 2018, section 2.3)."""
    x, y = (alignment.normalised(RNG.normal(size=(n, 6))) for n in (30, 40))
    cosines = x @ y.T
    of_x = np.sort(cosines, axis=1)[:, -10:].mean(axis=1)
    of_y = np.sort(cosines, axis=0)[-10:].mean(axis=0)
    scores = 2 * cosines - of_x[:, None] - of_y
    hubs = alignment.hubness(y, x, neighbours=10)
    found = alignment.nearest(x, y, count=3, hubs_T=hubs)
    np.testing.assert_array_equal(found, np.argsort(-scores, axis=1)[:, :3])
    np.testing.assert_array_equal(
        alignment.nearest(x, y, count=3), np.argsort(-cosines, axis=1)[:, :3]
    )


@pytest.mark.parametrize("map", alignment.FITS)
def test_words_of_a_dictionary_map_the_others(map: str, dictionary: str) -> None:
    found = comparison.compare(*spaces(0.1), seeds=dictionary, test=dictionary, map=map)
    assert len(found.asked) == round(comparison.HELD_OUT * (WORDS - NUMERALS))
    assert not {*found.asked} & {*found.seeds.rows[:, 0]}
    assert found.precision["CSLS"][1] > 0.95
    assert found.precision["without a map"][10] < 0.2
    assert found.precision["the same word"][1] == 0
    ranks = found.precision["cosine"]
    assert ranks[1] <= ranks[5] <= ranks[10] <= 1


def test_numbers_are_enough_where_the_map_teaches_itself(dictionary: str) -> None:
    given = spaces(0.3)
    settings = {"seeds": "numerals", "test": dictionary}
    alone = comparison.compare(*given, **settings)
    learned = comparison.compare(*given, **settings, self_learning=True)
    assert len(alone.seeds.rows) == NUMERALS
    assert learned.precision["CSLS"][1] > alone.precision["CSLS"][1] + 0.02
    assert learned.similarities[-1] > learned.similarities[0]
    assert learned.test.unknown == 1


def test_words_that_moved_are_named() -> None:
    source, _ = spaces()
    target = WordVectors(source.words, source.vectors @ ROTATION)
    target.vectors[50] = target.vectors[51] + 0.01
    found = comparison.compare(source, target)
    ((word, cosine),) = found.moved(1)
    assert (word, cosine < 0.9) == ("w50", True)
    assert found.neighbours("w50", 1)[1] == ["w51"]
    assert found.precision["the same word"][1] == 1
    assert "w50" not in dict(found.moved(3, among=50))


def test_what_cannot_be_compared_is_said(dictionary: str, tmp_path: Path) -> None:
    source, target = spaces()
    others = WordVectors([f"x{n}" for n in range(WORDS)], target.vectors)
    with pytest.raises(ValueError, match="share 0 pairs of the seeds 'numerals'"):
        comparison.compare(source, others, seeds="numerals", test=dictionary)
    with pytest.raises(ValueError, match="no pair of the test 'identical' is left"):
        comparison.compare(source, target, seeds="numerals")
    with pytest.raises(ValueError, match=r"no map 'othogonal'.*orthogonal"):
        comparison.compare(source, target, map="othogonal")
    (tmp_path / "odd.txt").write_text("one two three\n")
    with pytest.raises(ValueError, match=r"odd.txt:1: .* has 3 words, and not 2"):
        comparison.compare(source, target, seeds=str(tmp_path / "odd.txt"))


def test_the_command_prints_writes_and_draws(cli: Callable, tmp_path: Path) -> None:
    source, _ = spaces()
    target = WordVectors(source.words, (source.vectors @ ROTATION).astype(np.float32))
    for name, of in (("one.vec", source), ("other.bin", target)):
        word_vectors.write(tmp_path / name, of)
    out, picture = tmp_path / "mapped.vec", tmp_path / "words.png"
    files = (str(tmp_path / "one.vec"), str(tmp_path / "other.bin"))
    done = cli("align", *files, f"--output={out}", f"--plot={picture}", "--moved=2", "--words=500")
    assert done.status == 0, done.err
    assert "500 words are mapped to 500, by 400 pairs; 100 words are asked for." in done.out
    assert done.out.count("moved: ") == 2
    assert picture.read_bytes().startswith(b"\x89PNG")
    mapped = word_vectors.read(out)
    want = alignment.normalised(target.vectors[:500])
    np.testing.assert_allclose(mapped.vectors, want, atol=1e-4)
