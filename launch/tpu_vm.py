"""Cloud TPU VMs; for `t5x_like launch NAME --config=tpu_vm`."""

from ml_collections import ConfigDict

from t5x_like.launching.fields import INSTALLED, OF_RUN


def get_config() -> ConfigDict:
    """The fields, with those of `launching/fields.py`; override one as `--config.FIELD=VALUE`.

    Or keep a copy of this file.
    """
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
            **INSTALLED,
            "extras": "tpu,gcs",  # extras of the package; add data to cache SeqIO tasks
            **OF_RUN,
        }
    )
