"""Windlass in a real cluster: installed by helm and by ``windlass install``, run with exactly the chart's rights."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import audited_rights
import console_blocks
import pytest
from clusters import Cluster, eventually
from installedkube import CRDS, SPACE, InstalledProcess, windlass
from provisioning_request_crd import install_requests
from realkube import USER_TOKEN, RealKube, serving, tools_folder
from rights_workload import RightsScene

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "chart"))
import render  # noqa: E402

Json = dict[str, Any]
pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]
HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{SPACE}/deployments"
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"


@pytest.fixture(scope="module")
def kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKube]:
    """A cluster that has nothing of Windlass."""
    with serving(tmp_path_factory.mktemp("installkube"), gangs=True) as made:
        yield made


@pytest.fixture
def api(kube: RealKube) -> Iterator[Cluster]:
    cluster = Cluster.of_real(kube)
    yield cluster
    cluster.close()


def try_helm(kube: RealKube, *arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [str(render.helm()), "--kubeconfig", str(kube.kubeconfig), *arguments]
    home = {"HOME": str(kube.folder), "PATH": "/usr/bin:/bin"}
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120, env=home)


def helm(kube: RealKube, *arguments: str) -> str:
    done = try_helm(kube, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def ours(api: Cluster) -> list[str]:
    """Names of the project's CRDs that the cluster has."""
    wanted = {path.name for path in render.crd_files()}
    found = api.get(CRDS).ok()["items"]
    names = {
        f"{o['spec']['group']}_{o['spec']['names']['plural']}.yaml": o["metadata"]["name"] for o in found
    }
    return [name for file, name in names.items() if file in wanted]


def none_terminating(api: Cluster) -> bool:
    """Whether no CRD is being deleted; raises with what the server says of those that are. It waits a minute for the
    objects of one to go, and then begins anew."""
    words = {
        o["metadata"]["name"]: [
            c["message"] for c in o["status"].get("conditions", ()) if c["type"] == "Terminating"
        ]
        for o in api.get(CRDS).ok()["items"]
        if "deletionTimestamp" in o["metadata"]
    }
    assert not words, words
    return True


def until_none_terminating(kube: RealKube, api: Cluster) -> None:
    """Now and then the server lets a CRD lie that is deleted while it renews its storage (1.36: the other CRDs with
    that error are tried again, one is not): it is restarted then, as an administrator would."""
    try:
        eventually(lambda: none_terminating(api), seconds=100)
    except AssertionError:
        kube.stop_apiserver()
        kube.start_apiserver()
        eventually(lambda: none_terminating(api), seconds=150)


def until_none_left(kube: RealKube, api: Cluster) -> None:
    until_none_terminating(kube, api)
    assert not ours(api)


@pytest.fixture(autouse=True)
def _settled(kube: RealKube, api: Cluster) -> None:
    """No test begins among CRDs that the one before it deleted: ``windlass install`` refuses those."""
    until_none_terminating(kube, api)


def test_helm_installs_upgrades_rolls_back_and_uninstalls(kube: RealKube, api: Cluster) -> None:
    if render.helm() is None:
        pytest.skip("no helm: build it with tools/kubernetes/build.sh")
    said = helm(kube, "install", "windlass", str(render.CHART), "--create-namespace", "--namespace", SPACE)
    assert "STATUS: deployed" in said
    assert len(ours(api)) == len(render.crd_files())
    second = ("install", "again", str(render.CHART), "--namespace", "default", "--dry-run=server")
    refused = try_helm(kube, *second, "--set", "priorityClasses.create=false")
    assert f"Windlass is already installed in namespace {SPACE}" in refused.stderr

    def replicas() -> int:
        return api.get(f"{DEPLOYMENTS}/windlass-scheduler").ok()["spec"]["replicas"]

    def asked_at() -> set[str]:
        found = api.get(f"{HOOKS}/windlass-bind-guard")
        return {hook["clientConfig"]["service"]["path"] for hook in found.json.get("webhooks", ())}

    assert replicas() == 2
    more = "scheduler.replicas=3,bindGuard.enabled=true,gpuSharing.enabled=true"
    upgrade = ("upgrade", "windlass", str(render.CHART), "--namespace", SPACE, "--set", more)
    helm(kube, *upgrade)
    assert replicas() == 3
    (path,) = asked_at()
    assert re.fullmatch("/bind/[a-z0-9]{40}", path)
    helm(kube, *upgrade)
    assert asked_at() == {path}  # what is there is kept
    refused = windlass(kube, "install")
    assert refused.returncode == 5
    assert "WL-INSTALL-409" in refused.stderr
    assert "WL-INSTALL-409" in windlass(kube, "uninstall").stderr
    helm(kube, "rollback", "windlass", "1", "--namespace", SPACE)
    assert replicas() == 2
    assert not asked_at()
    helm(kube, "uninstall", "windlass", "--namespace", SPACE)
    assert api.get(f"{DEPLOYMENTS}/windlass-scheduler").status == 404
    assert len(ours(api)) == len(render.crd_files())  # with the queues and jobs in them


