"""Every family of job kinds on a real API server: Windlass' scheduler and controllers, hollow nodes for kubelets.

kube-controller-manager keeps Jobs and StatefulSets, as in any cluster.
"""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import acceptance_manifests
import agent_on_cluster
import pytest
import yaml
from clusters import Cluster, eventually
from hollow_kubelet import HollowKubelet
from hollow_pods import add_nodes, end_pods, start_kwok
from realkube import CRDS, RealKube, end, free_ports, spawn
from scheduler_processes import WindlassPart
from workflow_of_parts import check_end, workflow_of_parts

from windlass.api import annotations as names
from windlass.api.fields import leaderworkerset
from windlass.api.job_kind_families import JOB_KIND_FAMILIES
from windlass.api.rbac_resources import ROLES
from windlass.api.resources import (
    AIGC_JOBS,
    AIGC_WORKFLOWS,
    CONFIG_MAPS,
    JAX_JOBS,
    JOB_FLOWS,
    JOB_SETS,
    JOB_TEMPLATES,
    LEADER_WORKER_SETS,
    MODEL_CACHES,
    MPI_JOBS,
    MPI_JOBS_V2BETA1,
    NODES,
    PADDLE_JOBS,
    PERSISTENT_VOLUMES,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    PYTORCH_JOBS,
    RAY_CLUSTERS,
    RAY_CRON_JOBS,
    RAY_JOBS,
    RAY_SERVICES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    TF_JOBS,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
    VOLCANO_CRON_JOBS,
    VOLCANO_JOBS,
    WORKFLOWS,
    XGBOOST_JOBS,
    Resource,
)

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]
Json = dict[str, Any]


