import jax
import numpy as np
import pytest
import t5x_checkpoint
from flax import nnx, serialization

from t5x_like.interop import t5x, t5x_arrays
from t5x_like.layers.basics.mlp import GatedMlp
from t5x_like.models import t5

SIZES = {"vocab_size": 30, "d_model": 8, "d_ff": 12, "num_heads": 2, "d_kv": 3}
LAYERS = {"num_encoder_layers": 2, "num_decoder_layers": 2}


def sized(**more):
    return t5.Config(**{**SIZES, **LAYERS, **more})


def made(**more):
    config = sized(**more)
    model = nnx.eval_shape(lambda: t5.T5(config, rngs=nnx.Rngs(0)))
    rng = np.random.default_rng(0)

    def drawn(leaf):
        return rng.normal(size=leaf.shape).astype(np.float32)

    return config, jax.tree.map(drawn, nnx.to_pure_dict(nnx.state(model)))


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"mlp": GatedMlp, "tied_logits": False},
        {"mlp": GatedMlp, "tied_logits": False, "relative_bias_per_layer": True},
    ],
    ids=["1.0", "1.1", "scanned"],
)
def test_a_checkpoint_of_t5x_gives_the_parameters_that_it_was_made_of(more, tmp_path):
    config, params = made(**more)
    scanned = config.relative_bias_per_layer
    t5x_checkpoint.write(tmp_path / "step", t5x_checkpoint.tree_of(params, config, scanned=scanned))
    assert t5x_arrays.is_checkpoint(tmp_path / "step")
    make, found = t5x.read(tmp_path / "step", config)
    assert make.keywords == {"config": config}
    jax.tree.map(np.testing.assert_array_equal, found, params)


@pytest.mark.parametrize("ocdbt", [False, True])
@pytest.mark.parametrize("zarr3", [False, True])
@pytest.mark.parametrize(("root", "item"), [("target", "state"), ("params", "")])
def test_what_orbax_wrote_gives_the_same_parameters(ocdbt, zarr3, root, item, tmp_path):
    config, params = made(mlp=GatedMlp, tied_logits=False)
    options = {"use_ocdbt": ocdbt, "use_zarr3": zarr3, "root": root, "item": item}
    tree = t5x_checkpoint.tree_of(params, config)
    t5x_checkpoint.write_by_orbax(tmp_path / "checkpoint_7", tree, **options)
    assert t5x_arrays.is_checkpoint(tmp_path / "checkpoint_7")
    _, found = t5x.read(tmp_path / "checkpoint_7", config)
    jax.tree.map(np.testing.assert_array_equal, found, params)
    assert t5x_arrays.is_checkpoint(tmp_path)
    with pytest.raises(ValueError, match=r"by their steps: name one, such as .*/checkpoint_7"):
        t5x.read(tmp_path, config)


def test_the_first_releases_of_orbax_named_arrays_in_another_way(tmp_path):
    config, params = made()
    tree = t5x_checkpoint.tree_of(params, config)
    t5x_checkpoint.write(tmp_path / "older", tree)
    (tmp_path / "step").mkdir()
    for path in (tmp_path / "older").iterdir():
        start = "_optimizer." if path.is_dir() else ""
        path.rename(tmp_path / "step" / f"{start}{path.name}")
    state = tmp_path / "step" / "checkpoint"
    content = serialization.msgpack_restore(state.read_bytes())["optimizer"]
    state.write_bytes(serialization.msgpack_serialize({"_optimizer": content}))
    _, found = t5x.read(tmp_path / "step", config)
    jax.tree.map(np.testing.assert_array_equal, found, params)


@pytest.mark.parametrize(
    ("file", "content"),
    [("checkpoint", b'model_checkpoint_path: "model.ckpt-1000"\n'), ("model.ckpt-1000.index", b"")],
)
def test_what_mesh_tensorflow_wrote_is_called_what_it_is(file, content, tmp_path):
    (tmp_path / file).write_bytes(content)
    assert t5x_arrays.is_checkpoint(tmp_path)
    with pytest.raises(ValueError, match=r"Mesh TensorFlow.*gs://t5-data/pretrained_models/t5x/"):
        t5x.read(tmp_path, sized())


def test_without_parameters_it_says_what_there_is(tmp_path):
    (tmp_path / "checkpoint").write_bytes(serialization.msgpack_serialize({"version": 3}))
    with pytest.raises(FileNotFoundError, match=r"none of target\.\*, .* but no array at all"):
        t5x.read(tmp_path, sized())
    t5x_checkpoint.write_by_orbax(tmp_path / "step", {}, use_ocdbt=True)
    with pytest.raises(FileNotFoundError, match=r"but state\.param_states\..*, state\.step"):
        t5x.read(tmp_path / "step", sized())


def test_a_file_is_called_what_it_is(tmp_path):
    state = serialization.msgpack_serialize({"version": 3, "optimizer": {}})
    for name, content, said in (
        ("checkpoint", state, f"name its folder, {tmp_path}"),
        ("t5.checkpoint_0", state, "under the name checkpoint"),
        ("model.safetensors", b"{}", f"the directory that holds it, {tmp_path}"),
        ("empty", b"", f"the directory that holds it, {tmp_path}"),
    ):
        (tmp_path / name).write_bytes(content)
        assert said in t5x_arrays.advice(tmp_path / name)


def test_numbers_that_are_no_floats_are_not_taken_for_some(tmp_path):
    config, params = made()
    tree = t5x_checkpoint.tree_of(params, config)
    tree["encoder"]["encoder_norm"]["scale"] = np.ones(SIZES["d_model"], np.uint16)
    t5x_checkpoint.write(tmp_path / "step", tree)
    with pytest.raises(ValueError, match=r"encoder_norm.scale is of type uint16.*bfloat16"):
        t5x.read(tmp_path / "step", config)


def test_what_cannot_be_right_is_refused(tmp_path):
    config, params = made()
    tree = t5x_checkpoint.tree_of(params, config)
    with pytest.raises(FileNotFoundError, match="is not a checkpoint of T5X"):
        t5x.read(tmp_path, config)
    t5x_checkpoint.write(tmp_path / "step", tree)
    with pytest.raises(ValueError, match="for all layers of a side"):
        t5x.read(tmp_path / "step", sized(relative_bias_per_layer=True))
    with pytest.raises(ValueError, match="configuration beside it says"):
        t5x.read(tmp_path / "step", sized(d_ff=16))
    with pytest.raises(ValueError, match=r"no place for target.decoder.layers_1\."):
        t5x.read(tmp_path / "step", sized(num_decoder_layers=1))
    output = {"logits_dense": {"kernel": np.ones((SIZES["d_model"], SIZES["vocab_size"]))}}
    untied = {**tree, "decoder": {**tree["decoder"], **output}}
    t5x_checkpoint.write(tmp_path / "untied", untied)
    with pytest.raises(ValueError, match=r"no place for target.decoder.logits_dense.kernel of"):
        t5x.read(tmp_path / "untied", config)
    del tree["encoder"]["layers_1"]["attention"]["key"]
    t5x_checkpoint.write(tmp_path / "torn", tree)
    with pytest.raises(ValueError, match=r"lack target.encoder.layers_1.attention.key.kernel"):
        t5x.read(tmp_path / "torn", config)
    state = tmp_path / "step" / "checkpoint"
    state.write_bytes(state.read_bytes()[:40])
    with pytest.raises(ValueError, match="damaged"):
        t5x.read(tmp_path / "step", config)
