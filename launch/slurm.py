"""GPU nodes under Slurm; for `t5x_like launch NAME --config=slurm`."""

from ml_collections import ConfigDict

from t5x_like.launching.fields import INSTALLED, OF_RUN


def get_config() -> ConfigDict:
    """The fields, with those of `launching/fields.py`; override one as `--config.FIELD=VALUE`.

    Or keep a copy of this file.
    """
    return ConfigDict(
        {
            "engine": "slurm",
            "nodes": 1,  # each runs one process
            "gpus_per_node": 8,  # 0 for none
            "cpus_per_task": 0,  # cores of a node's process; 0 leaves it to Slurm
            "partition": "",  # empty for the cluster's default
            "account": "",  # the account that pays
            "qos": "",  # quality of service
            "time": "",  # limit such as 1-00:00:00; before it the run saves and is queued again
            "options": "",  # more options of sbatch, such as "--constraint=a100 --exclusive"
            "image": "",  # container in place of an environment: NAME@sha256:..., .sif or .sqsh
            "container": "apptainer",  # what runs the image: apptainer or pyxis
            **INSTALLED,
            **OF_RUN,
            "stop_seconds": 300,  # time to save after a notice to leave
        }
    )