@pytest.mark.timeout(400)
def test_the_guide_tells_the_truth(kube: RealKube, tmp_path: Path) -> None:
    """docs/guides/kubernetes.md, followed by somebody with a kubeconfig."""
    if render.helm() is None:
        pytest.skip("no helm: build it with tools/kubernetes/build.sh")
    config = json.loads(kube.kubeconfig.read_text())
    config["contexts"][0]["name"] = config["current-context"] = "gpu-cluster"
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    (tmp_path / "kubeconfig").chmod(0o600)
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{tools_folder()}:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "KUBECONFIG": str(tmp_path / "kubeconfig"),
        "NO_COLOR": "1",
    }
    shell = console_blocks.Shell(tmp_path, environment)
    (shell.where / "deploy").symlink_to(ROOT / "deploy")
    page = ROOT / "docs" / "guides" / "kubernetes.md"
    found = console_blocks.steps(page.read_text(), page.name)
    assert len(found) >= 8
    for step in found:
        fault = console_blocks.check(step, shell.run(step.command), str)
        assert fault is None, f"{page.name} {fault}"


def test_beside_volcano_nothing_is_installed_that_would_do_its_work(kube: RealKube, api: Cluster) -> None:
    if render.helm() is None:
        pytest.skip("no helm: build it with tools/kubernetes/build.sh")
    labels = {"app": "volcano-scheduler"}
    pod = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "c", "image": "vc-scheduler:v1"}]},
    }
    theirs = {
        "metadata": {"name": "volcano-scheduler"},
        "spec": {"selector": {"matchLabels": labels}, "template": pod},
    }
    api.post("/api/v1/namespaces", {"metadata": {"name": "volcano-system"}}).ok(201)
    deployments = "/apis/apps/v1/namespaces/volcano-system/deployments"
    api.post(deployments, theirs).ok(201)
    try:
        plain = windlass(kube, "install", "--dry-run")
        assert plain.returncode == 5
        assert "WL-ADOPT-409]: Volcano runs in this cluster" in plain.stderr
        with pytest.raises(AssertionError, match="Volcano runs in this cluster"):
            helm(kube, "install", "second", str(render.CHART), "--dry-run=server")
        api.patch(f"{deployments}/volcano-scheduler", {"spec": {"replicas": 0}}).ok()
        assert windlass(kube, "install", "--dry-run").returncode == 0
    finally:
        api.delete("/api/v1/namespaces/volcano-system").ok()


