"""Plain hosts over ssh; for `t5x_like launch NAME --config=ssh`."""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
    """The fields; override one as `--config.FIELD=VALUE`, or keep a copy of this file."""
    return ConfigDict(
        {
            "engine": "ssh",
            "hosts": "",  # names as ssh knows them, the first is the coordinator: node1,node2
            "coordinator": "",  # address of the first host for the others; empty for its name
            "port": 8476,  # of the first host, open to the others
            "gpus_per_host": 8,  # for the cost
            "poll_seconds": 60.0,  # seconds between two looks of --watch
            "package": "",  # wheel, or git+https://...@COMMIT; empty packs this checkout
            "extras": "cuda",  # extras of the package, such as "cuda,gcs" or "cuda,s3" for buckets
            "python": "3.12",  # Python that uv installs on the hosts
            "environment": "",  # folder of an environment that all hosts have; empty makes one
            "env": "",  # variables of the run, no secrets: "A=1 B='two words'"
            "secrets": "",  # names of variables of this shell whose values the run gets: A,B
            "prepare": "",  # shell command on every host before each start, such as a mount
            "restarts_without_progress": 5,  # restarts at the same checkpoint before it gives up
            "stop_seconds": 600,  # time to save after a notice to leave
            "price_per_chip_hour": 0.0,  # price of a GPU for an hour, for the cost of the run
            "hours": 0.0,  # expected length of the run, for its cost
        }
    )
