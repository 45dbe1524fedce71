"""Cloud TPU VMs; for `t5x_like launch NAME --config=tpu_vm`."""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
    """The fields; override one as `--config.FIELD=VALUE`, or keep a copy of this file."""
    return ConfigDict(
        {
            "engine": "tpu_vm",
            "project": "",  # Google Cloud project that pays
            "zone": "",  # one that has the slice, such as us-west4-a
            "topology": "v5e-8",  # slice, such as v5e-16, v5p-64 (its 64 cores) or v5e:4x4
            "slices": 1,  # slices that train together (multislice)
            "spot": False,  # cheaper, but may be taken away: it is then asked for again
            "reserved": False,  # from your reservation
            "wait_hours": 24.0,  # longest wait for the slice
            "poll_seconds": 60.0,  # seconds between looks at the queue and the hosts
            "delete_when_done": False,  # give the slice back once the run is done
            "runtime_version": "",  # TPU software; empty for the usual one
            "network": "",  # VPC network; empty for the default
            "subnetwork": "",  # its subnetwork
            "service_account": "",  # account of the hosts, which reads and writes the buckets
            "package": "",  # wheel, or git+https://...@COMMIT; empty packs this checkout
            "extras": "tpu,gcs",  # extras of the package; add data to cache SeqIO tasks
            "python": "3.12",  # Python that uv installs on the hosts
            "environment": "",  # folder of an environment that all hosts have; empty makes one
            "env": "",  # variables of the run, no secrets: "A=1 B='two words'"
            "secrets": "",  # names of variables of this shell whose values the run gets: A,B
            "prepare": "",  # shell command on every host before each start, such as a mount
            "restarts_without_progress": 5,  # restarts at the same checkpoint before it gives up
            "stop_seconds": 600,  # time to save after a notice to leave
            "price_per_chip_hour": 0.0,  # price of a chip for an hour, for the cost of the run
            "hours": 0.0,  # expected length of the run, for its cost
        }
    )
