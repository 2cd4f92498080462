"""LeaderWorkerSets on one box: groups that meet, restarts, updates, scaling, manifests of others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from single_node import Box

Json = dict[str, Any]
FIELD = Path(__file__).resolve().parents[3] / "shared" / "field" / "manifests" / "leaderworkerset"
MEET = """
import os, socket, sys, time
size, index, leader = (os.environ[f"LWS_{x}"] for x in ("GROUP_SIZE", "WORKER_INDEX", "LEADER_ADDRESS"))
if index == "0":
    with socket.create_server(("", 7777)) as server:
        seen = sorted(server.accept()[0].recv(10).decode() for _ in range(int(size) - 1))
        print("met", *seen, flush=True)
else:
    while True:
        try:
            peer = socket.create_connection((leader, 7777), 5)
            break
        except OSError:
            time.sleep(0.1)
    peer.sendall(index.encode())
    print("sent", flush=True)
time.sleep(1000)
"""
"""Program: the workers connect to the leader at its address."""


@pytest.fixture(scope="module")
def box() -> Iterator[Box]:
    with Box("--gpus", "none") as one:
        yield one


def lws(name: str, size: int = 3, command: list[str] | None = None, **spec: Any) -> Json:
    container = {"name": "c", "image": "python", "command": command or ["python3", "-c", MEET]}
    pod = {"spec": {"containers": [container], "terminationGracePeriodSeconds": 1}}
    template = {"size": size, "workerTemplate": pod}
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": name},
        "spec": {"leaderWorkerTemplate": template, **spec},
    }


def pods(box: Box, name: str) -> dict[str, Json]:
    found = box.items("pods", labels=f"leaderworkerset.sigs.k8s.io/name={name}")
    return {one["metadata"]["name"]: one for one in found}


def available(box: Box, name: str, groups: int) -> bool:
    status = box.get("lws", name).get("status") or {}
    true = {one["type"] for one in status.get("conditions") or () if one["status"] == "True"}
    return true == {"Available"} and status.get("readyReplicas") == groups == status.get("updatedReplicas")


@pytest.mark.kubectl
def test_groups_meet_restart_are_updated_and_scaled(box: Box) -> None:
    box.windlass("apply", "-f", "-", stdin=json.dumps(lws("llm", replicas=2)))
    box.wait_for("it is available", lambda: available(box, "llm", 2))
    for leader in ("llm-0", "llm-1"):
        box.wait_for("they meet", lambda leader=leader: "met 1 2" in box.kubectl("logs", leader).stdout)
    before = pods(box, "llm")
    assert len(before) == 6
    groups = [one for one in box.items("podgroups") if one["metadata"]["name"].startswith("llm-")]
    assert [one["spec"]["minMember"] for one in groups] == [3, 3]

    box.windlass("delete", "pod", "llm-1-2", "--no-wait")
    uid = before["llm-1"]["metadata"]["uid"]
    box.wait_for(
        "the group is new",
        lambda: pods(box, "llm").get("llm-1", before["llm-1"])["metadata"]["uid"] != uid,
    )
    box.wait_for("it is available again", lambda: available(box, "llm", 2))
    after = pods(box, "llm")
    kept = {name for name in before if before[name]["metadata"]["uid"] == after[name]["metadata"]["uid"]}
    assert kept == {"llm-0", "llm-0-1", "llm-0-2"}

    listed = json.loads(box.windlass("ps", "-o", "json").stdout)["items"]
    assert [one["name"] for one in listed if one["name"].startswith("llm")] == ["llm"]
    assert "LeaderWorkerSet" in box.windlass("show", "llm").stdout

    assert "scaled" in box.kubectl("scale", "lws/llm", "--replicas=1").stdout
    box.wait_for("a group is gone", lambda: len(pods(box, "llm")) == 3 and available(box, "llm", 1))
    changed = lws("llm", command=["python3", "-c", MEET + "\n# second"], replicas=1)
    box.windlass("apply", "-f", "-", stdin=json.dumps(changed))
    box.wait_for(
        "it is updated",
        lambda: (
            available(box, "llm", 1)
            and all("second" in str(one["spec"]["containers"]) for one in pods(box, "llm").values())
        ),
    )
    shown = box.kubectl("get", "lws").stdout.splitlines()
    assert shown[0].split() == ["NAME", "READY", "DESIRED", "UP-TO-DATE", "AGE"]
    assert shown[1].split()[:4] == ["llm", "1", "1", "1"]

    def reasons() -> set[str]:
        return {event["reason"] for event in box.items("events") if event["involvedObject"]["name"] == "llm"}

    told = {"GroupsProgressing", "GroupsUpdating", "AllGroupsReady", "RecreateGroupOnPodRestart"}
    box.wait_for("all is told", lambda: told <= reasons())
    box.windlass("delete", "lws", "llm")
    box.wait_for("nothing is left", lambda: not pods(box, "llm") and not box.items("statefulsets"))


def test_a_group_waits_as_a_whole(box: Box) -> None:
    """The leader does not hold a node while its workers starve."""
    large = lws("large", size=2, command=["sleep", "1000"])
    cpus = int(box.items("nodes")[0]["status"]["allocatable"]["cpu"].removesuffix("m")) * 1000
    container = large["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"][0]
    container["resources"] = {"requests": {"cpu": f"{cpus * 6 // 10}m"}}
    box.windlass("apply", "-f", "-", stdin=json.dumps(large))
    box.wait_for("both pods exist", lambda: len(pods(box, "large")) == 2)
    box.wait_for("the reason is told", lambda: all(_why(one) for one in pods(box, "large").values()))
    assert not [one for one in pods(box, "large").values() if one["spec"].get("nodeName")]
    box.windlass("delete", "lws", "large")


def _why(pod: Json) -> str:
    conditions = pod.get("status", {}).get("conditions") or ()
    return next((one.get("message") or "" for one in conditions if one["type"] == "PodScheduled"), "")


EXPECTED = {
    "01-vllm-gpu.yaml": (2, 2),
    "02-restart-policy.yaml": (3, 4),
    "03-volcano-gang.yaml": (2, 4),
    "04-deepseek-r1.yaml": (1, 2),
    "05-slurm-backed-lws.yaml": (1, 2),
}
"""Published manifest → groups, and pods of each."""


def test_published_manifests_make_their_groups(box: Box) -> None:
    if not FIELD.is_dir():
        pytest.skip("the published LeaderWorkerSet manifests are not here")
    for file, (groups, size) in EXPECTED.items():
        space = f"field-{file[:2]}"
        box.windlass(
            "apply", "-f", "-", stdin=f"{{apiVersion: v1, kind: Namespace, metadata: {{name: {space}}}}}"
        )
        for document in yaml.safe_load_all((FIELD / file).read_text()):
            document["metadata"]["namespace"] = space
            if document["kind"] == "LeaderWorkerSet":
                document["metadata"].pop("generateName", None)
                document["metadata"].setdefault("name", "generated")
            box.windlass("apply", "-f", "-", stdin=json.dumps(document))

        def members(space: str = space) -> list[Json]:
            return box.items("pods", namespace=space)

        box.wait_for(f"{file}: all pods", lambda: len(members()) == groups * size)  # noqa: B023
        env = {one["name"] for one in members()[0]["spec"]["containers"][0]["env"]}
        assert {"LWS_LEADER_ADDRESS", "LWS_GROUP_SIZE", "LWS_WORKER_INDEX"} <= env

        def gangs(space: str = space) -> list[int]:
            return [one["spec"]["minMember"] for one in box.items("podgroups", namespace=space)]

        box.wait_for(f"{file}: all gangs", lambda: gangs() == [size] * groups)  # noqa: B023
        box.windlass("delete", "namespace", space, "--no-wait")
