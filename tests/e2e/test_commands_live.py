"""Every command that talks to a server, against a real cluster: first one that knows nothing of Windlass, then one into
which it was installed.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from clusters import Cluster, eventually
from installedkube import InstalledProcess
from realkube import RealKube, serving
from takeover_cluster import Repeated
from takeover_peers import loose_definition

from windlass.cli import errors, main
from windlass.cli.invocation import InvocationContext, ServerTarget, connect
from windlass.client.blocking import BlockingClient

Json = dict[str, Any]
pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"


@dataclass(frozen=True, slots=True)
class Done:
    code: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture(scope="module")
def kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKube]:
    with serving(tmp_path_factory.mktemp("commandskube"), audit=False) as made:
        yield made


@pytest.fixture(scope="module")
def api(kube: RealKube) -> Iterator[Cluster]:
    cluster = Cluster.of_real(kube)
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "20", "nvidia.com/gpu": "4"}
    status = {
        "allocatable": amounts,
        "capacity": amounts,
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    labels = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB", "kubernetes.io/hostname": "gpu-1"}
    cluster.post("/api/v1/nodes", {"metadata": {"name": "gpu-1", "labels": labels}, "status": status}).ok(201)
    cluster.patch("/api/v1/nodes/gpu-1", {"spec": {"taints": None}}).ok()
    yield cluster
    cluster.close()


def in_process(*arguments: str) -> int:
    """The exit status of ``windlass --context real …``; what a process would leave to its end is closed."""
    clients: list[BlockingClient] = []

    def connected(aim: ServerTarget) -> BlockingClient:
        clients.append(connect(aim))
        return clients[-1]

    try:
        return main.run(["--context", "real", *arguments], InvocationContext(connect=connected))
    finally:
        for client in clients:
            client.close()


@pytest.fixture
def windlass(
    kube: RealKube,
    api: Cluster,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Run:
    """``windlass("ps")`` is ``windlass --context real ps`` of somebody with a kubeconfig."""
    monkeypatch.setenv("WINDLASS_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("KUBECONFIG", str(kube.kubeconfig))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Done:
        capsys.readouterr()
        code = in_process(*arguments)
        told = capsys.readouterr()
        return Done(code, told.out, told.err)

    return run


# ---------------------------------------------------------------------- before Windlass is there


NOT_THERE = [
    "why: Windlass is not installed in this cluster",
    "try: windlass --context real install",
    "try: windlass --context real plan   (needs none of these kinds)",
]


def waiting(name: str, gpus: str, scheduler: str = "windlass") -> Json:
    container = {"name": "m", "image": "x", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
    spec = {"schedulerName": scheduler, "tolerations": [{"operator": "Exists"}], "containers": [container]}
    return {"metadata": {"name": name}, "spec": spec}


def test_a_plan_of_a_cluster_that_knows_nothing_of_windlass(api: Cluster, windlass: Run) -> None:
    space = api.new_namespace("foreign")
    for name, gpus, scheduler in (
        ("one", "2", "volcano"),
        ("big", "8", "volcano"),
        ("other", "1", "default-scheduler"),
    ):
        api.post(f"/api/v1/namespaces/{space}/pods", waiting(name, gpus, scheduler)).ok(201)
    done = windlass("plan", "-o", "json")
    assert done.code == 0, done.err
    plan = json.loads(done.out)
    assert [(bind["pod"], bind["node"]) for bind in plan["binds"]] == [("one", "gpu-1")]
    assert [(entry["pods"], entry["code"]) for entry in plan["pending"]] == [(["big"], "ExceedsEveryNode")]
    assert "the cluster does not have these kinds: " in done.err
    assert "podgroups.scheduling.volcano.sh" in done.err
    both = windlass(
        "plan", "-o", "json", "--scheduler-name", "default-scheduler", "--scheduler-name", "volcano"
    )
    assert {bind["pod"] for bind in json.loads(both.out)["binds"]} == {"one", "other"}
    assert api.get(f"/api/v1/namespaces/{space}/pods/one").ok()["spec"].get("nodeName") is None
    dumped = _kubectl_dump(api)
    if dumped is not None:
        again = _piped(windlass, dumped)
        assert {bind["pod"] for bind in again["binds"]} >= {"one"}
    for line in ("ps", "queue tree", "submit --image x -- true"):
        told = windlass(*line.split())
        assert (told.code, told.err.splitlines()[1:]) == (3, NOT_THERE), told
    status = windlass("status")
    assert status.code == 3
    assert re.search(r"Windlass: +not installed\n(.|\n)*Nodes: +1 of 1 ready", status.out)
    for name in ("one", "big", "other"):
        api.delete(f"/api/v1/namespaces/{space}/pods/{name}", {"gracePeriodSeconds": 0})


def _kubectl_dump(api: Cluster) -> str | None:
    """What ``kubectl get … -A -o yaml`` says, kinds that the cluster lacks left out; None without kubectl."""
    if shutil.which("kubectl") is None:
        return None
    argv = [
        "kubectl",
        "--kubeconfig",
        str(api.kubeconfig),
        "get",
        "nodes,pods,priorityclasses",
        "-A",
        "-o",
        "yaml",
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _piped(windlass: Run, text: str) -> Json:
    before, sys.stdin = sys.stdin, io.StringIO(text)
    try:
        done = windlass("plan", "-f", "-", "-o", "json")
    finally:
        sys.stdin = before
    assert done.code == 0, done.err
    return json.loads(done.out)


# ---------------------------------------------------------------------- with it


@pytest.fixture(scope="module")
def installed(kube: RealKube, api: Cluster) -> Iterator[list[InstalledProcess]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", str(kube.kubeconfig))
        assert in_process("install") == 0
    made = [InstalledProcess(kube, api, part) for part in ("controllers", "scheduler")]
    try:
        eventually(lambda: [one.status() for one in made] == [200, 200])
        eventually(lambda: _open(api, "default"))
        yield made
    finally:
        for one in made:
            one.stop()


MANIFEST = """\
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: filed}
spec:
  schedulerName: windlass
  queue: team
  minAvailable: 2
  tasks:
  - name: worker
    replicas: 2
    template:
      spec:
        restartPolicy: Never
        containers: [{name: main, image: x, resources: {limits: {nvidia.com/gpu: 1}}}]
