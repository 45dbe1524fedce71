import jax
import numpy as np
import pytest
import t5x_checkpoint
from flax import nnx, serialization

from t5x_like.interop import t5x
from t5x_like.layers.mlp import GatedMlp
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
    assert t5x.is_checkpoint(tmp_path / "step")
    make, found = t5x.read(tmp_path / "step", config)
    assert make.keywords == {"config": config}
    jax.tree.map(np.testing.assert_array_equal, found, params)


@pytest.mark.parametrize("file", ["_METADATA", "state/manifest.ocdbt"])
def test_what_orbax_wrote_is_refused(file, tmp_path):
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_bytes(b"")
    assert t5x.is_checkpoint(tmp_path)
    with pytest.raises(ValueError, match="was written by Orbax"):
        t5x.read(tmp_path, sized())


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("checkpoint", b'model_checkpoint_path: "model.ckpt-1000"\n', "written by TensorFlow"),
        ("model.ckpt-1000.index", b"", "written by TensorFlow"),
        ("state/checkpoint", b"\x80", "was written by Orbax"),
        ("default/manifest.ocdbt", b"", "was written by Orbax"),
    ],
)
def test_what_others_wrote_is_called_what_it_is(file, content, said, tmp_path):
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_bytes(content)
    assert t5x.is_checkpoint(tmp_path)
    with pytest.raises(ValueError, match=said):
        t5x.read(tmp_path, sized())


def test_a_file_without_parameters_is_not_said_to_be_missing(tmp_path):
    (tmp_path / "checkpoint").write_bytes(serialization.msgpack_serialize({"version": 3}))
    with pytest.raises(FileNotFoundError, match="its file checkpoint holds none"):
        t5x.read(tmp_path, sized())


def test_what_cannot_be_right_is_refused(tmp_path):
    config, params = made()
    tree = t5x_checkpoint.tree_of(params, config)
    with pytest.raises(FileNotFoundError, match="no checkpoint of T5X"):
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
