"""Ray's kinds on one box, with Ray itself: jobs in a cluster of two nodes, a lost worker, Serve applications.

The tests depend on each other in their order: the jobs share one cluster, since Ray starts slowly. Suspension,
preemption, lost heads, upgrades and Ray's autoscaler are tried by ``make chaos``.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ray_box import SERVE, RayBox, ray_folder
from single_node import Box

pytestmark = pytest.mark.timeout(900)
COUNT = """
import os, sys, time, ray
ray.init()

@ray.remote(num_cpus=1, scheduling_strategy="SPREAD")
def where(number):
    time.sleep(0.3)
    return ray.util.get_node_ip_address()

found = set(ray.get([where.remote(number) for number in range(6)]))
print("counter", os.environ.get("counter_name"), "nodes", len(found))
sys.exit(int(sys.argv[1]))
"""
SURVIVE = """
import pathlib, sys, time, ray
ray.init()
begun = pathlib.Path(sys.argv[1])

@ray.remote(num_cpus=1, resources={"small": 1}, max_retries=5)
def work(number):
    begun.touch()
    time.sleep(2)
    return number

print("sum", sum(ray.get([work.remote(number) for number in range(3)])))
"""


@pytest.fixture(scope="module")
def ray() -> Iterator[RayBox]:
    folder = ray_folder()
    with Box("--gpus", "none") as box:
        for name, text in (("count", COUNT), ("survive", SURVIVE), ("fruit", SERVE)):
            (box.folder / f"{name}.py").write_text(text)
        yield RayBox(box, folder)


def cluster_of(ray: RayBox, job: str) -> str:
    return ray.status("rayjobs", job)["rayClusterName"]


def test_a_job_runs_on_the_nodes_of_its_own_cluster(ray: RayBox) -> None:
    program = {
        "entrypoint": f"python {ray.box.folder}/count.py 0",
        "runtimeEnvYAML": "env_vars: {counter_name: test_counter}",
        "rayClusterSpec": ray.cluster(1),
    }
    ray.apply("RayJob", "count", program)
    status = ray.ended("count")
    assert (status["jobDeploymentStatus"], status["jobStatus"]) == ("Complete", "SUCCEEDED")
    assert "counter test_counter nodes 2" in ray.box.windlass("logs", "count").stdout
    table = ray.box.windlass("ps", "-a").stdout
    assert [line.split()[2] for line in table.splitlines() if line.startswith("count")] == ["Completed"]
    assert "RayJob" in ray.box.windlass("show", "count").stdout.splitlines()[1]


def test_a_job_that_fails_says_so_and_a_lost_worker_returns(ray: RayBox) -> None:
    """Both jobs run in the cluster of the first one. The second one loses a worker and goes on."""
    cluster = cluster_of(ray, "count")
    begun = ray.box.folder / "begun"
    for name, command in (("broken", "count.py 3"), ("survive", f"survive.py {begun}")):
        ray.apply(
            "RayJob",
            name,
            {
                "entrypoint": f"python {ray.box.folder}/{command}",
                "clusterSelector": {"ray.io/cluster": cluster},
                "submissionMode": "HTTPMode",
            },
        )
    (worker,) = ray.pods(cluster, "worker")
    ray.wait("a task runs on the worker", begun.exists)
    ray.box.windlass("delete", "pod", worker["metadata"]["name"], "--now")
    ray.wait("the worker is created again", lambda: ray.uids(cluster, "worker") - {worker["metadata"]["uid"]})
    status = ray.ended("broken")
    assert (status["jobStatus"], status["reason"]) == ("FAILED", "AppFailed")
    status = ray.ended("survive")
    assert (status["jobStatus"], status["jobDeploymentStatus"]) == ("SUCCEEDED", "Complete")
    ray.apply_service("fruit", 3)  # for the next test, while the cluster of the first one ends
    ray.box.windlass("delete", "rayjob", "count")
    ray.wait("its cluster is deleted with its pods", lambda: not ray.pods(cluster))


def test_applications_of_a_service_answer_and_follow_their_configuration(ray: RayBox) -> None:
    ray_folder("starlette", "uvicorn", "fastapi")
    ray.wait("it serves", lambda: ray.status("rayservices", "fruit").get("serviceStatus") == "Running")
    status = ray.status("rayservices", "fruit")
    application = status["activeServiceStatus"]["applicationStatuses"]["fruit"]
    assert (application["status"], status["numServeEndpoints"]) == ("RUNNING", 1)
    assert application["serveDeploymentStatuses"]["Fruit"]["status"] == "HEALTHY"
    ray.wait("it answers", lambda: "mango 3" in ray.ask("fruit"))
    ray.apply_service("fruit", 4)
    ray.wait("it follows its configuration", lambda: "mango 4" in ray.ask("fruit"))
