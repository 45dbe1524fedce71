"""TPU slices or GPU nodes of Kubernetes; for `t5x_like launch NAME --config=gke`."""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
    """The fields; override one as `--config.FIELD=VALUE`, or keep a copy of this file."""
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
            "env": "",  # variables of the run, no secrets: "A=1 B='two words'"
            "secrets": "",  # names of variables of this shell whose values the run gets: A,B
            "prepare": "",  # shell command on every host before each start, such as a mount
            "restarts_without_progress": 5,  # restarts at the same checkpoint before it gives up
            "stop_seconds": 600,  # time to save after a notice to leave
            "price_per_chip_hour": 0.0,  # price of a chip or GPU for an hour, for the cost
            "hours": 0.0,  # expected length of the run, for its cost
        }
    )
