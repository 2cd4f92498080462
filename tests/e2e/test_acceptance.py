"""The users' manifests do on one box what was promised: outcome, warnings, gang, and each note.

Every manifest is applied by ``windlass apply`` and by the stock kubectl.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from typing import Any

import acceptance_manifests
import pytest
import yaml
from single_node import Box

from windlass.api.resources import POD_GROUPS, PODS, RESOURCE_QUOTAS, VOLCANO_JOBS
from windlass.client import verbs

pytestmark = pytest.mark.kubectl
WHOLE = (2, 4, 5, 6, 9, 13, 14, 15, 16, 20, 26, 29, 30, 31, 32, 33)
NEEDS = {5: (4,), 6: (4,), 30: (29,)}
TOOLS = ("windlass", "kubectl")


@pytest.fixture(scope="module")
def box() -> Iterator[Box]:
    acceptance_manifests.folder()
    with Box("--gpus", "none") as one:
        one.windlass(
            "apply", "-f", "-", stdin="{apiVersion: v1, kind: Namespace, metadata: {name: ai-team-a}}"
        )
        yield one


@pytest.fixture(autouse=True)
def clean(box: Box) -> Iterator[None]:
    """Each test leaves the box as it found it."""
    before = {kind: _names(box, kind) for kind in ("nodes", "queues", "priorityclasses")}
    yield
    with box.client() as client:
        for resource in (VOLCANO_JOBS, POD_GROUPS, PODS, RESOURCE_QUOTAS):
            client.call(verbs.delete_collection(resource, "default"))
        client.call(verbs.delete_collection(RESOURCE_QUOTAS, "ai-team-a"))
    box.wait_for("no pods are left", lambda: not box.items("pods"))
    box.wait_for("nor groups that they were given", lambda: not box.items("podgroups"))
    for kind, names in before.items():
        # A queue may count its pods for a moment longer than they are there.
        box.wait_for(f"no {kind} are left", lambda kind=kind, names=names: _removed(box, kind, names))


def _removed(box: Box, kind: str, kept: set[str]) -> bool:
    extra = _names(box, kind) - kept
    return not extra or box.windlass("delete", kind, *extra, check=False).returncode == 0


def _names(box: Box, kind: str) -> set[str]:
    return {item["metadata"]["name"] for item in box.items(kind)}


def add_nodes(box: Box, number: int) -> None:
    """The nodes of ``expect.json``, simulated."""
    for index, shape in enumerate(acceptance_manifests.expectation(number)["nodes"]):
        count, gpu_count = str(shape["count"]), str(shape.get("gpus", 0))
        cpu, memory = str(shape.get("cpu", 64)), shape.get("memory", "256Gi")
        command = [
            "node",
            "add-simulated",
            "--count",
            count,
            "--gpus",
            gpu_count,
            "--prefix",
            f"y{number}-{index}",
        ]
        command += ["--cpu", cpu, "--memory", memory]
        for key, value in shape.get("labels", {}).items():
            command += ["--label", f"{key}={value}"]
        for taint in shape.get("taints", ()):
            command += ["--taint", taint]
        for name, amount in shape.get("extended", {}).items():
            command += ["--resource", f"{name}={amount}"]
        box.windlass(*command)


def apply(box: Box, tool: str, text: str) -> list[str]:
    """Apply ``text`` with either tool; the warnings that it printed."""
    if tool == "kubectl" and not shutil.which("kubectl"):
        pytest.skip("no kubectl on this machine")
    done = box.run([tool if tool == "kubectl" else "windlass", "apply", "-f", "-"], stdin=text)
    lines = [line.strip() for line in done.stderr.splitlines()]
    return [line.removeprefix("Warning: ").removeprefix("warning: ") for line in lines if "arning: " in line]


def prepare(box: Box, number: int) -> None:
    for needed in NEEDS.get(number, ()):
        box.windlass("apply", "-f", str(acceptance_manifests.manifest_path(needed)))


def running_pods(box: Box) -> list[dict[str, Any]]:
    return [pod for pod in box.items("pods") if pod["spec"].get("nodeName")]


def gpus(pod: dict[str, Any]) -> int:
    containers = pod["spec"]["containers"]
    return sum(int(c.get("resources", {}).get("limits", {}).get("nvidia.com/gpu", 0)) for c in containers)


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("number", WHOLE)
def test_is_accepted_with_exactly_the_promised_warnings(box: Box, number: int, tool: str):
    prepare(box, number)
    warnings = apply(box, tool, acceptance_manifests.manifest_path(number).read_text())
    expected = acceptance_manifests.expected_warnings(number)
    assert acceptance_manifests.all_there(warnings, expected), (warnings, expected)


@pytest.mark.parametrize("number", WHOLE)
def test_strict_refuses_aliases_and_defaults_and_nothing_else(box: Box, number: int):
    prepare(box, number)
    done = box.windlass(
        "apply", "--strict", "-f", str(acceptance_manifests.manifest_path(number)), check=False
    )
    refused = any(
        t.startswith(("alias:", "default:")) for t in acceptance_manifests.expected_warnings(number)
    )
    assert (done.returncode != 0) == refused, done.stderr
    if refused:
        assert "error[WL-" in done.stderr
        assert "try:" in done.stderr
        for document in acceptance_manifests.documents(number):
            kind = document["kind"]
            plural = {"Job": "vcjob", "Queue": "queues", "Pod": "pods"}[kind]
            assert document["metadata"]["name"] not in _names(box, plural)


@pytest.mark.parametrize("number", [n for n in WHOLE if n in (2, 6, 9, 20, 26, 30)])
def test_the_gang_starts_whole_on_the_stated_nodes(box: Box, number: int):
    prepare(box, number)
    entry = acceptance_manifests.expectation(number)
    if number == 30:  # one cluster that holds its nine GPUs
        box.windlass(
            "node", "add-simulated", "--count", "1", "--gpus", "9", "--cpu", "80", "--memory", "300Gi"
        )
    else:
        add_nodes(box, number)
    box.windlass("apply", "-f", str(acceptance_manifests.manifest_path(number)))
    groups = entry["gang"]["podgroups"]
    pods, whole = sum(g["pods"] for g in groups), sum(g["gpus"] for g in groups)
    box.wait_for(f"{pods} pods run", lambda: len(running_pods(box)) == pods)
    assert sum(map(gpus, running_pods(box))) == whole
    assert len(box.items("pods")) == pods
    if number in (6, 30):
        (group,) = box.items("podgroups")
        assert group["spec"]["minMember"] == groups[0]["minMember"]
        if number == 6:
            assert group["spec"]["minTaskMember"] == {"master": 1, "worker": 4}


@pytest.mark.parametrize("number", [6, 30])
def test_one_gpu_too_few_and_nothing_of_the_gang_starts(box: Box, number: int):
    prepare(box, number)
    shapes = [(3, 4), (1, 1)] if number == 6 else [(1, 8)]
    for index, (count, each) in enumerate(shapes):
        box.windlass("node", "add-simulated", "--count", str(count), "--gpus", str(each), "--cpu", "80",
                     "--memory", "300Gi", "--prefix", f"few{index}")  # fmt: skip
    box.windlass("apply", "-f", str(acceptance_manifests.manifest_path(number)))
    name = acceptance_manifests.documents(number)[0]["metadata"]["name"]
    box.wait_for("a reason", lambda: "nvidia.com/gpu" in _explained(box, name))
    assert running_pods(box) == []


def _told_of(box: Box, name: str, word: str) -> str:
    text = _explained(box, name)
    return text if word in text else ""


def _explained(box: Box, name: str) -> str:
    done = box.windlass("explain", name, "-o", "json", check=False)
    return done.stdout if done.returncode == 0 and '"code"' in done.stdout else ""


def test_02_stays_restart_always_and_needs_no_group_object(box: Box):
    add_nodes(box, 2)
    box.windlass("apply", "-f", str(acceptance_manifests.manifest_path(2)))
    (pod,) = box.items("pods")
    assert pod["spec"]["restartPolicy"] == "Always"
    box.wait_for("it runs", lambda: running_pods(box))
    assert box.items("podgroups") == []


def test_04_guarantee_is_readable_where_volcano_has_it(box: Box):
    box.windlass("apply", "-f", str(acceptance_manifests.manifest_path(4)))
    queue = box.get("queue/default-queue")
    assert queue["spec"]["guarantee"]["resource"] == {"cpu": "20", "memory": "100G", "nvidia.com/gpu": "10"}
    assert queue["spec"]["deserved"] == queue["spec"]["guarantee"]["resource"]
    assert "guaranteed" not in queue["spec"]
    box.wait_for("it opens", lambda: box.get("queue/default-queue").get("status", {}).get("state") == "Open")


def test_05_waits_for_eight_pods_with_the_stated_roles(box: Box):
    prepare(box, 5)
    add_nodes(box, 2)
    box.windlass("apply", "-f", str(acceptance_manifests.manifest_path(5)))

    def pod(role: str, index: int) -> str:
        return yaml.safe_dump({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": f"{role}-{index}", "annotations": {
                "scheduling.k8s.io/group-name": "training-job-group", "volcano.sh/task-spec": role}},
            "spec": {"schedulerName": "volcano", "containers": [
                {"name": "c", "image": "i", "command": ["true"], "resources": {"requests": {"cpu": "1"}}}]},
        })  # fmt: skip

    members = [pod("master", 0), *(pod("worker", i) for i in range(6))]
    box.windlass("apply", "-f", "-", stdin="---\n".join(members))
    text = box.wait_for("a reason", lambda: _explained(box, "training-job-group"))
    assert json.loads(text)["explanation"]["code"] == "WaitingForMembers"
    assert running_pods(box) == []
    box.windlass("apply", "-f", "-", stdin=pod("worker", 6))
    box.wait_for("eight run", lambda: len(running_pods(box)) == 8)


def test_09_is_pending_for_want_of_the_rdma_device(box: Box):
    box.windlass("node", "add-simulated", "--count", "1", "--gpus", "8")
    box.windlass("apply", "-f", str(acceptance_manifests.manifest_path(9)))
    box.wait_for("a reason", lambda: "rdma/roce_v2" in _explained(box, "rdma-pod"))

    def described() -> str:
        return box.kubectl("describe", "pod", "rdma-pod").stdout

    box.wait_for("its pod says so, too", lambda: "Insufficient rdma/roce_v2" in described())
    assert "rdma-network" in described()


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("product", ["NVIDIA-H100-80GB", "NVIDIA-H100-80GB-HBM3"])
def test_10_two_copies_land_on_two_hosts(box: Box, tool: str, product: str):
    labels = ["--label", f"nvidia.com/gpu.product={product}", "--label", "topology.kubernetes.io/zone=zone-a"]
    box.windlass("node", "add-simulated", "--count", "2", "--gpus", "8", "--prefix", "h100", *labels)
    pod = acceptance_manifests.merged(10)
    pod["metadata"]["labels"] = {"app": "training-job"}
    warnings: list[str] = []
    for name in ("one", "two"):
        pod["metadata"]["name"] = name
        warnings = apply(box, tool, yaml.safe_dump(pod))
    assert acceptance_manifests.all_there(warnings, acceptance_manifests.expected_warnings(10)), warnings
    box.wait_for("both run", lambda: len(running_pods(box)) == 2)
    assert len({pod["spec"]["nodeName"] for pod in running_pods(box)}) == 2


def test_20_tiers_are_found_by_the_product_where_nobody_has_labelled_a_node(box: Box):
    for count, card, prefix in ((8, "H100-80GB", "big"), (4, "A40", "middle"), (1, "T4", "small")):
        box.windlass("node", "add-simulated", "--devices", f"{count}x{card}", "--prefix", prefix)
    apply(box, "windlass", acceptance_manifests.manifest_path(20).read_text())
    box.wait_for("all three run", lambda: len(running_pods(box)) == 3)
    assert {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in running_pods(box)} == {
        "llm-training": "big-0",
        "finetuning": "middle-0",
        "inference": "small-0",
    }


@pytest.fixture
def volcano_system(box: Box) -> Iterator[None]:
    """The namespace of the scheduler's ConfigMap, and the default policy again afterwards."""
    box.windlass(
        "apply", "-f", "-", stdin="{apiVersion: v1, kind: Namespace, metadata: {name: volcano-system}}"
    )
    yield
    box.windlass("delete", "configmap", "volcano-scheduler-config", "-n", "volcano-system", check=False)