class Scene:
    """A cluster with hollow nodes, and a namespace for one test."""

    def __init__(self, cluster: Cluster, kubelet: HollowKubelet) -> None:
        self.cluster, self.kubelet = cluster, kubelet
        self.namespace = ""

    def path(self, kind: Resource, name: str = "") -> str:
        prefix = "/apis" if kind.group else "/api"
        place = f"namespaces/{self.namespace}/" if kind.namespaced else ""
        return f"{prefix}/{kind.api_version}/{place}{kind.plural}{'/' if name else ''}{name}"

    def create(self, kind: Resource, name: str, spec: Json, **metadata: Any) -> None:
        head = {"apiVersion": kind.api_version, "kind": kind.kind}
        self.cluster.post(self.path(kind), {**head, "metadata": {"name": name, **metadata}, "spec": spec}).ok(
            201
        )

    def get(self, kind: Resource, name: str) -> Json:
        return self.cluster.get(self.path(kind, name)).ok()

    def items(self, kind: Resource) -> dict[str, Json]:
        found = self.cluster.get(self.path(kind)).ok()["items"]
        return {one["metadata"]["name"]: one for one in found}

    def status(self, kind: Resource, name: str) -> Json:
        return self.get(kind, name).get("status") or {}

    def wait_for(self, kind: Resource, name: str, condition: str) -> None:
        """Wait until a condition is true."""

        def holds() -> bool:
            found = self.status(kind, name).get("conditions") or []
            true = [one["type"] for one in found if one["status"] == "True"]
            assert condition in true, found
            return True

        eventually(holds)

    def pods(self) -> dict[str, Json]:
        return self.items(PODS)

    def running(self, count: int) -> dict[str, Json]:
        """Wait until as many pods run, and return them."""

        def all_run() -> dict[str, Json]:
            found = self.pods()
            phases = {name: (pod.get("status") or {}).get("phase") for name, pod in found.items()}
            assert len(found) == count, phases
            assert set(phases.values()) == {"Running"}, phases
            return found

        return eventually(all_run)

    def end(self, *pods: str, code: int = 0) -> None:
        end_pods(self.cluster, self.namespace, list(pods), code)

    def groups(self) -> dict[str, int]:
        return {name: group["spec"]["minMember"] for name, group in self.items(POD_GROUPS).items()}


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the real node for outputs of generation jobs."""
    return tmp_path_factory.mktemp("outputs")


@pytest.fixture(scope="module")
def processes(
    real_kube: RealKube, tmp_path_factory: pytest.TempPathFactory, outputs: Path
) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("kinds")
    cluster = Cluster.of_real(real_kube)
    for family in JOB_KIND_FAMILIES:
        real_kube.install_crds(CRDS / family)
    kwok = start_kwok(real_kube, folder)
    nodes = add_nodes(cluster, 3, "kinds")
    kubelet = HollowKubelet(folder, real_kube.authority)
    kubelet.serve(cluster, nodes)
    scheduler = WindlassPart(real_kube, "scheduler", name="kinds-scheduler")
    (port,) = free_ports(1)
    progress = {"progressBind": f"127.0.0.1:{port}", "progressAddress": f"https://localhost:{port}"}
    settings = folder / "settings.yaml"
    settings.write_text(
        yaml.safe_dump(
            {
                "controllers": {
                    **progress,
                    "outputsFolder": str(outputs),
                    "modelsFolder": str(outputs / "models"),
                }
            }
        )
    )
    controllers = WindlassPart(
        real_kube, "controller", f"--settings={settings}", "--own-namespace=default", name="kinds-controller"
    )
    try:
        yield Scene(cluster, kubelet)
    finally:
        kubelet.stop()
        controllers.stop()
        scheduler.stop()
        end(kwok)
        for node in nodes:
            cluster.delete(f"/api/v1/nodes/{node}")
        cluster.close()


@pytest.fixture
def scene(processes: Scene) -> Scene:
    processes.namespace = processes.cluster.new_namespace("kind")
    return processes


def container(name: str = "main", gpus: int = 1, **more: Any) -> Json:
    return {"name": name, "image": "x", "resources": {"limits": {"nvidia.com/gpu": gpus}}, **more}


def report(scene: Scene, pod: Json, body: Json, audience: str = "") -> tuple[int, Json]:
    """Report progress as the program of a pod, with what the kubelet would mount."""
    metadata, spec = pod["metadata"], pod["spec"]
    values = {one["name"]: one.get("value") for one in spec["containers"][0]["env"]}
    (volume,) = (one["projected"] for one in spec["volumes"] if one["name"] == "kubeflow-trainer-token")
    token = next(one["serviceAccountToken"] for one in volume["sources"] if "serviceAccountToken" in one)
    bound = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
    request = {"audiences": [audience or token["audience"]], "boundObjectRef": bound}
    head = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
    path = f"{scene.path(SERVICE_ACCOUNTS, 'default')}/token"
    granted = scene.cluster.post(path, {**head, "spec": request}).ok(201)["status"]["token"]
    context = ssl.create_default_context(cadata=metadata["annotations"][names.PROGRESS_CERTIFICATE])
    url = values["KUBEFLOW_TRAINER_SERVER_URL"]
    assert url == values["KUBEFLOW_TRAINER_STATUS_URL"]
    headers = {"Authorization": f"Bearer {granted}", "Content-Type": "application/json"}
    post = urllib.request.Request(url, json.dumps(body).encode(), headers, method="POST")
    try:
        with urllib.request.urlopen(post, context=context, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_programs_report_progress_with_the_token_of_their_pod(scene: Scene) -> None:
    role = {"replicas": 1, "template": {"spec": {"containers": [container("pytorch")]}}}
    scene.create(PYTORCH_JOBS, "told", {"pytorchReplicaSpecs": {"Master": role}})
    pod = scene.running(1)["told-master-0"]
    status = {"progressPercentage": 42, "estimatedRemainingSeconds": 90}
    code, answer = report(scene, pod, {"trainerStatus": status})
    assert (code, answer["trainerStatus"]["progressPercentage"]) == (200, 42), answer
    stored = json.loads(scene.get(PYTORCH_JOBS, "told")["metadata"]["annotations"][names.PROGRESS])
    assert stored["estimatedRemainingSeconds"] == 90
    code, answer = report(scene, pod, {"trainerStatus": status}, audience="https://other")
    assert (code, answer["reason"]) == (403, "Forbidden")
    code, answer = report(scene, pod, {"trainerStatus": {"progressPercentage": 101}})
    assert code == 422
    assert "must be a whole number from 0 to 100" in answer["message"]


def test_kinds_of_kubeflow_run_and_succeed(scene: Scene) -> None:
    kinds = {
        PYTORCH_JOBS: ("pytorchReplicaSpecs", "pytorch", ("Master", "Worker")),
        TF_JOBS: ("tfReplicaSpecs", "tensorflow", ("Chief", "Worker")),
        XGBOOST_JOBS: ("xgbReplicaSpecs", "xgboost", ("Master", "Worker")),
        PADDLE_JOBS: ("paddleReplicaSpecs", "paddle", ("Master", "Worker")),
        JAX_JOBS: ("jaxReplicaSpecs", "jax", ("Worker", "Worker")),
    }
    for kind, (field, main, roles) in kinds.items():
        role = {"replicas": 1, "template": {"spec": {"containers": [container(main)]}}}
        replicas = {name: role for name in roles}
        scene.create(kind, kind.singular, {field: replicas})
    pods = scene.running(9)
    assert len(scene.groups()) == 5
    environment = {one["name"] for one in pods["tfjob-chief-0"]["spec"]["containers"][0]["env"]}
    assert "TF_CONFIG" in environment
    for kind in kinds:
        scene.wait_for(kind, kind.singular, "Running")
    scene.end(*pods)
    for kind in kinds:
        scene.wait_for(kind, kind.singular, "Succeeded")


def mpi_job() -> Json:
    launcher = container("mpi", 0, command=["mpirun", "-n", "2", "true"])
    worker = container("mpi", 1)
    return {
        "slotsPerWorker": 1,
        "mpiReplicaSpecs": {
            "Launcher": {"replicas": 1, "template": {"spec": {"containers": [launcher]}}},
            "Worker": {"replicas": 2, "template": {"spec": {"containers": [worker]}}},
        },
    }


def test_mpi_job_v2_has_keys_hosts_and_a_launcher(scene: Scene) -> None:
    scene.create(MPI_JOBS_V2BETA1, "pi", {**mpi_job(), "mpiImplementation": "OpenMPI"})
    pods = scene.running(3)
    assert sorted(pods) == ["pi-launcher", "pi-worker-0", "pi-worker-1"]
    hosts = scene.get(CONFIG_MAPS, "pi-config")["data"]["hostfile"].split("\n")
    assert hosts[:2] == [f"pi-worker-{index}.pi.{scene.namespace}.svc slots=1" for index in (0, 1)]
    assert set(scene.get(SECRETS, "pi-ssh")["data"]) == {"ssh-privatekey", "ssh-publickey"}
    assert scene.get(SERVICES, "pi")["spec"]["clusterIP"] == "None"
    assert pods["pi-worker-0"]["spec"]["containers"][0]["command"] == ["/usr/sbin/sshd", "-De"]
    assert scene.groups() == {"pi": 3}
    scene.wait_for(MPI_JOBS_V2BETA1, "pi", "Running")
    scene.end("pi-launcher")
    scene.wait_for(MPI_JOBS_V2BETA1, "pi", "Succeeded")


def test_mpi_job_v1_may_enter_its_workers(scene: Scene) -> None:
    scene.create(MPI_JOBS, "old", mpi_job())
    pods = scene.running(3)
    launcher = pods["old-launcher"]["spec"]
    assert launcher["serviceAccountName"] == "old-launcher"
    assert launcher["initContainers"][0]["name"] == "kubectl-delivery"
    assert scene.get(SERVICE_ACCOUNTS, "old-launcher")["metadata"]["ownerReferences"]
    rules = scene.get(ROLES, "old-launcher")["rules"]
    assert rules[1]["resourceNames"] == ["old-worker-0", "old-worker-1"]
    for worker, allowed in (("old-worker-0", True), ("other", False)):
        attributes = {
            "namespace": scene.namespace,
            "verb": "create",
            "resource": "pods",
            "subresource": "exec",
            "name": worker,
        }
        user = f"system:serviceaccount:{scene.namespace}:old-launcher"
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": user, "resourceAttributes": attributes},
        }
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        answer = scene.cluster.post(path, review).ok(201)
        assert answer["status"]["allowed"] is allowed, (worker, answer["status"])
    scene.end("old-launcher")
    scene.wait_for(MPI_JOBS, "old", "Succeeded")


def test_job_set_restarts_and_train_job_completes(scene: Scene) -> None:
    job = {
        "parallelism": 2,
        "completions": 2,
        "backoffLimit": 0,
        "template": {"spec": {"restartPolicy": "Never", "containers": [container()]}},
    }
    replicated = {"name": "w", "replicas": 2, "template": {"spec": job}}
    spec = {"replicatedJobs": [replicated], "failurePolicy": {"maxRestarts": 1}}
    scene.create(JOB_SETS, "js", spec)
    first = scene.running(4)
    assert scene.groups() == {"js": 4}
    scene.end(next(iter(first)), code=1)

    def restarted() -> bool:
        found = scene.pods()
        return len(found) == 4 and not set(found) & set(first)

    eventually(restarted)
    assert scene.status(JOB_SETS, "js")["restarts"] == 1
    scene.end(*scene.running(4))
    scene.wait_for(JOB_SETS, "js", "Completed")
    scene.cluster.delete(scene.path(JOB_SETS, "js")).ok()

    template = {"metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}}
    pod = {"spec": {"template": {"spec": {"containers": [container("node")]}}}}
    runtime = {"replicatedJobs": [{"name": "node", "template": {**template, **pod}}]}
    policy = {"numNodes": 1, "torch": {}}
    scene.create(TRAINING_RUNTIMES, "torch", {"mlPolicy": policy, "template": {"spec": runtime}})
    reference = {"name": "torch", "kind": "TrainingRuntime"}
    scene.create(TRAIN_JOBS, "train", {"runtimeRef": reference, "trainer": {"numNodes": 2}})

    def both() -> dict[str, Json]:
        found = {name: pod for name, pod in scene.pods().items() if name.startswith("train-")}
        assert {(pod.get("status") or {}).get("phase") for pod in found.values()} == {"Running"}, found
        return found if len(found) == 2 else {}

    pods = eventually(both)
    one = next(iter(pods.values()))
    variables = {entry["name"]: entry.get("value") for entry in one["spec"]["containers"][0]["env"]}
    assert variables["PET_NNODES"] == "2"
    code, _ = report(scene, one, {"trainerStatus": {"progressPercentage": 7}})
    assert code == 200
    assert scene.status(TRAIN_JOBS, "train")["trainerStatus"]["progressPercentage"] == 7
    scene.end(*pods)
    scene.wait_for(TRAIN_JOBS, "train", "Complete")


def test_ray_cluster_is_a_gang_with_its_head_first(scene: Scene) -> None:
    head = {"spec": {"containers": [container("ray-head", 0)]}}
    worker = {"spec": {"containers": [container("ray-worker")]}}
    group = {"groupName": "g", "replicas": 2, "minReplicas": 2, "maxReplicas": 2, "template": worker}
    spec = {
        "headGroupSpec": {"rayStartParams": {}, "template": head},
        "workerGroupSpecs": [group],
        "enableInTreeAutoscaling": True,
    }
    scene.create(RAY_CLUSTERS, "ray", spec)
    pods = scene.running(3)
    (first,) = [pod for name, pod in pods.items() if "-head-" in name]
    assert [one["name"] for one in first["spec"]["containers"]] == ["ray-head", "autoscaler"]
    assert first["spec"]["serviceAccountName"] == "ray"
    assert {"resources": ["rayclusters"], "verbs": ["get", "patch"], "apiGroups": ["ray.io"]} in scene.get(
        ROLES, "ray"
    )["rules"]
    eventually(lambda: scene.status(RAY_CLUSTERS, "ray").get("state") == "ready")
    status = scene.status(RAY_CLUSTERS, "ray")
    assert (status["readyWorkerReplicas"], status["desiredWorkerReplicas"]) == (2, 2)
    assert list(scene.groups().values()) == [3]
    scene.cluster.delete(scene.path(RAY_CLUSTERS, "ray")).ok()


def test_ray_service_and_cron_job_create_their_clusters(scene: Scene) -> None:
    head = {"rayStartParams": {}, "template": {"spec": {"containers": [container("ray-head", 0)]}}}
    cluster = {"headGroupSpec": head}
    config = "applications: [{name: a, import_path: 'a:app'}]"
    scene.create(RAY_SERVICES, "serve", {"serveConfigV2": config, "rayClusterConfig": cluster})
    (pod,) = scene.running(1).values()
    assert pod["metadata"]["labels"]["ray.io/serve"] == "false", "no proxy answers on a hollow node"

    def initializing() -> bool:
        status = scene.status(RAY_SERVICES, "serve")
        pending = (status.get("pendingServiceStatus") or {}).get("rayClusterName")
        reasons = {one["type"]: one["reason"] for one in status.get("conditions") or ()}
        wanted = {"Ready": "Initializing", "UpgradeInProgress": "Initializing"}
        return pending == pod["metadata"]["labels"]["ray.io/cluster"] and reasons == wanted

    eventually(initializing)
    scene.cluster.delete(scene.path(RAY_SERVICES, "serve")).ok()
    job = {"entrypoint": "true", "rayClusterSpec": cluster}
    scene.create(RAY_CRON_JOBS, "nightly", {"schedule": "@every 1s", "jobTemplate": job})
    made = eventually(lambda: list(scene.items(RAY_JOBS).values()))[0]
    assert made["metadata"]["labels"]["ray.io/cronjob-name"] == "nightly"
    assert eventually(lambda: scene.status(RAY_CRON_JOBS, "nightly")["lastScheduleTime"])
    scene.cluster.delete(scene.path(RAY_CRON_JOBS, "nightly")).ok()


def test_volcano_job_flow_and_cron_job(scene: Scene) -> None:
    task = {"name": "t", "replicas": 2, "template": {"spec": {"containers": [container()]}}}
    job = {"minAvailable": 2, "schedulerName": "windlass", "tasks": [task]}
    for name in ("a", "b"):
        scene.create(JOB_TEMPLATES, name, job)
    flows = [{"name": "a"}, {"name": "b", "dependsOn": {"targets": ["a"]}}]
    scene.create(JOB_FLOWS, "f", {"jobRetainPolicy": "retain", "flows": flows})
    assert sorted(scene.running(2)) == ["f-a-t-0", "f-a-t-1"]
    scene.end("f-a-t-0", "f-a-t-1")

    def second() -> bool:
        phases = {name: pod["status"].get("phase") for name, pod in scene.pods().items()}
        return phases.get("f-b-t-0") == phases.get("f-b-t-1") == "Running"

    eventually(second)
    scene.end("f-b-t-0", "f-b-t-1")

    def succeeded() -> bool:
        return (scene.status(JOB_FLOWS, "f").get("state") or {}).get("phase") == "Succeed"

    eventually(succeeded)
    scene.create(VOLCANO_CRON_JOBS, "tick", {"schedule": "@every 1s", "jobTemplate": {"spec": job}})
    eventually(lambda: any(name.startswith("tick-") for name in scene.items(VOLCANO_JOBS)))
    scene.cluster.delete(scene.path(VOLCANO_CRON_JOBS, "tick")).ok()


def test_groups_of_a_leader_worker_set(scene: Scene) -> None:
    template = {"size": 3, "workerTemplate": {"spec": {"containers": [container()]}}}
    scene.create(LEADER_WORKER_SETS, "llm", {"replicas": 2, "leaderWorkerTemplate": template})
    pods = scene.running(6)
    assert sorted(pods) == ["llm-0", "llm-0-1", "llm-0-2", "llm-1", "llm-1-1", "llm-1-2"]
    for name, pod in pods.items():
        metadata, group, worker = pod["metadata"], name.split("-")[1], [*name.split("-"), "0"][2]
        labels, notes = metadata["labels"], metadata["annotations"]
        assert (labels[leaderworkerset.GROUP_INDEX], labels[leaderworkerset.WORKER_INDEX]) == (group, worker)
        assert (
            labels[leaderworkerset.GROUP_KEY]
            == pods[f"llm-{group}"]["metadata"]["labels"][leaderworkerset.GROUP_KEY]
        )
        assert notes[names.LWS_LEADER_ADDRESS] == f"llm-{group}.llm.{scene.namespace}"
        assert notes[names.GROUP_NAME] == f"llm-{group}-{labels[leaderworkerset.REVISION]}"
        assert not pod["spec"].get("schedulingGates")
        assert pod["spec"]["schedulerName"] == "windlass"
        variables = {one["name"]: one["valueFrom"] for one in pod["spec"]["containers"][0]["env"]}
        path = variables["LWS_WORKER_INDEX"]["fieldRef"]["fieldPath"]
        assert path == "metadata.labels['leaderworkerset.sigs.k8s.io/worker-index']"
    assert sorted(scene.groups().values()) == [3, 3]
    scene.wait_for(LEADER_WORKER_SETS, "llm", "Available")
    before = {name: pod["metadata"]["uid"] for name, pod in pods.items()}
    scene.cluster.delete(scene.path(PODS, "llm-1-2")).ok()

    def recreated() -> bool:
        found = {name: pod["metadata"]["uid"] for name, pod in scene.pods().items()}
        fresh = {name for name in found if found[name] != before[name]}
        return len(found) == 6 and fresh == {"llm-1", "llm-1-1", "llm-1-2"}

    eventually(recreated)
    scene.running(6)
    eventually(lambda: scene.status(LEADER_WORKER_SETS, "llm").get("readyReplicas") == 2)
    scene.cluster.patch(scene.path(LEADER_WORKER_SETS, "llm"), {"spec": {"replicas": 1}}).ok()
    assert sorted(scene.running(3)) == ["llm-0", "llm-0-1", "llm-0-2"]
    scene.cluster.delete(scene.path(LEADER_WORKER_SETS, "llm")).ok()


@pytest.fixture
def real_node(scene: Scene, real_kube: RealKube, tmp_path: Path) -> Iterator[str]:
    """Node that runs programs, the only one that takes pods."""
    name = "kinds-programs"
    argv = [sys.executable, agent_on_cluster.__file__, str(real_kube.kubeconfig)]
    agent = spawn([*argv, str(tmp_path / "node"), name, "simulated:2"], tmp_path / "agent.log")
    nodes = [node for node in scene.items(NODES) if node != name]

    def cordon(value: bool) -> None:
        for node in nodes:
            scene.cluster.patch(scene.path(NODES, node), {"spec": {"unschedulable": value}}).ok()

    cordon(True)
    try:
        eventually(lambda: (scene.status(NODES, name).get("allocatable") or {}).get("nvidia.com/gpu") == "2")
        yield name
    finally:
        cordon(False)
        end(agent, 30)
        scene.cluster.delete(scene.path(NODES, name))


def generation_job(rows: int, **spec: Any) -> Json:
    lines = "".join(
        json.dumps({"id": f"r{n}", "prompt": f"row {n}", "kind": "ab"[n % 2]}) + "\n" for n in range(rows)
    )
    return {"input": {"source": "inline", "format": "jsonl", "idField": "id", "inline": lines}, **spec}


@pytest.fixture
def model_agent(scene: Scene, real_node: str, real_kube: RealKube, outputs: Path) -> Iterator[None]:
    """Agent for models of the real node, as the chart's DaemonSet runs it."""
    argv = [sys.executable, "-m", "windlass.node.model_agent", f"--kubeconfig={real_kube.kubeconfig}"]
    argv += [f"--node-name={real_node}", f"--directory={outputs / 'models'}"]
    process = spawn(argv, outputs / "models.log")

    def ready() -> bool:
        return scene.get(NODES, real_node)["metadata"]["labels"].get(names.MODEL_AGENT) == "true"

    try:
        eventually(ready)
        yield
    finally:
        end(process)


