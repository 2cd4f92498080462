"""Ray's kinds under interruptions, with Ray itself: suspension, preemption, lost heads, upgrades, Ray's autoscaler.

``make chaos`` runs it: Ray takes half a minute for each cluster. ``tests/e2e/test_ray.py`` has the rest.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from ray_box import SERVE, RayBox, ray_folder
from single_node import Box

pytestmark = pytest.mark.timeout(900)
WAIT = """
import pathlib, sys, time, ray
ray.init()
begun, end = sys.argv[1] + ".begun", pathlib.Path(sys.argv[1] + ".end")

@ray.remote(num_cpus=1)
def work(number):
    pathlib.Path(begun + str(number)).touch()
    while not end.exists():
        time.sleep(0.2)
    return ray.util.get_node_ip_address()

print("nodes", len(set(ray.get([work.remote(number) for number in range(2)]))))
"""
"""Program with two tasks, which run until the test creates a file."""


@pytest.fixture(scope="module")
def ray() -> Iterator[RayBox]:
    folder = ray_folder()
    with Box("--gpus", "simulated:2") as box:
        for name, text in (("wait", WAIT), ("fruit", SERVE)):
            (box.folder / f"{name}.py").write_text(text)
        yield RayBox(box, folder)


def submit(ray: RayBox, name: str, **spec: object) -> None:
    """Submit a RayJob that waits for the end of the test."""
    entrypoint = f"python {ray.box.folder}/wait.py {ray.box.folder}/{name}"
    ray.apply(
        "RayJob",
        name,
        {
            "entrypoint": entrypoint,
            "shutdownAfterJobFinishes": True,
            "rayClusterSpec": ray.cluster(0, head_cpus=2),
            **spec,
        },
    )
    ray.wait(f"{name} runs", lambda: all(path.exists() for path in begun(ray, name)))


def begun(ray: RayBox, name: str) -> list[Path]:
    """Return the files that the two tasks of a job create when they begin."""
    return [ray.box.folder / f"{name}.begun{number}" for number in range(2)]


def finish(ray: RayBox, name: str) -> None:
    (ray.box.folder / f"{name}.end").touch()
    status = ray.ended(name)
    assert (status["jobDeploymentStatus"], status["jobStatus"]) == ("Complete", "SUCCEEDED"), status
    ray.box.windlass("delete", "rayjob", name)


def test_a_suspended_job_begins_again_with_a_new_cluster(ray: RayBox) -> None:
    submit(ray, "paused")
    cluster = ray.status("rayjobs", "paused")["rayClusterName"]
    ray.box.windlass("suspend", "paused")
    state = lambda: ray.status("rayjobs", "paused").get("jobDeploymentStatus")  # noqa: E731
    ray.wait("it is suspended", lambda: state() == "Suspended")
    ray.wait("its pods are gone", lambda: not ray.pods(cluster))
    ray.box.windlass("resume", "paused")
    ray.wait("it runs again", lambda: state() == "Running")
    finish(ray, "paused")


def test_a_job_whose_head_is_lost_is_submitted_to_the_next_one(ray: RayBox) -> None:
    submit(ray, "headless")
    for path in begun(ray, "headless"):
        path.unlink()
    cluster = ray.status("rayjobs", "headless")["rayClusterName"]
    (head,) = ray.pods(cluster, "head")
    ray.box.windlass("delete", "pod", head["metadata"]["name"], "--now")
    ray.wait("a head is created", lambda: ray.uids(cluster, "head") - {head["metadata"]["uid"]})
    ray.wait("the job runs there", begun(ray, "headless")[0].exists)
    finish(ray, "headless")


def test_a_preempted_cluster_comes_back_whole(ray: RayBox) -> None:
    spec = ray.cluster(1, limits={"nvidia.com/gpu": "1"})
    ray.apply("RayCluster", "gang", spec)
    ready = lambda: ray.status("rayclusters", "gang").get("state") == "ready"  # noqa: E731
    ray.wait("it is ready", lambda: ready() and len(ray.pods("gang")) == 2)
    before = ray.uids("gang")
    urgent = ("submit", "--gpus", "2", "--name", "urgent", "--priority", "high-priority")
    ray.box.windlass(*urgent, "--", "sleep", "5")
    ray.wait("both pods were evicted", lambda: not before & ray.uids("gang"))

    def whole() -> bool:
        pods = ray.pods("gang")
        return len(pods) == 2 and all(
            one["type"] != "Ready" or one["status"] == "True"
            for pod in pods
            for one in pod["status"].get("conditions") or ()
        )

    ray.wait(
        "it is whole again", lambda: whole() and all(pod["spec"].get("nodeName") for pod in ray.pods("gang"))
    )
    ray.box.windlass("suspend", "raycluster/gang")
    ray.wait("it is suspended", lambda: ray.status("rayclusters", "gang").get("state") == "suspended")
    ray.box.windlass("resume", "raycluster/gang")
    ray.wait("it is ready again", ready)
    ray.box.windlass("scale", "raycluster/gang", "small=0")
    ray.wait("the worker is gone", lambda: len(ray.pods("gang")) == 1)
    ray.box.windlass("delete", "raycluster", "gang")


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_the_autoscaler_adds_workers_for_waiting_tasks_and_removes_idle_ones(
    ray: RayBox, version: str
) -> None:
    options = {"version": version, "idleTimeoutSeconds": 2, "resources": {"requests": {"cpu": "10m"}}}
    spec = ray.cluster(0, head_cpus=0, enableInTreeAutoscaling=True, autoscalerOptions=options)
    name = f"auto-{version}"
    submit(ray, name, rayClusterSpec=spec)
    cluster = ray.status("rayjobs", name)["rayClusterName"]
    ray.wait("two workers run", lambda: len(ray.pods(cluster, "worker")) == 2)
    (ray.box.folder / f"{name}.end").touch()
    assert ray.ended(name)["jobStatus"] == "SUCCEEDED"
    assert "nodes 2" in ray.box.windlass("logs", name).stdout
    ray.box.windlass("delete", "rayjob", name)


def test_idle_workers_are_removed_and_the_cluster_stays(ray: RayBox) -> None:
    options = {"version": "v2", "idleTimeoutSeconds": 2, "resources": {"requests": {"cpu": "10m"}}}
    spec = ray.cluster(1, head_cpus=0, enableInTreeAutoscaling=True, autoscalerOptions=options)
    ray.apply("RayCluster", "idle", spec)
    ray.wait("the worker joined", lambda: ray.status("rayclusters", "idle").get("readyWorkerReplicas") == 1)
    ray.wait("the worker is removed", lambda: not ray.pods("idle", "worker"))
    assert ray.box.get("raycluster", "idle")["spec"]["workerGroupSpecs"][0]["replicas"] == 0
    assert ray.pods("idle", "head")
    ray.box.windlass("delete", "raycluster", "idle")


def test_no_request_fails_while_a_service_is_upgraded(ray: RayBox) -> None:
    ray_folder("starlette", "uvicorn", "fastapi")
    ray.apply_service("fruit", 3)
    ray.wait("it answers", lambda: "mango 3" in ray.ask("fruit"))
    first = ray.status("rayservices", "fruit")["activeServiceStatus"]["rayClusterName"]
    answers: list[str] = []
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            answers.append(ray.ask("fruit").strip())

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        ray.apply_service("fruit", 5, rayVersion="2.60.0")
        ray.wait("the new cluster serves", lambda: "mango 5" in answers)
        ray.wait("the first cluster is deleted", lambda: not ray.pods(first))
    finally:
        done.set()
        asking.join()
    assert set(answers) <= {"mango 3", "mango 5"}, answers
    assert answers.index("mango 5") > 0
    ray.box.windlass("delete", "rayservice", "fruit")