def _taken_over(box: Box, words: str = "") -> int:
    """How often the scheduler has said that it took over a configuration, of which it told such words."""
    events = box.items("events", namespace="volcano-system")
    told = [e for e in events if e["reason"] == "ConfigurationTakenOver" and words in e["message"]]
    return sum(event.get("count") or 1 for event in told)


def configure(box: Box, number: int, words: str = "", tool: str = "windlass") -> list[str]:
    """Apply the configuration of a manifest and wait until it is in force; the warnings."""
    before = _taken_over(box, words)
    warnings = apply(box, tool, acceptance_manifests.manifest_path(number).read_text())
    box.wait_for(f"{number} is taken over", lambda: _taken_over(box, words) > before)
    return warnings


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("number", [7, 21])
def test_policies_are_accepted_with_exactly_the_promised_warnings(
    box: Box, volcano_system: None, number: int, tool: str
):
    warnings = configure(box, number, tool=tool)
    assert acceptance_manifests.all_there(warnings, acceptance_manifests.expected_warnings(number)), warnings


def test_d3_y22_flags_are_engine_options_and_the_policy_of_21_stays(box: Box, volcano_system: None):
    configure(box, 7)
    configure(box, 21)
    apply(box, "windlass", acceptance_manifests.manifest_path(22).read_text())
    try:
        found = json.loads(box.windlass("plugin", "ls", "-o", "json").stdout)
    finally:
        box.windlass("delete", "configmap", "volcano-scheduler-config", "-n", "default")
    assert {option["name"]: option["value"] for option in found["engineOptions"]} == {
        "enable-queue-schedule": "true",
        "cache-pod-group-interval": "30s",
        "scheduler-worker-threads": "16",
        "bind-worker-threads": "8",
        "min-resync-interval": "12h",
    }
    assert found["policy"].startswith("actions enqueue, allocate, backfill | predicates; nodeorder; binpack")