@pytest.mark.usefixtures("model_agent")
def test_generation_jobs_run_to_completion(
    scene: Scene, real_node: str, real_kube: RealKube, outputs: Path, tmp_path: Path
) -> None:
    high = {"metadata": {"name": "aigc-high"}, "value": 10_000}  # the chart creates both
    scene.cluster.post(scene.path(PRIORITY_CLASSES), high).ok(201)
    medium = {"metadata": {"name": "aigc-medium"}, "value": 1_000}
    scene.cluster.post(scene.path(PRIORITY_CLASSES), medium).ok(201)
    manifest = acceptance_manifests.manifest_path(1)
    argv = ["kubectl", "--kubeconfig", str(real_kube.kubeconfig), "--namespace", scene.namespace]
    subprocess.run([*argv, "apply", "-f", str(manifest)], check=True, capture_output=True, timeout=60)
    (tmp_path / "weights").write_bytes(b"x" * 1000)
    model = {"name": "tiny", "source": (tmp_path / "weights").as_uri()}
    spec = generation_job(300, replicas=2, grouping={"by": "kind"}, model=model)
    spec["runtimeRef"] = {"name": "builtin-generate", "parameters": {"secondsPerItem": 0.02}}
    spec |= {"batching": {"mode": "Fixed", "size": 5}, "policy": {"suspend": True}}
    scene.create(AIGC_JOBS, "rows", spec)

    def preloaded() -> bool:
        return [one["status"]["state"] for one in scene.items(MODEL_CACHES).values()] == ["Ready"]

    eventually(preloaded)  # a worker that begins before would fetch the model itself
    scene.cluster.patch(scene.path(AIGC_JOBS, "rows"), {"spec": {"policy": {"suspend": False}}}).ok()

    def items(name: str) -> Json:
        return scene.status(AIGC_JOBS, name).get("items") or {}

    def some_done() -> bool:
        return items("rows").get("done", 0) >= 10

    eventually(some_done)
    scene.cluster.delete(scene.path(PODS, "rows-driver")).ok()

    def over(name: str) -> Json:
        status = scene.status(AIGC_JOBS, name)
        assert status.get("phase") in ("Succeeded", "Failed"), (status, scene.pods())
        return status

    for name in ("text-generation", "rows"):
        status = eventually(lambda name=name: over(name))
        assert status["phase"] == "Succeeded", status
        assert items(name)["done"] == items(name)["total"] > 0
        file = outputs / f"{scene.namespace}-{name}" / "outputs.jsonl"
        written = [json.loads(line)["id"] for line in file.read_text().splitlines()]
        assert len(written) == len(set(written)) == items(name)["total"]
    assert [one["name"] for one in scene.status(AIGC_JOBS, "rows")["groups"]] == ["a", "b"]
    caches = list(scene.items(MODEL_CACHES).values())
    assert [(one["spec"]["nodeName"], one["status"]["state"]) for one in caches] == [(real_node, "Ready")]
    status = scene.status(AIGC_JOBS, "rows")
    assert set(status["model"]) == {"found"}
    (ready,) = [one for one in status["conditions"] if one["type"] == "ModelReady"]
    assert (ready["status"], ready["reason"]) == ("True", "Ready")
    scene.cluster.delete(scene.path(MODEL_CACHES, caches[0]["metadata"]["name"])).ok()
    eventually(lambda: not scene.items(MODEL_CACHES))


