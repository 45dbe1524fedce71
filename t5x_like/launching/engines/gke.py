"""Google Kubernetes Engine: a JobSet of TPU slices or GPU nodes, whose controller restarts it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from t5x_like.core.exit_status import FINAL
from t5x_like.launching import shipping, slices
from t5x_like.launching.commands import Action, Call, File, Note, Runner
from t5x_like.launching.job import Job, field_problem
from t5x_like.launching.scripts import run_script

_WORKERS = "w"  # the name of the replicated job, a part of the names of the pods
_PORT = 8476
_KEPT = 900_000  # bytes of a ConfigMap: Kubernetes allows 1 MiB
_LABEL = "jobset.sigs.k8s.io/jobset-name"
_JOB_INDEX = "jobset.sigs.k8s.io/job-index"
_POD_INDEX = "batch.kubernetes.io/job-completion-index"
_NUMBERS = {
    "T5X_LIKE_SLICE": f"metadata.labels['{_JOB_INDEX}']",
    "T5X_LIKE_HOST": f"metadata.labels['{_POD_INDEX}']",
}

RENTED = True
"""Whether the machines are paid for by the hour."""


def problems(config: Any) -> list[str]:
    """The errors in the configuration's fields, one line each."""
    errors = []
    if not re.fullmatch(r"[^\s@]+@sha256:[0-9a-f]{64}", config.image):
        errors.append(
            f"--config.image={config.image!r}: give an image by its digest, NAME@sha256:..., so "
            "that all hosts and restarts run the same; docs/gke.md builds one"
        )
    if bool(config.topology) == bool(config.gpu):
        errors.append(
            "--config.topology=v5e-16 for TPUs, or --config.gpu=nvidia-h100-80gb with "
            "--config.nodes=N for GPUs: give one of them"
        )
    if config.topology:
        errors += field_problem("topology", lambda: _slice(config))
    for field in ("slices", "nodes", "gpus_per_node"):
        if config[field] < 1:
            errors.append(f"--config.{field}={config[field]}: it must be at least 1")
    errors += field_problem("node_selector", lambda: _selector(config))
    for field in ("namespace", "service_account", "queue"):
        if config[field] and not re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", config[field]):
            errors.append(f"--config.{field}={config[field]!r} is not a name of Kubernetes")
    return errors


def count(config: Any) -> int:
    """The number of chips or GPUs that are paid for."""
    if config.topology:
        return slices.parse(config.topology).chips * int(config.slices)
    return int(config.nodes) * int(config.gpus_per_node)


def unit(config: Any) -> str:
    """The unit that is paid for."""
    return "chip" if config.topology else "GPU"


def start(job: Job, runner: Runner) -> Iterator[Action]:
    """Makes the secret, the map of scripts and files, and the JobSet."""
    files = {
        "pod.sh": pod_script(job),
        "run.sh": run_script(job, python="python"),
        **{f"files/{name}": text for name, text in shipping.user_files(job.arguments).items()},
    }
    shipped = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(job),
        "data": {f"file-{n}": text for n, text in enumerate(files.values())},
    }
    if len(json.dumps(shipped)) > _KEPT:
        raise ValueError(
            "the gin files and modules are too large for a ConfigMap: put them into the image"
        )
    yield Call(("rm", "-rf", str(job.bundle)))
    names = []
    for name, document in {"files": shipped, "jobset": jobset(job, [*files])}.items():
        names.append(job.bundle / f"{name}.json")
        yield File(names[-1], json.dumps(document, indent=1) + "\n")
    if job.secrets:
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": _metadata(job),
            "stringData": dict(job.secrets),
        }
        yield Call(_kubectl(job, "create", "-f", "-"), stdin=json.dumps(secret), secret=True)
    for path in names:
        yield Call(_kubectl(job, "create", "-f", str(path)))
    yield Note("the cluster starts the run again by itself; you can go")


def status(job: Job, runner: Runner) -> None:
    """Prints the JobSet and its pods."""
    runner.perform(
        [
            Call(_kubectl(job, "get", "jobset", job.name, "-o", "wide")),
            Call(_kubectl(job, "get", "pods", "-l", f"{_LABEL}={job.name}", "-o", "wide")),
        ]
    )


def logs(job: Job, *, host: int | None, lines: int, follow: bool) -> Iterator[Action]:
    """The logs of all pods, or of one."""
    chosen = [f"{_LABEL}={job.name}"]
    if host is not None:
        hosts = _hosts(job.config)
        chosen += [
            f"{_JOB_INDEX}={host // hosts}",
            f"{_POD_INDEX}={host % hosts}",
        ]
    most = _hosts(job.config) * (job.config.slices if job.config.topology else 1)
    flags = ["--prefix", f"--tail={lines}", f"--max-log-requests={most}"]
    flags += ["--follow"] * follow
    yield Call(_kubectl(job, "logs", "-l", ",".join(chosen), *flags))


def stop(job: Job) -> Iterator[Action]:
    """Suspends the JobSet: its pods are asked to save and stop."""
    patch = json.dumps({"spec": {"suspend": True}})
    yield Call(_kubectl(job, "patch", "jobset", job.name, "--type=merge", f"--patch={patch}"))
    yield Note(f"to go on later: t5x_like launch {job.name} delete, then start it again")


def delete(job: Job) -> Iterator[Action]:
    """Removes all that `start` made; what the run has written stays."""
    for kind in ("jobset", "configmap", "secret"):
        yield Call(_kubectl(job, "delete", kind, job.name, "--ignore-not-found"))