"""

STEPS: tuple[tuple[str, str], ...] = (
    ("version", r"[Ss]erver"),
    ("status", r"windlass-scheduler \S+: 0 of 2 ready\n(.|\n)*1 of 1 ready(.|\n)*default +Open +1 +0 +0"),
    ("doctor", r"windlass-scheduler: 0 of 2 ready\n(.|\n)* leads windlass-system/windlass-scheduler"),
    ("queue create team weight=2", r"team"),
    ("queue set team deserved.nvidia.com/gpu=2", r"team"),
    ("queue ls", r"team\s+Open"),
    ("queue tree", r"team"),
    ("submit --name batch --queue team --gpus 1 --image x -- sleep 60", r"batch"),
    ("ps", r"batch"),
    ("ps -A -o json", r'"batch"'),
    ("show batch", r"gpu-1"),
    ("apply -f job.yaml", r"filed created"),
    ("explain filed", r"filed"),
    ("get pods", r"batch"),
    ("get queues -o json", r'"team"'),
    ("describe job batch", r"team"),
    ("logs batch", r"has written nothing yet"),
    ("run --name quick --gpus 1 --image x -- true", r"quick"),
    ("submit --name late --queue team --gpus 4 --image x -- true", r"late"),
    ("explain late", r"4 GPUs"),
    ("node ls", r"gpu-1"),
    ("node tree", r""),
    ("gpu ls", r"gpu-1"),
    ("node cordon gpu-1", r"gpu-1"),
    ("node uncordon gpu-1", r"gpu-1"),
    ("node add-simulated --count 1", r""),
    ("plan", r"QUEUE"),
    ("what-if --drain gpu-1 --samples 1", r"(?i)gpu-1|nobody|nothing"),
    ("defrag --plan", r"GPU"),
    ("cancel batch", r"batch"),
    ("delete -f job.yaml", r"filed"),
    ("requeue late", r"late is (already waiting|being requeued)"),
    ("scale late 2", r"late has 2 pods now"),
    ("suspend late", r"late is being suspended"),
    ("resume late", r"late is "),
    ("delete job late", r"late"),
    ("node drain gpu-1 --yes --grace-period 0 --timeout 30s", r"gpu-1"),
    ("plugin ls", r"low-priority-gate(.|\n)*policy in force"),
    ("install --dry-run", r"dry run"),
    ("model ls", r"No models"),
    ("workflow ls", r"No workflows"),
    ("generate products.csv --prompt {name} --name shop --detach", r"shop"),
    ("upgrade --check", r"ready: "),
    ("items ls shop", r"Phase: +(Pending|Queued)"),
    ("uninstall --dry-run", r"would be deleted"),
)
"""Command lines in this order, and what the output must say."""
ON_A_BOX = "gpu clear gpu-1 0"
"""Only an agent of Windlass on the node can do this; the command says so."""
IN_A_POD = "exec late -- true"
"""It needs a kubelet or an agent on the node: tests/e2e/test_streams.py tries it."""
OFFLINE = {
    "up",
    "down",
    "completion",
    "convert",
    "help",
    "docs",
    "crds",
    "scheduler",
    "controller",
    "batch-api",
    "sim",
    "reserve-device",
}
"""Commands that ask no server, or are one."""


def test_every_command_is_tried_here() -> None:
    tried = {line.split()[0] for line in (*(line for line, _ in STEPS), ON_A_BOX, IN_A_POD)}
    assert set(main.COMMANDS) - OFFLINE - tried == set()


def test_the_commands_work_as_on_a_laptop(
    api: Cluster, installed: list[InstalledProcess], windlass: Run, tmp_path: Path
) -> None:
    (tmp_path / "job.yaml").write_text(MANIFEST)
    (tmp_path / "products.csv").write_text("id,name\na,cup\n")
    for line, said in STEPS:
        helper = threading.Thread(target=_end_soon, args=(api, "quick")) if line.startswith("run") else None
        if helper is not None:
            helper.start()
        done = windlass(*line.split())
        if helper is not None:
            helper.join()
        words = f"windlass {line}\n{done.out}\n{done.err}\n{[one.text()[-800:] for one in installed]}"
        assert done.code == (errors.FAILED if line == "doctor" else errors.OK), (
            words
        )  # no kubelet, no instance
        assert re.search(said, done.out + done.err), words
        if line == STEPS[7][0]:
            eventually(lambda: _bound(api, "batch") == 1)
        elif line.startswith(("apply", "submit --name late")):
            name = "filed" if line.startswith("apply") else "late"
            eventually(lambda name=name: api.get(f"{JOBS}/{name}").ok().get("status"))


def _end_soon(api: Cluster, job: str) -> None:
    """What a kubelet does: the pod of the job runs, and ends well."""
    own = Cluster("real", api.connection, api.kubeconfig, api.forget_history)
    eventually(lambda: _bound(own, job) == 1)
    (pod,) = own.get("/api/v1/namespaces/default/pods", f"labelSelector=volcano.sh/job-name={job}").ok()[
        "items"
    ]
    moment = "2026-01-01T00:00:00Z"
    ended = {"exitCode": 0, "startedAt": moment, "finishedAt": moment, "reason": "Completed"}
    container = {
        "name": pod["spec"]["containers"][0]["name"],
        "image": "x",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": {"terminated": ended},
    }
    status = {"phase": "Succeeded", "startTime": moment, "containerStatuses": [container]}
    own.patch(f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}/status", {"status": status}).ok()
    own.close()


def _open(api: Cluster, queue: str) -> bool:
    found = api.get(f"{QUEUES}/{queue}")
    return found.status == 200 and found.json.get("status", {}).get("state") == "Open"


def _bound(api: Cluster, job: str) -> int:
    pods = api.get("/api/v1/namespaces/default/pods", f"labelSelector=volcano.sh/job-name={job}").ok()[
        "items"
    ]
    return sum(1 for pod in pods if pod["spec"].get("nodeName"))


def test_other_spellings_are_normalised_and_recorded(api: Cluster, installed: list[InstalledProcess]) -> None:
    queue = yaml.safe_load(
        "{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: spelled},"
        " spec: {weight: 1, guaranteed: {cpu: '1'}}}"
    )
    api.post(QUEUES, queue).ok(201)

    def moved() -> Json | None:
        found = api.get(f"{QUEUES}/spelled").ok()
        recorded = (found.get("status") or {}).get("conditions")
        return found if "guaranteed" not in found["spec"] and recorded else None

    found = eventually(moved)
    assert found["spec"]["guarantee"] == {"resource": {"cpu": "1"}}
    (condition,) = found["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("Normalized", "True")
    eventually(lambda: "Normalized" in _reasons(api, "spelled"))

    job = yaml.safe_load(MANIFEST) | {"apiVersion": "batch.volcano.sh/v1beta1", "metadata": {"name": "older"}}
    api.post(JOBS.replace("v1alpha1", "v1beta1"), job).ok(201)
    assert api.get(f"{JOBS}/older").ok()["apiVersion"] == "batch.volcano.sh/v1alpha1"
    eventually(lambda: "Normalized" in _reasons(api, "older"))


def test_jobs_that_name_nobody_are_placed_and_those_of_others_left_alone(
    api: Cluster, installed: list[InstalledProcess], windlass: Run
) -> None:
    """Windlass serves its own name here, and nobody serves ``volcano``."""
    windlass("queue", "create", "team")
    for name, scheduler in (("others", {"schedulerName": "volcano"}), ("anybodys", {})):
        job = yaml.safe_load(MANIFEST) | {"metadata": {"name": name}}
        del job["spec"]["schedulerName"]
        job["spec"] |= scheduler
        api.post(JOBS, job).ok(201)
    eventually(lambda: _bound(api, "anybodys") == 2)
    eventually(lambda: "not evaluated yet by volcano" in windlass("ps").out)
    assert "volcano has not evaluated it yet" in windlass("explain", "others").out
    groups = api.get(GROUPS).ok()["items"]
    (group,) = (g for g in groups if g["metadata"]["name"].startswith("others-"))
    assert "windlass.dev/explanation" not in group["metadata"].get("annotations", {})
    assert not group["status"].get("conditions")
    for name in ("others", "anybodys"):
        api.delete(f"{JOBS}/{name}", {"propagationPolicy": "Background"}).ok()


def _reasons(api: Cluster, name: str) -> set[str]:
    events = api.get("/api/v1/events", f"fieldSelector=involvedObject.name={name}").ok()["items"]
    return {event["reason"] for event in events}


def test_what_only_a_box_can_do_is_said_so(
    api: Cluster, installed: list[InstalledProcess], windlass: Run
) -> None:
    done = windlass(*ON_A_BOX.split())
    assert done.code in range(1, 8), done
    assert "error[WL-" in done.err, done


KUEUE = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: kueue-team}
spec:
  cohortName: lab
  resourceGroups:
  - coveredResources: [nvidia.com/gpu]
    flavors: [{name: any, resources: [{name: nvidia.com/gpu, nominalQuota: 3, borrowingLimit: 1}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: lq, namespace: default}
spec: {clusterQueue: kueue-team}
"""