def test_the_bind_guard_comes_is_kept_and_goes(kube: RealKube, api: Cluster) -> None:
    hooks = f"{HOOKS}/windlass-bind-guard"
    first = windlass(kube, "install", "--bind-guard")
    assert first.returncode == 0, first.stderr
    secret = api.get(f"/api/v1/namespaces/{SPACE}/secrets/windlass-bind-guard").ok()["data"]
    bundles = {hook["clientConfig"]["caBundle"] for hook in api.get(hooks).ok()["webhooks"]}
    assert bundles == {secret["ca.crt"]}
    second = windlass(kube, "install", "--bind-guard")
    assert {line.rpartition(" ")[2] for line in second.stdout.splitlines()} == {"unchanged"}, second.stdout
    # Nobody answers: pods are bound all the same.
    api.post("/api/v1/nodes", {"metadata": {"name": "unguarded"}}).ok(201)
    pods = "/api/v1/namespaces/default/pods"
    container = {"name": "c", "image": "i"}
    api.post(pods, {"metadata": {"name": "p"}, "spec": {"containers": [container]}}).ok(201)
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "unguarded"}}
    api.post(f"{pods}/p/binding", {"apiVersion": "v1", "kind": "Binding", **binding}).ok(201)
    api.delete(f"{pods}/p")
    api.delete("/api/v1/nodes/unguarded")

    kept = windlass(kube, "install")
    assert kept.stderr == "unchanged options: bind guard (--reset sets the defaults)\n"
    assert {line.rpartition(" ")[2] for line in kept.stdout.splitlines()} == {"unchanged"}, kept.stdout
    without = windlass(kube, "install", "--no-bind-guard")
    gone = [line for line in without.stdout.splitlines() if line.endswith(" deleted")]
    assert len(gone) == 3, without.stdout
    assert gone[0].startswith("validatingwebhookconfiguration")  # nobody is asked from then on
    assert api.get(hooks).status == 404
    assert windlass(kube, "install", "--bind-guard").returncode == 0
    removed = windlass(kube, "uninstall")
    assert removed.returncode == 0, removed.stderr
    assert api.get(hooks).status == 404
    assert api.get(f"/api/v1/namespaces/{SPACE}/secrets/windlass-bind-guard").status == 404


def test_install_may_be_repeated_and_a_dry_run_writes_nothing(kube: RealKube, api: Cluster) -> None:
    for word in ours(api):
        api.delete(f"{CRDS}/{word}")
    until_none_left(kube, api)
    rehearsed = windlass(kube, "install", "--dry-run")
    assert rehearsed.returncode == 0, rehearsed.stderr
    assert all(line.endswith(" (dry run)") for line in rehearsed.stdout.splitlines())
    assert not ours(api)
    assert api.get(f"{DEPLOYMENTS}/windlass-scheduler").status == 404

    first = windlass(kube, "install")
    assert first.returncode == 0, first.stderr
    assert len(first.stdout.splitlines()) == len(rehearsed.stdout.splitlines())
    assert "deployment.apps/windlass-scheduler created" in first.stdout
    assert len(ours(api)) == len(render.crd_files())

    second = windlass(kube, "install")
    assert second.returncode == 0, second.stderr
    assert {line.rpartition(" ")[2] for line in second.stdout.splitlines()} == {"unchanged"}, second.stdout

    elsewhere = windlass(kube, "install", "-n", "default")
    assert elsewhere.returncode == 5
    assert f"Windlass is already installed in namespace {SPACE}" in elsewhere.stderr
    mistaken = windlass(kube, "uninstall", "-n", "default", "--purge", "--yes")
    assert mistaken.returncode == 5
    assert f"not installed in namespace default, but in {SPACE}" in mistaken.stderr

    other = windlass(kube, "install", "--replicas", "3", "--scheduler-name", "windlass", "--image", "r/w:2")
    changed = [line for line in other.stdout.splitlines() if not line.endswith(" unchanged")]
    assert changed == [
        "deployment.apps/windlass-scheduler configured",
        "deployment.apps/windlass-controllers configured",
    ]
    slow = windlass(kube, "install", "--wait", "1")  # there is no node: no pod ever starts
    assert slow.returncode == 7
    assert "WL-INSTALL-504" in slow.stderr


