"""Parts of cards and claims for devices on a whole box: the users' manifests 03 and 18, applied by either tool, planned
and handed out. The box's cards are simulated: what a process is told is real, the card behind it is not."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Iterator
from typing import Any

import acceptance_manifests
import pytest
import yaml
from single_node import Box

from windlass.api.resources import PODS, RESOURCE_CLAIMS
from windlass.client import verbs

pytestmark = pytest.mark.kubectl
TOOLS = ("windlass", "kubectl")
PRINT = "import os; print('cards', os.environ.get('CUDA_VISIBLE_DEVICES'))"


@pytest.fixture(scope="module")
def box() -> Iterator[Box]:
    acceptance_manifests.folder()
    with Box("--gpus", "simulated:2") as one:
        yield one


@pytest.fixture(autouse=True)
def clean(box: Box) -> Iterator[None]:
    nodes = {item["metadata"]["name"] for item in box.items("nodes")}
    yield
    with box.client() as client:
        client.call(verbs.delete_collection(PODS, "default"))
        box.wait_for("no pods are left", lambda: not box.items("pods"))
        client.call(verbs.delete_collection(RESOURCE_CLAIMS, "default"))
    for item in box.items("nodes"):
        if item["metadata"]["name"] not in nodes:
            box.windlass("delete", "nodes", item["metadata"]["name"])


def apply(box: Box, tool: str, *documents: dict[str, Any]) -> list[str]:
    if tool == "kubectl" and not shutil.which("kubectl"):
        pytest.skip("no kubectl on this machine")
    text = yaml.safe_dump_all(documents)
    done = box.run([tool, "apply", "-f", "-"], stdin=text)
    lines = [line.strip() for line in done.stderr.splitlines()]
    return [line.removeprefix("Warning: ").removeprefix("warning: ") for line in lines if "arning: " in line]


def shared(name: str) -> dict[str, Any]:
    """The pod of manifest 03 with a command and a name of its own."""
    (pod,) = acceptance_manifests.documents(3)
    pod = copy.deepcopy(pod)
    pod["metadata"]["name"] = name
    pod["spec"]["containers"][0]["command"] = ["python3", "-c", f"{PRINT}; import time; time.sleep(600)"]
    return pod


def fragment(position: int) -> dict[str, Any]:
    """The pod of manifest 02 with the resources of a document of manifest 18."""
    (pod,) = acceptance_manifests.documents(2)
    pod = copy.deepcopy(pod)
    pod["spec"]["containers"][0]["resources"] = acceptance_manifests.documents(18)[position]["resources"]
    pod["spec"]["containers"][0]["command"] = ["python3", "-c", f"{PRINT}; import time; time.sleep(600)"]
    return pod


def annotations(box: Box, name: str) -> dict[str, str]:
    (pod,) = [item for item in box.items("pods") if item["metadata"]["name"] == name]
    return pod["metadata"].get("annotations") or {}


def running(box: Box) -> set[str]:
    return {
        item["metadata"]["name"] for item in box.items("pods") if item["status"].get("phase") == "Running"
    }


def printed(box: Box, name: str) -> str:
    return box.windlass("logs", name, check=False).stdout


@pytest.mark.parametrize("tool", TOOLS)
def test_03_is_accepted_with_its_warning_and_shares_a_card(box: Box, tool: str) -> None:
    warnings = apply(box, tool, *acceptance_manifests.documents(3))
    assert acceptance_manifests.all_there(warnings, acceptance_manifests.expected_warnings(3)), warnings
    box.wait_for("it has a card", lambda: "windlass.dev/devices" in annotations(box, "gpu-shared-pod"))
    assert annotations(box, "gpu-shared-pod")["windlass.dev/device-shares"] in ("0:0/10240", "1:0/10240")


def test_03_two_do_not_share_a_card_of_16_gib(box: Box) -> None:
    for name in ("a", "b", "c"):
        apply(box, "windlass", shared(name))
    box.wait_for("two run", lambda: len(running(box)) == 2)
    first, second = sorted(running(box))
    box.wait_for(
        "both have printed", lambda: "cards" in printed(box, first) and "cards" in printed(box, second)
    )
    assert {printed(box, first).strip(), printed(box, second).strip()} == {"cards 0", "cards 1"}
    (waiting,) = {"a", "b", "c"} - running(box)
    box.wait_for(
        "the third is told why", lambda: "10240 MiB" in box.windlass("explain", waiting, check=False).stdout
    )


def test_03_two_fit_on_one_card_of_24_gib_and_three_do_not(box: Box) -> None:
    box.windlass(
        "node", "add-simulated", "--count", "1", "--devices", "1xA30", "--prefix", "y3", "--label", "y3=yes"
    )
    pods = [shared(name) for name in ("a", "b", "c")]
    for pod in pods:
        pod["spec"]["nodeSelector"] = {"y3": "yes"}
    apply(box, "windlass", *pods)
    box.wait_for("two run", lambda: len(running(box)) == 2)
    parts = [annotations(box, name)["windlass.dev/device-shares"] for name in running(box)]
    assert parts == ["0:0/10240"] * 2


def test_03_in_a_plan(box: Box) -> None:
    (pod,) = acceptance_manifests.documents(3)
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n", "labels": {"nvidia.com/gpu.memory": "16384"}},
        "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "10", "nvidia.com/gpu": "1"}},
    }
    done = box.windlass("plan", "-f", "-", "-o", "json", stdin=yaml.safe_dump_all([pod, node]))
    (bind,) = json.loads(done.stdout)["binds"]
    assert bind["devices"] == [{"index": 0, "share": 0.625}]


@pytest.mark.parametrize("tool", TOOLS)
def test_18_as_an_extended_resource_and_as_a_claim(box: Box, tool: str) -> None:
    assert apply(box, tool, fragment(0)) == []
    name = fragment(0)["metadata"]["name"]
    box.wait_for("it runs", lambda: name in running(box))
    box.wait_for("it has printed", lambda: "cards" in printed(box, name))
    assert printed(box, name).strip() == "cards 0,1"
    box.windlass("delete", "pods", name)
    box.wait_for("it is gone", lambda: not box.items("pods"))
    warnings = apply(box, tool, fragment(1))
    assert acceptance_manifests.all_there(warnings, acceptance_manifests.expected_warnings(18)), warnings
    box.wait_for("it runs", lambda: name in running(box))
    (claim,) = box.items("resourceclaims")
    assert claim["metadata"]["ownerReferences"][0]["name"] == name
    (request,) = claim["spec"]["devices"]["requests"]
    assert (request["exactly"]["deviceClassName"], request["exactly"]["count"]) == ("gpu.nvidia.com", 1)
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    assert result["driver"] == "gpu.nvidia.com"
    assert result["device"] == f"gpu-{annotations(box, name)['windlass.dev/devices']}"
    (consumer,) = claim["status"]["reservedFor"]
    assert consumer["name"] == name
    box.wait_for("it has printed", lambda: "cards" in printed(box, name))
    assert printed(box, name).strip() == f"cards {annotations(box, name)['windlass.dev/devices']}"
    assert acceptance_manifests.all_there(
        apply(box, tool, fragment(1)), acceptance_manifests.expected_warnings(18)
    )
    assert "allocated,reserved" in box.windlass("get", "resourceclaims").stdout
    box.windlass("delete", "pods", name)
    box.wait_for("its claim goes with it", lambda: not box.items("resourceclaims"))


def test_two_pods_use_the_card_of_one_claim(box: Box) -> None:
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "ours"},
        "spec": {
            "devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}
        },
    }
    pods = []
    for name in ("a", "b"):
        pod = shared(name)
        pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "ours"}]
        pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
        pods.append(pod)
    apply(box, "windlass", claim, *pods)
    box.wait_for("both run", lambda: running(box) == {"a", "b"})
    box.wait_for("both have printed", lambda: all("cards" in printed(box, name) for name in "ab"))
    assert printed(box, "a") == printed(box, "b")
    (found,) = box.items("resourceclaims")
    assert {consumer["name"] for consumer in found["status"]["reservedFor"]} == {"a", "b"}
    box.windlass("delete", "pods", "a")
    box.wait_for(
        "it is off the claim",
        lambda: [c["name"] for c in box.items("resourceclaims")[0]["status"]["reservedFor"]] == ["b"],
    )
    box.windlass("delete", "pods", "b")
    box.wait_for("the claim is free", lambda: not box.items("resourceclaims")[0]["status"].get("allocation"))


def test_18_strict_refuses_the_aliases(box: Box) -> None:
    done = box.windlass("apply", "--strict", "-f", "-", stdin=yaml.safe_dump(fragment(1)), check=False)
    assert done.returncode != 0
    assert "deviceClassName" in done.stderr
    assert box.items("pods") == []


def test_18_in_a_plan(box: Box) -> None:
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n"},
        "status": {"allocatable": {"cpu": "64", "memory": "256Gi", "pods": "10", "nvidia.com/gpu": "2"}},
    }
    for position, devices in ((0, [0, 1]), (1, [0])):
        text = yaml.safe_dump_all([fragment(position), node])
        done = box.windlass("plan", "-f", "-", "-o", "json", stdin=text)
        (bind,) = json.loads(done.stdout)["binds"]
        assert [device["index"] for device in bind["devices"]] == devices
