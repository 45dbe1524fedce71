"""Manifests of Kubernetes Engine: valid, and their scripts quoted."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from t5x_like.core.exit_status import FINAL

DIGEST = "us-docker.pkg.dev/mine/images/t5x_like@sha256:" + "a" * 64
CRD = Path(__file__).parent / "jobset_v1alpha2.json"
TRAIN = ["--", "train", "--model_dir=gs://bucket/run"]
WORDS = ["--config=gke", f"--config.image={DIGEST}"]
TPU = ["--config.topology=v5e-256", "--config.slices=2", "--config.spot", "--config.queue=main"]
GPU = [
    "--config.gpu=nvidia-h100-80gb",
    "--config.nodes=4",
    "--config.service_account=trainer",
    "--config.node_selector=a/b=c,d=e",
    "--config.reservation=ours",
]


def strict(node: object) -> object:
    """OpenAPI 3 as JSON schema that refuses unknown fields, as kubectl does."""
    if isinstance(node, list):
        return [strict(one) for one in node]
    if not isinstance(node, dict):
        return node
    made = {
        key: {name: strict(one) for name, one in value.items()}
        if key == "properties"
        else strict(value)
        for key, value in node.items()
    }
    if made.get("x-kubernetes-int-or-string"):
        made.pop("type", None)
        made["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    if isinstance(made.get("properties"), dict):
        made.setdefault("additionalProperties", False)
    return made


def jobset_errors(document: dict) -> list[str]:
    jsonschema = pytest.importorskip("jsonschema")
    schema = strict(json.loads(CRD.read_text())["schema"])
    schema["properties"]["metadata"] = {"type": "object"}  # it is checked by the API itself
    return [
        error.message for error in jsonschema.Draft202012Validator(schema).iter_errors(document)
    ]


def check_kubernetes(document: dict) -> None:
    validator = pytest.importorskip("kubernetes_validate")
    validator.validate(document, "1.32", strict=True)


def made(bench, *words: str) -> tuple[dict, dict]:
    """The ConfigMap and the JobSet of a launch."""
    assert bench.launch("run", *WORDS, *words) == 0, bench.err
    folder = bench.launches / "run/bundle"
    return tuple(json.loads((folder / f"{name}.json").read_text()) for name in ("files", "jobset"))


@pytest.mark.parametrize("kind", [TPU, GPU], ids=["tpu", "gpu"])
def test_the_manifests_are_valid(bench, kind):
    files, jobset = made(bench, *kind, "--config.secrets=HF_TOKEN", *TRAIN)
    assert jobset_errors(jobset) == []
    assert jobset_errors({**jobset, "spec": {**jobset["spec"], "replicas": 1}}) != []
    check_kubernetes(files)
    for one in jobset["spec"]["replicatedJobs"]:
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}}
        check_kubernetes({**job, "spec": one["template"]["spec"]})


def test_slices_of_tpus(bench):
    _, jobset = made(bench, *TPU, *TRAIN)
    (one,) = jobset["spec"]["replicatedJobs"]
    job = one["template"]["spec"]
    pod = job["template"]["spec"]
    assert (one["replicas"], job["parallelism"], job["completions"]) == (2, 64, 64)
    assert pod["nodeSelector"] == {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
        "cloud.google.com/gke-tpu-topology": "16x16",
        "cloud.google.com/gke-spot": "true",
    }
    assert pod["containers"][0]["resources"] == {"limits": {"google.com/tpu": 4}}
    assert jobset["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "main"
    assert jobset["spec"]["suspend"] is True
    assert "512 chips" in bench.err


def test_nodes_with_gpus(bench):
    _, jobset = made(bench, *GPU, *TRAIN)
    (one,) = jobset["spec"]["replicatedJobs"]
    job = one["template"]["spec"]
    pod = job["template"]["spec"]
    assert (one["replicas"], job["parallelism"]) == (1, 4)
    assert pod["nodeSelector"] == {
        "cloud.google.com/gke-accelerator": "nvidia-h100-80gb",
        "cloud.google.com/reservation-name": "ours",
        "a/b": "c",
        "d": "e",
    }
    assert pod["containers"][0]["resources"] == {"limits": {"nvidia.com/gpu": 8}}
    assert pod["serviceAccountName"] == "trainer"
    assert "suspend" not in jobset["spec"]
    assert "32 GPUs" in bench.err


def test_final_ends_fail_the_jobset_and_others_restart_it(bench):
    _, jobset = made(bench, *GPU, *TRAIN)
    (one,) = jobset["spec"]["replicatedJobs"]
    (rule,) = one["template"]["spec"]["podFailurePolicy"]["rules"]
    assert rule["action"] == "FailJob"
    assert rule["onExitCodes"]["values"] == [n for n in FINAL if n]
    assert [rule["action"] for rule in jobset["spec"]["failurePolicy"]["rules"]] == [
        "FailJobSet",
        "RestartJobSet",
    ]


@pytest.mark.parametrize(
    ("kind", "place", "more"),
    [
        (TPU, (1, 3), []),
        (
            GPU,
            (0, 3),
            ["--coordinator_address=run-w-0-0.run:8476", "--num_processes=4", "--process_id=3"],
        ),
    ],
    ids=["tpu", "gpu"],
)
def test_a_pod_runs_train_with_its_words(bench, hostile, kind, place, more):
    bench.write("mine.gin", "X = 1\n")
    named = ["--gin_file=mine.gin", *hostile]
    files, jobset = made(bench, *kind, "--config.env=A='b $(c)'", *TRAIN, *named)
    pod = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    root = bench.root / "mounted"
    for item in pod["volumes"][0]["configMap"]["items"]:
        path = root / item["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files["data"][item["key"]].replace("/t5x_like/run.sh", f"{root}/run.sh"))
    container = pod["containers"][0]
    command = [word.replace("/t5x_like", str(root), 1) for word in container["command"]]
    numbers = dict(zip([one["name"] for one in container["env"]], map(str, place), strict=True))
    variables = {**numbers, "PATH": f"{bench.environment}/bin:/usr/bin:/bin"}
    subprocess.run(command, env=variables, check=True)
    ((arguments, seen, folder),) = bench.trained()
    assert arguments == ["train", "--distributed", *more, "--model_dir=gs://bucket/run", *named]
    assert seen["A"] == "b $(c)"
    assert folder == str(root / "files")
    process = place[0] * 64 + place[1]
    assert bench.attempted()[0][0] == f"--process={process}"
    assert not list(bench.root.rglob("leaked"))


def test_status_logs_stop_and_delete(bench):
    made(bench, *TPU, "--config.context=c", "--config.namespace=n", *TRAIN)
    before = len(bench.calls())
    for words in (["status"], ["logs"], ["logs", "--host=70", "--follow"], ["stop"], ["delete"]):
        assert bench.launch("run", *words) == 0, bench.err
    name = "jobset.sigs.k8s.io/jobset-name=run"
    place = "kubectl --context=c --namespace=n"
    assert [" ".join(call) for call in bench.calls()[before:]] == [
        f"{place} get jobset run -o wide",
        f"{place} get pods -l {name} -o wide",
        f"{place} logs -l {name} --prefix --tail=100 --max-log-requests=128",
        f"{place} logs -l {name},jobset.sigs.k8s.io/job-index=1,"
        "batch.kubernetes.io/job-completion-index=6 --prefix --tail=100 --max-log-requests=128"
        " --follow",
        f'{place} patch jobset run --type=merge --patch={{"spec": {{"suspend": true}}}}',
        f"{place} delete jobset run --ignore-not-found",
        f"{place} delete configmap run --ignore-not-found",
        f"{place} delete secret run --ignore-not-found",
    ]
    assert bench.launch("run", "watch") == 1
    assert "gke starts runs again by itself" in bench.err
