"""Plain hosts over ssh; for `t5x_like launch NAME --config=ssh`."""

from ml_collections import ConfigDict

from t5x_like.launching.fields import INSTALLED, OF_RUN


def get_config() -> ConfigDict:
    """The fields, with those of `launching/fields.py`; override one as `--config.FIELD=VALUE`.

    Or keep a copy of this file.
    """
    return ConfigDict(
        {
            "engine": "ssh",
            "hosts": "",  # names as ssh knows them, the first is the coordinator: node1,node2
            "coordinator": "",  # address of the first host for the others; empty for its name
            "port": 8476,  # of the first host, open to the others
            "gpus_per_host": 8,  # for the cost
            "poll_seconds": 60.0,  # seconds between two looks of --watch
            **INSTALLED,
            **OF_RUN,
        }
    )