def test_21_replaces_07_and_its_weights_are_seen(box: Box, volcano_system: None):
    weights = "gpu-aware (gpuMemoryWeight 1.0, gpuComputeWeight 0.8, interGPUCommsWeight 0.5)"
    configure(box, 7)
    configure(box, 21, weights)
    box.windlass("node", "add-simulated", "--devices", "4xA40", "--prefix", "four")
    box.windlass("node", "add-simulated", "--devices", "1xA40", "--prefix", "one")
    pod = acceptance_manifests.documents(2)[0]
    pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = 1
    pod["spec"]["schedulerName"] = "volcano"
    box.windlass("apply", "-f", "-", stdin=yaml.safe_dump(pod))
    box.wait_for("it runs", lambda: running_pods(box))
    assert running_pods(box)[0]["spec"]["nodeName"] == "one-0"
    name = pod["metadata"]["name"]
    box.wait_for("its scores", lambda: weights in box.windlass("explain", name, "--scores").stdout)
    shown = box.windlass("explain", name, "--scores").stdout
    for part in ("gpu-aware.gpuMemory ×1", "gpu-aware.gpuCompute ×0.8", "gpu-aware.interGPUComms ×0.5"):
        assert part in shown
    record = json.loads(box.windlass("explain", name, "--scores", "-o", "json").stdout)
    (table,) = record["scores"]
    assert table["nodes"][0]["node"] == "one-0"