def jobset(job: Job, files: list[str]) -> dict[str, Any]:
    """The manifest.

    Args:
      job: the run.
      files: paths of the scripts and files of the ConfigMap, in its order.
    """
    config = job.config
    hosts = _hosts(config)
    final = {"containerName": "train", "operator": "In", "values": [n for n in FINAL if n]}
    template = {
        "parallelism": hosts,
        "completions": hosts,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": final}]},
        "template": {"metadata": {"labels": {"app": "t5x_like"}}, "spec": _pod(job, files)},
    }
    spec: dict[str, Any] = {
        "failurePolicy": {
            # Ours is the limit of restarts without progress, in the container.
            "maxRestarts": 10_000,
            "rules": [
                {
                    "name": "final",
                    "action": "FailJobSet",
                    "onJobFailureReasons": ["PodFailurePolicy"],
                },
                {"name": "others", "action": "RestartJobSet"},
            ],
        },
        "replicatedJobs": [
            {
                "name": _WORKERS,
                "replicas": config.slices if config.topology else 1,
                "template": {"spec": template},
            }
        ],
    }
    metadata = _metadata(job)
    if config.topology:
        # All hosts of a slice in one node pool, which is one slice.
        pool = "cloud.google.com/gke-nodepool"
        metadata["annotations"] = {"alpha.jobset.sigs.k8s.io/exclusive-topology": pool}
    if config.queue:
        metadata["labels"]["kueue.x-k8s.io/queue-name"] = config.queue
        spec["suspend"] = True  # Kueue lets it go
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata,
        "spec": spec,
    }


def _pod(job: Job, files: list[str]) -> dict[str, Any]:
    """The pod that runs on each host, as the manifest has it."""
    config = job.config
    items = [{"key": f"file-{n}", "path": path} for n, path in enumerate(files)]
    container = {
        "name": "train",
        "image": config.image,
        "command": ["bash", "/t5x_like/pod.sh"],
        "env": [
            {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
            for name, path in _NUMBERS.items()
        ],
        "resources": {"limits": _resources(config)},
        "volumeMounts": [
            {"name": "run", "mountPath": "/t5x_like", "readOnly": True},
            {"name": "memory", "mountPath": "/dev/shm"},
        ],
    }
    if job.secrets:
        container["envFrom"] = [{"secretRef": {"name": job.name}}]
    pod: dict[str, Any] = {
        "restartPolicy": "Never",
        "nodeSelector": _selector(config),
        "terminationGracePeriodSeconds": config.stop_seconds,
        "containers": [container],
        "volumes": [
            {"name": "run", "configMap": {"name": job.name, "items": items}},
            {"name": "memory", "emptyDir": {"medium": "Memory"}},
        ],
    }
    if config.service_account:
        pod["serviceAccountName"] = config.service_account
    if config.spot:
        pod["tolerations"] = [
            {"key": "cloud.google.com/gke-spot", "operator": "Equal", "value": "true"}
        ]
    return pod


def pod_script(job: Job) -> str:
    """The script of a container: the number of its process, and where the first one is."""
    more = ""
    if not job.config.topology:
        first = f"{job.name}-{_WORKERS}-0-0.{job.name}:{_PORT}"
        more = (
            f" --coordinator_address={first} --num_processes={_hosts(job.config)}"
            ' --process_id="$process"'
        )
    return f"""\
#!/usr/bin/env bash
process=$((T5X_LIKE_SLICE * {_hosts(job.config)} + T5X_LIKE_HOST))
exec bash /t5x_like/run.sh "$process"{more}
"""


def _metadata(job: Job) -> dict[str, Any]:
    return {"name": job.name, "labels": {"app": "t5x_like"}}


def _slice(config: Any) -> slices.Slice:
    parsed = slices.parse(config.topology)
    if not parsed.gke_accelerator:
        raise ValueError(f"Kubernetes Engine has no {parsed.generation}")
    return parsed


def _hosts(config: Any) -> int:
    """The pods of one slice, or of all nodes with GPUs."""
    return _slice(config).hosts if config.topology else int(config.nodes)


def _resources(config: Any) -> Mapping[str, int]:
    if config.topology:
        slice_ = _slice(config)
        return {"google.com/tpu": slice_.chips // slice_.hosts}
    return {"nvidia.com/gpu": int(config.gpus_per_node)}


def _selector(config: Any) -> dict[str, str]:
    """The labels of the nodes."""
    labels = {}
    if config.topology:
        slice_ = _slice(config)
        labels["cloud.google.com/gke-tpu-accelerator"] = slice_.gke_accelerator
        labels["cloud.google.com/gke-tpu-topology"] = slice_.gke_topology
    elif config.gpu:
        labels["cloud.google.com/gke-accelerator"] = config.gpu
    if config.spot:
        labels["cloud.google.com/gke-spot"] = "true"
    if config.reservation:
        labels["cloud.google.com/reservation-name"] = config.reservation
    for pair in filter(None, config.node_selector.split(",")):
        label, equals, value = pair.partition("=")
        if not (label and equals):
            raise ValueError(f"{pair!r}: write it as label=value,label=value")
        labels[label] = value
    return labels


def _kubectl(job: Job, *words: str) -> tuple[str, ...]:
    place = []
    if job.config.context:
        place.append(f"--context={job.config.context}")
    if job.config.namespace:
        place.append(f"--namespace={job.config.namespace}")
    return ("kubectl", *place, *words)
