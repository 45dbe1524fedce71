"""GPU nodes under Slurm; for `t5x_like launch NAME --config=slurm`."""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
    """The fields; override one as `--config.FIELD=VALUE`, or keep a copy of this file."""
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
            "package": "",  # wheel, or git+https://...@COMMIT; empty packs this checkout
            "extras": "cuda",  # extras of the package, such as "cuda,gcs" or "cuda,s3" for buckets
            "python": "3.12",  # Python that uv installs on the hosts
            "environment": "",  # folder of an environment that all hosts have; empty makes one
            "env": "",  # variables of the run, no secrets: "A=1 B='two words'"
            "secrets": "",  # names of variables of this shell whose values the run gets: A,B
            "prepare": "",  # shell command on every host before each start, such as a mount
            "restarts_without_progress": 5,  # restarts at the same checkpoint before it gives up
            "stop_seconds": 300,  # time to save after a notice to leave
            "price_per_chip_hour": 0.0,  # price of a GPU for an hour, for the cost of the run
            "hours": 0.0,  # expected length of the run, for its cost
        }
    )