@pytest.mark.parametrize("tool", TOOLS)
def test_13_all_entries_are_kept_and_six_are_counted(box: Box, tool: str):
    apply(box, tool, acceptance_manifests.manifest_path(13).read_text())
    quota = box.wait_for("usage is counted", lambda: _used(box, "gpu-quota", "ai-team-a"))
    assert len(quota["spec"]["hard"]) == 7
    assert set(quota["status"]["used"]) == set(quota["spec"]["hard"]) - {"limits.nvidia.com/gpu"}


def _used(box: Box, name: str, namespace: str) -> dict[str, Any] | None:
    quota = box.get("resourcequota", name, namespace=namespace)
    return quota if quota.get("status", {}).get("used") else None


def test_16_is_the_default_of_later_pods_and_the_only_one(box: Box):
    box.windlass("apply", "-f", str(acceptance_manifests.manifest_path(16)))
    box.windlass("apply", "-f", str(acceptance_manifests.manifest_path(2)))
    (pod,) = box.items("pods")
    assert (pod["spec"]["priority"], pod["spec"]["priorityClassName"]) == (100, "low-priority-training")
    (second,) = acceptance_manifests.documents(16)
    second["metadata"]["name"] = "another-default"
    done = box.windlass("apply", "-f", "-", stdin=yaml.safe_dump(second), check=False)
    assert done.returncode != 0
    assert "globalDefault" in done.stderr or "default" in done.stderr


