"""The state of an optimizer lies as the parameters that it belongs to."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
from jax.sharding import PartitionSpec

from t5x_like.core.partitioning import make_layout
from t5x_like.training.optimization.optimizer_shardings import optimizer_shardings


def test_optimizer_state_lies_like_its_parameters() -> None:
    layout = make_layout({"data": 2, "fsdp": 2, "tensor": 2})
    shape, spec = (3, 8, 8), PartitionSpec(None, "fsdp", "tensor")
    params = {"w": jax.ShapeDtypeStruct(shape, jnp.float32)}

    def specs(tx: optax.GradientTransformation) -> dict[str, PartitionSpec]:
        each = jax.vmap(tx.init)
        state = jax.eval_shape(each, params)
        shardings = optimizer_shardings(
            layout,
            state,
            params=params,
            shardings={"w": layout.sharding(("embed", "mlp"), shape)},
            stacked={"w": 1},
        )
        leaves = jax.tree_util.tree_leaves_with_path(shardings)
        return {jax.tree_util.keystr(path): leaf.spec for path, leaf in leaves}

    adam = specs(optax.scale_by_adam())
    assert adam == {".count": PartitionSpec(), ".mu['w']": spec, ".nu['w']": spec}
    # Square, so that only the name tells the row (mean over the last dimension) from the column.
    factored = specs(optax.scale_by_factored_rms(min_dim_size_to_factor=4))
    assert factored[".v_row['w']"] == PartitionSpec(None, "fsdp")
    assert factored[".v_col['w']"] == PartitionSpec(None, "tensor")
    assert factored[".v['w']"] == PartitionSpec()
