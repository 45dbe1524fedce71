"""TPU slices or GPU nodes of Kubernetes; for `t5x_like launch NAME --config=gke`."""

from ml_collections import ConfigDict

from t5x_like.launching.fields import OF_RUN


def get_config() -> ConfigDict:
    """The fields, with those of `launching/fields.py`; override one as `--config.FIELD=VALUE`.

    Or keep a copy of this file.
    """
    return ConfigDict(
        {
            "engine": "gke",
            "image": "",  # NAME@sha256:...; launch/Dockerfile builds it
            "topology": "",  # TPU slice, such as v5e-256, v5p-64 (its 64 cores) or v5e:4x4
            "slices": 1,  # slices that train together (multislice)
            "gpu": "",  # or the GPU of the nodes, such as nvidia-h100-80gb
            "nodes": 1,  # nodes with GPUs
            "gpus_per_node": 8,  # of them
            "spot": False,  # on spot nodes
            "reservation": "",  # name of a reservation
            "node_selector": "",  # more labels of the nodes: label=value,label=value
            "service_account": "",  # Kubernetes account that may read and write the buckets
            "queue": "",  # local queue of Kueue; empty without Kueue
            "context": "",  # of kubectl; empty for the current one
            "namespace": "",  # empty for that of the context
            **OF_RUN,
        }
    )