def test_what_others_made_or_changed_is_theirs(kube: RealKube, api: Cluster) -> None:
    """A namespace and a PriorityClass that were there, a limit that somebody raised: none is taken, or taken away."""
    done = windlass(kube, "uninstall", "--purge", "--yes")
    assert done.returncode == 0, done.stderr
    space, classes = f"/api/v1/namespaces/{SPACE}", "/apis/scheduling.k8s.io/v1/priorityclasses"
    api.delete(space)
    eventually(lambda: api.get(space).status == 404, seconds=250)
    until_none_left(kube, api)
    api.post("/api/v1/namespaces", {"metadata": {"name": SPACE}}).ok(201)
    api.post(classes, {"metadata": {"name": "high-priority"}, "value": 5}).ok(201)
    first = windlass(kube, "install", "--image", "r/w:2", "--replicas", "3")
    assert first.returncode == 0, first.stderr
    assert f"namespace/{SPACE} unchanged" in first.stdout
    title = "priorityclass.scheduling.k8s.io/high-priority"
    assert f"{title} has another owner, and is not changed" in first.stderr

    path = f"{DEPLOYMENTS}/windlass-scheduler"
    more = [{"name": "scheduler", "resources": {"limits": {"memory": "9Gi"}}}]
    change = {"spec": {"replicas": 4, "template": {"spec": {"containers": more}}}}
    api.patch(path, change, "application/strategic-merge-patch+json").ok()
    before = api.get(path).ok()["metadata"]["generation"]
    refused = windlass(kube, "install", "--scheduler-name", "other")
    assert refused.returncode == 5
    assert "nothing was written" in refused.stderr
    assert "resources.limits.memory" in refused.stderr
    assert "replicas" not in refused.stderr  # these stay as they are
    assert api.get(path).ok()["metadata"]["generation"] == before
    forced = windlass(kube, "install", "--scheduler-name", "other", "--force-conflicts")
    assert forced.returncode == 0, forced.stderr
    assert "instances 4 of windlass-scheduler, 3 of windlass-controllers" in forced.stderr
    spec = api.get(path).ok()["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    assert (spec["replicas"], container["image"]) == (4, "r/w:2")
    assert "--scheduler-name=other" in container["args"]
    assert container["resources"]["limits"] == {"memory": "2Gi"}

    # What its processes write for themselves goes along, also where the namespace stays.
    leases, maps = f"/apis/coordination.k8s.io/v1/namespaces/{SPACE}/leases", f"{space}/configmaps"
    api.post(leases, {"metadata": {"name": "windlass-scheduler"}, "spec": {}}).ok(201)
    api.post(maps, {"metadata": {"name": "windlass-run-times"}}).ok(201)
    assert windlass(kube, "uninstall", "--purge", "--yes").returncode == 0
    assert api.get(f"{leases}/windlass-scheduler").status == 404
    assert api.get(f"{maps}/windlass-run-times").status == 404
    assert api.get(space).ok()["metadata"].get("deletionTimestamp") is None
    assert api.get(f"{classes}/high-priority").ok()["value"] == 5
    api.delete(f"{classes}/high-priority")
    until_none_left(kube, api)


def _alice(kube: RealKube, api: Cluster) -> Path:
    """The kubeconfig of somebody who may do anything with some of the objects, and bind no role that is not there."""
    roles = "/apis/rbac.authorization.k8s.io/v1"
    what = ["namespaces", "customresourcedefinitions", "priorityclasses", "serviceaccounts", "deployments"]
    rule = {"apiGroups": ["*"], "resources": what, "verbs": ["*"]}
    binds = {"apiGroups": ["*"], "resources": ["rolebindings"], "verbs": ["get", "create", "patch", "update"]}
    reads = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}
    api.post(f"{roles}/clusterroles", {"metadata": {"name": "some"}, "rules": [rule, binds, reads]}).ok(201)
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "some"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}
    binding = {"metadata": {"name": "some"}, "roleRef": role, "subjects": [subject]}
    api.post(f"{roles}/clusterrolebindings", binding).ok(201)
    config = json.loads(kube.kubeconfig.read_text())
    config["users"][0]["user"]["token"] = USER_TOKEN
    (kube.folder / "alice.kubeconfig").write_text(json.dumps(config))
    return kube.folder / "alice.kubeconfig"


def test_a_refusal_leaves_nothing_half_done(kube: RealKube, api: Cluster) -> None:
    """Alice may make, and delete, some of the objects; and a namespace that is about to vanish takes none."""
    assert windlass(kube, "install").returncode == 0
    kept = windlass(kube, "--kubeconfig", str(_alice(kube, api)), "uninstall")
    assert kept.returncode == 4, kept.stderr
    assert "nothing was deleted" in kept.stderr
    assert api.get(f"{DEPLOYMENTS}/windlass-scheduler").status == 200
    done = windlass(kube, "uninstall", "--purge", "--yes")
    assert done.returncode == 0, done.stderr
    until_none_left(kube, api)
    refused = windlass(kube, "--kubeconfig", str(kube.folder / "alice.kubeconfig"), "install")
    assert refused.returncode == 4, refused.stderr
    assert "WL-INSTALL-403" in refused.stderr
    assert "clusterroles" in refused.stderr
    assert not ours(api)

    space = f"/api/v1/namespaces/{SPACE}"
    if api.get(space).status == 404:
        api.post("/api/v1/namespaces", {"metadata": {"name": SPACE}}).ok(201)
    held = {"metadata": {"name": "held", "finalizers": ["example.com/held"]}}
    api.post(f"{space}/configmaps", held).ok(201)
    api.delete(space)
    going = windlass(kube, "install")
    assert going.returncode == 5, going.stderr
    assert f"namespace/{SPACE} is being deleted" in going.stderr
    assert not ours(api)
    api.patch(f"{space}/configmaps/held", {"metadata": {"finalizers": None}}).ok()
    eventually(lambda: api.get(space).status == 404)