def test_queues_of_kueue_become_queues(
    api: Cluster, installed: list[InstalledProcess], windlass: Run, kube: RealKube
) -> None:
    refused = windlass("install", "--adopt", "kueue")
    assert refused.code == 5
    assert "this cluster has no ClusterQueue" in refused.err
    folder = kube.folder / "kueue"
    folder.mkdir()
    for kind, scope in (("ClusterQueue", "Cluster"), ("LocalQueue", "Namespaced")):
        definition = loose_definition(f"{kind.lower()}s", kind, "kueue.x-k8s.io", "v1beta2", scope)
        (folder / f"{kind}.yaml").write_text(yaml.safe_dump(definition))
    kube.install_crds(folder)
    for obj in yaml.safe_load_all(KUEUE):
        place = "namespaces/default/" if obj["kind"] == "LocalQueue" else ""
        api.post(f"/apis/kueue.x-k8s.io/v1beta2/{place}{obj['kind'].lower()}s", obj).ok(201)
    printed = windlass("install", "--adopt", "kueue", "-o", "json")
    assert {item["metadata"]["name"] for item in json.loads(printed.out)["items"]} >= {"lab", "kueue-team"}
    assert api.get(f"{QUEUES}/kueue-team").status == 404  # printed, not made
    for _ in range(2):  # it may be repeated
        done = windlass("install", "--adopt", "kueue")
        assert done.code == 0, done.err
    found = api.get(f"{QUEUES}/kueue-team").ok()
    assert found["spec"]["parent"] == "lab"
    assert (found["spec"]["deserved"], found["spec"]["capability"]) == (
        {"nvidia.com/gpu": "3"},
        {"nvidia.com/gpu": "4"},
    )
    notes = api.get("/api/v1/namespaces/default").ok()["metadata"]["annotations"]
    assert notes["scheduling.volcano.sh/queue-name"] == "kueue-team"
    eventually(lambda: re.search(r"kueue-team\s+Open", windlass("queue", "ls").out))


