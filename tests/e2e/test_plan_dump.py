"""A dump by kubectl of a cluster that runs Volcano and KAI Scheduler, and knows nothing of Windlass, piped into
``windlass plan``.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubectl
import pytest
import yaml
from clusters import Cluster
from kaiobjects import kai_group, kai_pod, kai_queue
from kubeobjects import group, node, pod, queue
from realkube import CRDS, RealKube, serving

from windlass.api.devices.request import GPU

Json = dict[str, Any]
pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]
KINDS = (
    "nodes,pods,podgroups.scheduling.volcano.sh,queues.scheduling.volcano.sh,"
    "queues.scheduling.run.ai,podgroups.scheduling.run.ai"
)
PATHS = {
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/pods",
    "PodGroup scheduling.volcano.sh/v1beta1": "/apis/scheduling.volcano.sh/v1beta1/podgroups",
    "Queue scheduling.volcano.sh/v1beta1": "/apis/scheduling.volcano.sh/v1beta1/queues",
    "Queue scheduling.run.ai/v2": "/apis/scheduling.run.ai/v2/queues",
    "PodGroup scheduling.run.ai/v2alpha2": "/apis/scheduling.run.ai/v2alpha2/podgroups",
}


@pytest.fixture(scope="module")
def kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKube]:
    with serving(tmp_path_factory.mktemp("plankube"), controllers=False, audit=False) as made:
        made.install_foreign_crds()
        volcano = made.folder / "volcano"
        volcano.mkdir()
        for name in ("podgroups", "queues"):
            file = CRDS / f"scheduling.volcano.sh_{name}.yaml"
            (volcano / file.name).write_text(file.read_text())
        made.install_crds(volcano)
        yield made


def fresh(obj: Json) -> Json:
    """Without what the server itself writes."""
    metadata = {
        k: v for k, v in obj["metadata"].items() if k in ("name", "namespace", "labels", "annotations")
    }
    spec = {key: value for key, value in obj["spec"].items() if value is not None}
    for container in spec.get("containers", ()):
        container["resources"]["limits"] = container["resources"]["requests"]
    return {**obj, "metadata": metadata, "spec": spec}


def make(api: Cluster, obj: Json) -> None:
    version, space = obj["apiVersion"], obj["metadata"].get("namespace")
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    where = f"/namespaces/{space}" if space else ""
    api.post(f"{root}{where}/{obj['kind'].lower()}s", fresh(obj)).ok(201)


def dump(kube: RealKube, api: Cluster, tmp_path: Path) -> str:
    """What the guide's line prints; where there is no kubectl, the same objects in the same shape."""
    binary = kubectl.find()
    if binary is not None:
        client = kubectl.Kubectl(binary, kube.kubeconfig, "default", tmp_path)
        return client.run("get", KINDS, "-A", "-o", "yaml")
    items = []
    for what, path in PATHS.items():
        kind, _, version = what.partition(" ")
        found = api.get(path).ok()["items"]
        items += [{"apiVersion": version or "v1", "kind": kind, **item} for item in found]
    return yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": items})


def planned(text: str, *options: str) -> Json:
    argv = [sys.executable, "-m", "windlass", "plan", "-f", "-", "-o", "json", *options]
    done = subprocess.run(argv, input=text, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_all_kinds_of_both_schedulers_in_one_plan(kube: RealKube, tmp_path: Path) -> None:
    with_gpus = {GPU: "4"}
    api = Cluster.of_real(kube)
    try:
        for name in ("n1", "n2"):
            make(api, node(name, gpus=4))
        objects = [
            queue("research", weight=1),
            group("train", 2, queue="research"),
            group("late", 3, queue="research"),
        ]
        objects += [
            pod(f"train-{i}", scheduler="volcano", group="train", requests={GPU: "2"}) for i in range(2)
        ]
        objects += [pod("late-0", scheduler="volcano", group="late", requests={GPU: "1"})]
        objects += [kai_queue("org"), kai_queue("team", "org", gpus=4), kai_group("serve", 1, "team")]
        objects += [kai_pod("serve-0", "serve", "team", requests={GPU: "3"})]
        objects += [pod("theirs", scheduler="default-scheduler", node="n1", requests={GPU: "1"})]
        objects += [pod("unplaced", scheduler="default-scheduler", requests=with_gpus)]
        for obj in objects:
            make(api, obj)
        text = dump(kube, api, tmp_path)
        assert {item["kind"] for item in yaml.safe_load(text)["items"]} == {
            "Node",
            "Pod",
            "PodGroup",
            "Queue",
        }
        before = api.get("/api/v1/pods").ok()["items"]
        plan = planned(text, "--scheduler-name", "volcano", "--scheduler-name", "kai-scheduler")
        bound = {bind["pod"]: bind["node"] for bind in plan["binds"]}
        # Seven cards are free: one of n1 is theirs. Both gangs that are whole fit, side by side.
        assert bound.keys() == {"train-0", "train-1", "serve-0"}, plan
        assert bound["train-0"] == bound["train-1"] == "n2"
        assert bound["serve-0"] == "n1"
        waiting = [(entry["pods"], entry["code"]) for entry in plan["pending"]]
        assert waiting == [(["late-0"], "WaitingForMembers")]
        # Of a file the pods of every scheduler are planned, unless it is said whose.
        everybody = planned(text)
        assert {bind["pod"]: bind["node"] for bind in everybody["binds"]} == bound
        assert ["unplaced"] in [entry["pods"] for entry in everybody["pending"]]
        assert api.get("/api/v1/pods").ok()["items"] == before
    finally:
        api.close()