def test_what_install_applies_is_in_the_cluster_as_it_was_sent(kube: RealKube, api: Cluster) -> None:
    """No field of the objects is one that Kubernetes does not know."""
    from windlass.cli.install import objects
    from windlass.client import verbs

    options = objects.InstallOptions(namespace="default")  # one that is there
    for obj in objects.objects(options):
        metadata, resource = obj["metadata"], objects.KINDS[obj["kind"]]
        if resource is objects.CRD or obj["kind"] == "Namespace":
            continue
        request = verbs.patch(
            resource,
            metadata["name"],
            obj,
            metadata.get("namespace"),
            kind="apply",
            field_manager="test",
            field_validation="Strict",
            force=True,
            dry_run=True,
        )
        answer = api.client.request(request)
        assert answer.status in (200, 201), (obj["kind"], answer.body)
        assert not answer.headers.get("warning"), (obj["kind"], answer.headers)


def job(name: str, workers: int, gpus: int) -> Json:
    container = {"name": "main", "image": "train", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    spec = {
        "restartPolicy": "Never",
        "tolerations": [{"operator": "Exists"}],
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
    }
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "schedulerName": "windlass",
            "queue": "team",
            "minAvailable": workers,
            "ttlSecondsAfterFinished": 1,
            "plugins": {"svc": [], "env": []},
            "tasks": [{"name": "worker", "replicas": workers, "template": {"spec": spec}}],
        },
    }


class Running:
    """Two schedulers and the controllers, with the tokens of their ServiceAccounts."""

    def __init__(self, kube: RealKube, api: Cluster) -> None:
        self.schedulers: list[InstalledProcess] = []
        self.all: list[InstalledProcess] = []
        for part, number in (("controllers", 0), ("scheduler", 0), ("scheduler", 1)):
            process = InstalledProcess(kube, api, part, number)
            self.all.append(process)
            if part == "scheduler":
                self.schedulers.append(process)

    def leaders(self) -> list[InstalledProcess]:
        return [one for one in self.schedulers if one.value("windlass_scheduler_leader") == 1.0]

    def words(self) -> str:
        return "\n".join(one.text()[-2000:] for one in self.all)


@pytest.fixture
def running(kube: RealKube, api: Cluster) -> Iterator[Running]:
    done = windlass(kube, "install")
    assert done.returncode == 0, done.stderr
    kube.install_foreign_crds()
    install_requests(kube)
    made = Running(kube, api)
    yield made
    for process in made.all:
        process.stop()