def test_workflows_take_outputs_from_logs_of_kubelets(scene: Scene) -> None:
    space = scene.namespace
    claim = {"namespace": space, "name": "windlass-artifacts"}
    volume = {
        "accessModes": ["ReadWriteMany"],
        "capacity": {"storage": "10Gi"},
        "claimRef": claim,
        "hostPath": {"path": str(scene.kubelet.claims)},
    }
    scene.create(PERSISTENT_VOLUMES, f"artifacts-{space}", volume)
    for kind in (WORKFLOWS, AIGC_WORKFLOWS):
        name = kind.singular
        scene.cluster.post(scene.path(kind), workflow_of_parts(kind, name)).ok(201)
        done: set[str] = set()

        def ended(kind: Resource = kind, name: str = name, done: set[str] = done) -> Json:
            for pod, found in scene.pods().items():
                if (found.get("status") or {}).get("phase") != "Running" or pod in done:
                    continue
                assert found["spec"]["schedulerName"] == "windlass"
                if "-split-" in pod:  # the kubelet does not answer at once
                    scene.kubelet.unreadable.add(f"/containerLogs/{space}/{pod}/main")
                scene.kubelet.run(scene.cluster, found)
                done.add(pod)
            status = scene.status(kind, name)
            assert status.get("finishedAt"), (sorted(done), status)
            return status

        check_end(eventually(ended))
    assert not scene.kubelet.unreadable
