"""The fields of launch/tpu_vm.py, with their defaults."""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
    """The fields; override one as `--config.zone=us-west4-a`, or keep a copy of this file."""
    return ConfigDict(
        {
            "project": "",  # Google Cloud project that pays
            "zone": "",  # one that has the slice, such as us-west4-a
            "name": "t5x-like",  # name of the TPU VM and of the queued resource
            "accelerator": "v5litepod-8",  # slice: generation and number of chips (v4: of cores)
            "runtime_version": "",  # TPU software; empty for the usual one of the generation
            "spot": False,  # cheaper, but may be taken away: the same command resumes the run
            "queued": True,  # wait in Google's queue for the slice; False fails when there is none
            "poll_seconds": 30,  # seconds between checks of the queue
            "package": "",  # git+https://...@revision, or the path of a wheel on this machine
            "extras": "tpu",  # extras of the package; "tpu,data" to make caches of SeqIO tasks
            "python": "3.12",  # the Python that uv installs on the hosts
            "env": "",  # variables of the run: "A=1 B='two words'"
            "prepare": "",  # shell command on every host before the run, such as a mount
            "train": (),  # arguments of `t5x_like train`; those after `--` replace them
        }
    )