def test_17_the_taint_is_no_label_and_explain_says_so(box: Box):
    taints = ["gpu-node=true:NoSchedule", "gpu-type=A100:NoSchedule"]
    box.windlass("node", "add-simulated", "--count", "1", "--gpus", "4", "--prefix", "gpu-node",
                 "--taint", taints[0], "--taint", taints[1])  # fmt: skip
    assert apply(box, "windlass", yaml.safe_dump(acceptance_manifests.merged(17))) == []
    text = box.wait_for("a reason", lambda: _told_of(box, "gpu-pod", "gpu-type"))
    assert "label" in text
    (node,) = [n for n in _names(box, "nodes") if n.startswith("gpu-node")]
    box.kubectl("label", "node", node, "gpu-type=A100")
    box.wait_for("it runs", lambda: running_pods(box))


def test_26_has_an_automatic_group_of_one(box: Box):
    add_nodes(box, 26)
    box.windlass("apply", "-f", str(acceptance_manifests.manifest_path(26)))
    box.wait_for("it runs", lambda: running_pods(box))
    (group,) = box.items("podgroups")
    assert group["spec"]["minMember"] == 1
    assert group["metadata"]["name"].startswith("podgroup-")


def test_30_is_found_by_its_short_name(box: Box):
    prepare(box, 30)
    box.windlass("apply", "-f", str(acceptance_manifests.manifest_path(30)))
    box.wait_for("it has a status", lambda: box.job_phase("pytorch-distributed-gang"))
    shown = box.kubectl("get", "vjob", "pytorch-distributed-gang", "-o", "yaml").stdout
    assert "status" in shown
    assert yaml.safe_load(shown)["status"]["state"]["phase"] == "Pending"
    box.windlass("node", "add-simulated", "--count", "1", "--gpus", "9", "--cpu", "80", "--memory", "300Gi")
    box.wait_for("it runs", lambda: box.job_phase("pytorch-distributed-gang") == "Running")


def test_33_caps_the_class_only(box: Box):
    box.windlass("apply", "-f", str(acceptance_manifests.manifest_path(33)))
    box.windlass("apply", "-f", str(acceptance_manifests.manifest_path(32)))
    pod = acceptance_manifests.documents(2)[0]
    pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = 65
    box.windlass("apply", "-f", "-", stdin=yaml.safe_dump(pod))  # another class: not counted
    pod["metadata"]["name"] = "slurm-pod"
    pod["spec"]["priorityClassName"] = "slurm-high-priority"
    done = box.windlass("apply", "-f", "-", stdin=yaml.safe_dump(pod), check=False)
    assert done.returncode != 0
    assert "exceeded quota: gpu-quota" in done.stderr


@pytest.mark.parametrize("tool", TOOLS)
def test_21_the_scores_of_a_configuration_are_taken_over_and_seen(box: Box, tool: str):
    box.windlass(
        "apply", "-f", "-", stdin="{apiVersion: v1, kind: Namespace, metadata: {name: volcano-system}}"
    )
    try:
        warnings = configure(box, 21, "gpu-aware", tool)
        assert acceptance_manifests.all_there(warnings, acceptance_manifests.expected_warnings(21)), warnings
        box.windlass("node", "add-simulated", "--count", "2", "--devices", "4xH100-80GB", "--prefix", "y21")
        pod = acceptance_manifests.documents(2)[0]
        box.windlass("apply", "-f", "-", stdin=yaml.safe_dump(pod))
        name = pod["metadata"]["name"]

        def told() -> str:
            text = box.windlass("explain", name, "--scores").stdout
            return text if "gpu-aware" in text else ""

        text = box.wait_for("the scores of the file", told)
        for part in ("gpuMemory ×1 ", "gpuCompute ×0.8", "interGPUComms ×0.5"):
            assert part in text, text
        assert "actions enqueue, allocate, backfill" in text
    finally:
        box.windlass("delete", "configmap", "volcano-scheduler-config", "-n", "volcano-system", check=False)