def test_a_gang_runs_under_the_charts_rights(kube: RealKube, api: Cluster, running: Running) -> None:
    eventually(lambda: [one.status() for one in running.all] == [200, 200, 200])
    (leader,) = eventually(running.leaders)
    namespace = api.new_namespace("install")
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "20", "nvidia.com/gpu": "4"}
    status = {
        "allocatable": amounts,
        "capacity": amounts,
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    labels = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
    api.post("/api/v1/nodes", {"metadata": {"name": "gpu-1", "labels": labels}, "status": status}).ok(201)
    queue = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "team"}}
    api.post(QUEUES, queue).ok(201)
    jobs = f"/apis/batch.volcano.sh/v1alpha1/namespaces/{namespace}/jobs"
    pods = f"/api/v1/namespaces/{namespace}/pods"
    api.post(jobs, job("train", 4, 1)).ok(201)

    def bound() -> list[Json]:
        items = api.get(pods).ok()["items"]
        return [pod for pod in items if pod["spec"].get("nodeName") == "gpu-1"]

    try:
        eventually(lambda: len(bound()) == 4)
    except AssertionError:
        raise AssertionError(running.words()) from None
    api.post(jobs, job("late", 2, 1)).ok(201)
    told = eventually(lambda: _explained(kube, namespace, "late"))
    assert "nvidia.com/gpu" in told or "GPU" in told
    assert "late" in told

    for pod in bound():
        patch = {"status": {"phase": "Succeeded"}}
        api.patch(f"{pods}/{pod['metadata']['name']}/status", patch).ok()
    eventually(lambda: len(bound()) >= 2 and api.get(f"{jobs}/train").status == 404)  # its TTL is over

    follower = next(one for one in running.schedulers if one is not leader)
    assert leader.stop() == 0, leader.text()
    eventually(lambda: running.leaders() == [follower])

    whole, _, _ = follower.text().rpartition("\n")  # the last line may be unfinished
    said = [json.loads(line)["message"] for line in whole.splitlines()]  # the chart asks for JSON lines
    assert "waiting for the lease" in said
    requests = list(audited_rights.asked(kube.audit_log))
    assert {one.part for one in requests} == {"scheduler", "controllers"}
    assert [one for one in requests if one.code == 403] == []
    assert audited_rights.denied(requests) == []


def _explained(kube: RealKube, namespace: str, name: str) -> str:
    done = windlass(kube, "explain", name, "-n", namespace)
    return done.stdout if "WL" not in done.stderr and "GPU" in done.stdout else ""


_OLD = "servers without streaming lists (Kubernetes before 1.34) are listed"
_MEETS = "read only when what is to be created is there already, as after a fail-over"
_FORCED = "asked by the admission plugin OwnerReferencesPermissionEnforcement, which few clusters have"
_LEARNED = "learned run times are written once a minute"
_REPEATED = "an event is counted up only when it happens again within minutes"
_BESIDES = "no request of its own: Kubernetes 1.36 asks for it where an allocation is written"
_HALF = "a gang that cannot come to its minimum is taken back, and so is the pod that is too many on a node"
_NATIVE = "Kubernetes' own gangs are an alpha of 1.36 that is off in the server of the tests"
_ADOPTS = "only while KAI runs beside: tests/e2e/test_adopt.py runs with just these rights"
_SCHEDULER, _CONTROLLERS = audited_rights.PARTS
_VOLCANO = "scheduling.volcano.sh"
UNUSED = {
    **{(_SCHEDULER, "", what, "list"): _OLD for what in ("nodes", "namespaces", "pods")},
    **{(_SCHEDULER, _VOLCANO, what, "list"): _OLD for what in ("queues", "podgroups")},
    **{(part, "scheduling.k8s.io", "priorityclasses", "list"): _OLD for part in audited_rights.PARTS},
    **{
        (_CONTROLLERS, "", what, "list"): _OLD
        for what in ("nodes", "namespaces", "configmaps", "services", "persistentvolumeclaims")
    },
    **{(_CONTROLLERS, _VOLCANO, what, "list"): _OLD for what in ("queues", "podgroups")},
    **{(_CONTROLLERS, "scheduling.run.ai", "queues", verb): _ADOPTS for verb in ("list", "watch")},
    **{(_CONTROLLERS, "scheduling.run.ai", "podgroups", verb): _ADOPTS for verb in ("watch", "patch")},
    (_CONTROLLERS, "batch.volcano.sh", "jobs", "list"): _OLD,
    (_CONTROLLERS, "bus.volcano.sh", "commands", "list"): _OLD,
    **{
        (_CONTROLLERS, "", what, "get"): _MEETS
        for what in ("configmaps", "services", "persistentvolumeclaims")
    },
    **{(_CONTROLLERS, _VOLCANO, what, "get"): _MEETS for what in ("queues", "podgroups")},
    (_CONTROLLERS, "batch.volcano.sh", "jobs/finalizers", "update"): _FORCED,
    (_CONTROLLERS, "", "pods/finalizers", "update"): _FORCED,
    (_SCHEDULER, "resource.k8s.io", "resourceclaims/binding", "patch"): _BESIDES,
    (_SCHEDULER, "", "configmaps", "create"): _LEARNED,
    (_SCHEDULER, "", "configmaps", "patch"): _LEARNED,
    **{(part, "", "events", "patch"): _REPEATED for part in audited_rights.PARTS},
    (_SCHEDULER, "", "pods", "delete"): _HALF,
    (_SCHEDULER, "scheduling.k8s.io", "podgroups", "watch"): _NATIVE,
}
"""What the chart grants and the tests of this file need not use, and why it is granted."""
OF_JOB_KINDS = frozenset(
    {"kubeflow.org", "trainer.kubeflow.org", "jobset.x-k8s.io", "leaderworkerset.x-k8s.io", "ray.io", "batch"}
    | {
        "flow.volcano.sh",
        "argoproj.io",
        "sparkoperator.k8s.io",
        "apiextensions.k8s.io",
        "scheduling.x-k8s.io",
        "kurator.dev",
        "grove.io",
        "scheduler.grove.io",
        "serving.knative.dev",
        "rbac.authorization.k8s.io",
        "authentication.k8s.io",
    }
)
"""API groups of job kinds and of what their pods may do, which ``test_job_kinds_on_a_cluster.py``,
``test_every_job_kind_on_a_cluster.py`` and ``test_owner_gangs_on_a_cluster.py`` use."""
OF_JOB_OBJECTS = frozenset(
    {"secrets", "deployments", "replicasets", "statefulsets", "cronjobs", "cronjobs/status"}
    | {"serviceaccounts", "controllerrevisions", "pods/exec", "pods/log", "pods/resize"}
)
"""Kinds that jobs create or that own their pods."""


