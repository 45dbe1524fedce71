import json
import tracemalloc

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from t5x_like.interop.hugging_face.files.safetensors_files import (
    INDEX,
    SINGLE,
    Weights,
    check_free,
    write,
)


def tensors(count=5, side=8):
    rng = np.random.default_rng(0)
    return {
        f"layer.{i}.weight": rng.standard_normal([side, side], np.float32) for i in range(count)
    }


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def check(folder, expected):
    weights = Weights(folder)
    assert weights.names() == tuple(sorted(expected))
    for name, tensor in expected.items():
        assert name in weights
        assert weights.shape(name) == tensor.shape
        read = weights.read(name)
        assert read.dtype == np.float32
        np.testing.assert_array_equal(read, tensor)


def test_one_file_where_one_is_enough(tmp_path):
    expected = tensors()
    write(tmp_path / "new/model", expected.items())
    assert files(tmp_path / "new/model") == [SINGLE]
    check(tmp_path / "new/model", expected)


def test_shards_and_their_index(tmp_path):
    expected = tensors() | {"large": np.ones([64, 64], np.float32), "scalar": np.float32(3)}
    write(tmp_path, expected.items(), shard_bytes=2 * 8 * 8 * 4)
    names = [f"model-0000{i}-of-00005.safetensors" for i in range(1, 6)]
    assert files(tmp_path) == [*names, INDEX]
    index = json.loads((tmp_path / INDEX).read_text())
    assert index["metadata"] == {"total_size": 4 * (5 * 64 + 64 * 64 + 1)}
    assert (
        index["weight_map"]["layer.0.weight"] == index["weight_map"]["layer.1.weight"] == names[0]
    )
    assert index["weight_map"]["large"] == names[3], "larger than a shard, so alone in one"
    check(tmp_path, expected)


def test_views_in_any_order_of_memory(tmp_path):
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    expected = {"t": x.T, "strided": x[:, ::2], "reversed": x[::-1], "broadcast": x[:1] * 0 + 1}
    write(tmp_path, expected.items())
    check(tmp_path, expected)


def test_no_tensors(tmp_path):
    write(tmp_path, [])
    assert Weights(tmp_path).names() == ()


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_other_floats_become_float32(tmp_path, dtype):
    tensor = np.linspace(-3, 3, 12).reshape(3, 4).astype(dtype)
    save_file({"x": tensor}, tmp_path / SINGLE)
    np.testing.assert_array_equal(Weights(tmp_path).read("x"), tensor.astype(np.float32))
    assert Weights(tmp_path).read("x").dtype == np.float32


def test_whole_numbers_are_there_but_are_no_weights(tmp_path):
    save_file({"position_ids": np.arange(3)}, tmp_path / SINGLE)
    assert Weights(tmp_path).shape("position_ids") == (3,)
    with pytest.raises(ValueError, match=r"position_ids .* is of type I64; only .* float32"):
        Weights(tmp_path).read("position_ids")


def test_an_unknown_name_is_an_error_that_says_where(tmp_path):
    write(tmp_path, tensors(1).items())
    for ask in (Weights(tmp_path).read, Weights(tmp_path).shape):
        with pytest.raises(ValueError, match=rf"{tmp_path} have no tensor lm_head"):
            ask("lm_head")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "tf_model.h5", "flax_model.msgpack", "a.pt"])
def test_pickles_and_the_like_are_never_read(tmp_path, name):
    (tmp_path / name).write_bytes(b"\x80\x04.")
    with pytest.raises(FileNotFoundError, match=rf"{name} is never read.*safe_serialization=True"):
        Weights(tmp_path)


def test_nothing_to_read(tmp_path):
    with pytest.raises(FileNotFoundError, match=f"neither {SINGLE} nor {INDEX}"):
        Weights(tmp_path)
    with pytest.raises(FileNotFoundError, match="no directory"):
        Weights(tmp_path / "bert-base-uncased")


def cut(content):
    return content[:-1]


def without_end_of_header(content):
    return content[:20]


def with_huge_header(content):
    return b"\xff" * 8 + content[8:]


def empty(content):
    return content[:0]


@pytest.mark.parametrize("damage", [cut, without_end_of_header, with_huge_header, empty])
def test_damaged_files(tmp_path, damage):
    write(tmp_path, tensors().items())
    path = tmp_path / SINGLE
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=f"{path} is damaged"):
        Weights(tmp_path)