def as_kueue_does(cluster: Cluster) -> None:
    """What Kueue's controller tells of ClusterQueues (pkg/cache/scheduler: ``inactiveReason``), and counts of them."""
    path = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues"
    for queue in cluster.get(path).ok()["items"]:
        stopped = queue["spec"].get("stopPolicy", "None") != "None"
        condition = {
            "type": "Active",
            "status": "False" if stopped else "True",
            "reason": "Stopped" if stopped else "Ready",
            "message": "Can't admit new workloads: is stopped." if stopped else "Can admit new workloads",
            "observedGeneration": queue["metadata"]["generation"],
        }
        status = {"conditions": [condition], "admittedWorkloads": 2, "pendingWorkloads": 5}
        if queue.get("status") != status:
            cluster.patch(f"{path}/{queue['metadata']['name']}/status", {"status": status}).ok()


def test_a_cluster_queue_of_kueue_is_held_and_given_back(
    api: Cluster, installed: list[InstalledProcess], windlass: Run
) -> None:
    path = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/kueue-team"
    made = api.get(path).ok()
    missing = windlass("install", "--adopt", "kueue", "-q", "nobody")
    assert (missing.code, "WL-QUEUE-404" in missing.err) == (3, True)
    late = windlass("install", "--adopt", "kueue", "-q", "kueue-team", "--wait", "1")
    assert (late.code, "Kueue has not observed the change" in late.err) == (
        7,
        True,
    )  # nobody is there to do so

    kueue = Repeated(api, as_kueue_does)
    try:
        held = windlass("install", "--adopt", "kueue", "-q", "kueue-team")
        assert held.code == 0, held.err
        assert "2 running workloads are untouched, 5 pending ones stay with Kueue" in held.out
        found = api.get(path).ok()
        assert found["spec"] == {**made["spec"], "stopPolicy": "Hold"}
        assert re.search(
            r"kueue-team +windlass +Hold +2 +5", windlass("install", "--adopt", "kueue", "--dry-run").out
        )
        back = windlass("uninstall", "--adopted", "-q", "kueue-team")
        assert back.code == 0, back.err
        assert "given back to Kueue, with stopPolicy None" in back.out
        assert api.get(path).ok()["spec"]["stopPolicy"] == "None"

        api.patch(path, {"spec": {"stopPolicy": "HoldAndDrain"}}).ok()  # what was stopped remains so
        for words in (("install", "--adopt", "kueue"), ("uninstall", "--adopted")):
            assert windlass(*words, "-q", "kueue-team").code == 0
            assert api.get(path).ok()["spec"]["stopPolicy"] == "HoldAndDrain"
        assert "annotations" not in api.get(path).ok()["metadata"]
    finally:
        kueue.stop()