def of_job_kinds(right: audited_rights.Right) -> bool:
    part, group, resource, verb = right
    if part != _CONTROLLERS:
        return False
    jobs_of_volcano = (group, resource) == ("batch.volcano.sh", "jobs") and verb in (
        "get",
        "create",
        "patch",
        "delete",
    )
    others = resource in OF_JOB_OBJECTS or resource == "cronjobs/finalizers"
    others |= (resource, verb) in {("configmaps", "update"), ("services", "patch")}
    return group in OF_JOB_KINDS or others or jobs_of_volcano


@pytest.mark.timeout(400)
def test_no_right_is_granted_that_nothing_uses(kube: RealKube, api: Cluster, running: Running) -> None:
    eventually(lambda: [one.status() for one in running.all] == [200, 200, 200])
    scene = RightsScene(api)
    scene.world()
    for play in (
        scene.spelling,
        scene.eviction,
        scene.growth,
        scene.volumes,
        scene.devices,
        scene.kai,
        scene.coscheduling,
        scene.native,
        scene.nodes,
        scene.alone,
    ):
        try:
            play()
        except AssertionError as error:
            raise AssertionError(f"{play.__name__}: {error}\n{running.words()}") from None

    def all_are_used() -> list[audited_rights.Asked]:
        """The server writes its log after it has answered."""
        found = list(audited_rights.asked(kube.audit_log))
        unused = {rule.right for rule in audited_rights.granted()} - {one.right for one in found}
        assert sorted(right for right in unused - UNUSED.keys() if not of_job_kinds(right)) == []
        return found

    requests = eventually(all_are_used)
    assert [one for one in requests if one.code == 403] == []
    assert audited_rights.denied(requests) == []
    assert sorted(UNUSED.keys() - {rule.right for rule in audited_rights.granted()}) == []


def test_uninstall_leaves_the_work_and_purge_nothing(kube: RealKube, api: Cluster) -> None:
    assert windlass(kube, "install").returncode == 0
    rehearsed = windlass(kube, "uninstall", "--dry-run")
    assert "deployment.apps/windlass-scheduler would be deleted" in rehearsed.stdout
    assert api.get(f"{DEPLOYMENTS}/windlass-scheduler").status == 200
    done = windlass(kube, "uninstall")
    assert done.returncode == 0, done.stderr
    assert api.get(f"{DEPLOYMENTS}/windlass-scheduler").status == 404
    assert api.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/windlass-scheduler").status == 404
    assert len(ours(api)) == len(render.crd_files())
    assert windlass(kube, "uninstall").returncode == 0  # nothing is left to do
    purged = windlass(kube, "uninstall", "--purge", "--yes")
    assert purged.returncode == 0, purged.stderr
    until_none_left(kube, api)