def test_incomplete_shards(tmp_path):
    write(tmp_path, tensors().items(), shard_bytes=600)
    first, second = sorted(tmp_path.glob("model-*-of-*"))[:2]
    content = second.read_bytes()
    second.write_bytes(first.read_bytes())
    with pytest.raises(ValueError, match=rf"layer.2.weight is in {second.name}, which lacks it"):
        Weights(tmp_path)
    second.write_bytes(content[:100])
    with pytest.raises(ValueError, match=f"{second} is damaged"):
        Weights(tmp_path)
    second.unlink()
    with pytest.raises(FileNotFoundError, match=f"names {second.name}, which is not there"):
        Weights(tmp_path)


@pytest.mark.parametrize(
    "content", ["{", "[]", "{}", '{"weight_map": ["x"]}', '{"weight_map": {"x": 3}}']
)
def test_damaged_index(tmp_path, content):
    (tmp_path / INDEX).write_text(content)
    with pytest.raises(ValueError, match=rf"{INDEX} is (damaged|not an index of shards)"):
        Weights(tmp_path)


def test_an_index_does_not_reach_outside_its_directory(tmp_path):
    write(tmp_path, tensors().items())
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / INDEX).write_text(json.dumps({"weight_map": {"x": f"../{SINGLE}"}}))
    with pytest.raises(ValueError, match="outside its directory"):
        Weights(tmp_path / "model")


def test_what_is_there_is_kept_unless_told(tmp_path):
    old, new = tensors(4), tensors(2, side=4)
    write(tmp_path, old.items(), shard_bytes=600)
    with pytest.raises(FileExistsError, match="has weights already"):
        check_free(tmp_path)

    def never():
        raise AssertionError("no work is done")
        yield

    with pytest.raises(FileExistsError, match="has weights already"):
        write(tmp_path, never())
    check(tmp_path, old)
    write(tmp_path, new.items(), overwrite=True)
    assert files(tmp_path) == [SINGLE], "old shards would be read by nobody"
    check(tmp_path, new)
    write(tmp_path, old.items(), overwrite=True, shard_bytes=600)
    assert SINGLE not in files(tmp_path), "it would be read and not the shards"
    check(tmp_path, old)


def test_no_file_has_its_name_before_all_are_complete(tmp_path):
    def stopped(error):
        yield from tensors().items()
        assert files(tmp_path) == [f"model-0000{i}.safetensors.partial" for i in (1, 2)]
        with pytest.raises(FileNotFoundError):
            Weights(tmp_path)
        raise error

    with pytest.raises(KeyboardInterrupt):
        write(tmp_path, stopped(KeyboardInterrupt()), shard_bytes=600)
    assert files(tmp_path) == []


def test_what_a_killed_export_left_is_cleared_away(tmp_path):
    (tmp_path / "model-00007.safetensors.partial").touch()
    write(tmp_path, tensors().items())
    assert files(tmp_path) == [SINGLE]


def test_what_was_there_survives_an_overwriting_that_fails(tmp_path):
    write(tmp_path, tensors(3).items())
    with pytest.raises(ValueError, match="two tensors have the name x"):
        write(tmp_path, [("x", np.zeros(2, np.float32))] * 2, overwrite=True)
    check(tmp_path, tensors(3))


def test_a_name_that_comes_again_in_another_shard(tmp_path):
    with pytest.raises(ValueError, match="two tensors have the name x"):
        write(tmp_path, [("x", np.zeros(200, np.float32))] * 2, shard_bytes=600)


def test_memory_stays_near_one_shard(tmp_path):
    megabyte = 1 << 20
    made = ((f"t{i}", np.full(megabyte // 4, i, np.float32)) for i in range(24))
    tracemalloc.start()
    write(tmp_path, made, shard_bytes=4 * megabyte)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(files(tmp_path)) == 6 + 1
    assert 4 * megabyte < peak < 5.5 * megabyte


def test_reading_one_tensor_reads_no_other(tmp_path):
    megabyte = 1 << 20
    write(tmp_path, ((f"t{i}", np.full(megabyte // 4, i, np.float32)) for i in range(16)))
    tracemalloc.start()
    weights = Weights(tmp_path)
    assert weights.read("t7")[0] == 7
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2.5 * megabyte
