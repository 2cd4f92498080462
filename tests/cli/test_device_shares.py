"""Parts of cards in lists and in words."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from fakecluster import FakeCluster

from windlass.api.annotations import ADOPTED_SUFFIX
from windlass.api.devices import node_annotation
from windlass.api.devices.node_annotation import DeviceRecord
from windlass.api.resources import POD_GROUPS, PODS, QUEUES
from windlass.cli import resources
from windlass.cli.install import objects
from windlass.cli.jobs.jobs import Job

GPU = "nvidia.com/gpu"


def pod(annotations: dict[str, str] | None = None, **limits: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "namespace": "default", "annotations": annotations or {}},
        "spec": {"containers": [{"name": "main", "resources": {"limits": {"cpu": "1", **limits}}}]},
    }


def node(*found: DeviceRecord, **labels: str) -> dict[str, Any]:
    notes = {node_annotation.NODE_DEVICES: node_annotation.write(found)} if found else {}
    return {"metadata": {"name": "n", "annotations": notes, "labels": labels}}


@pytest.mark.parametrize(
    ("subject", "takes"),
    [
        (pod(), 0),
        (pod(**{GPU: "2"}), 2000),
        (pod({"gpu-fraction": "0.5"}), 500),
        (pod({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"}), 1000),
        (pod(**{"aliyun.com/gpu-mem": "10"}), 625),
        (pod({"gpu-memory": "4096"}), 250),
        (pod(**{GPU: "2", "nvidia.com/gpumem": "4096"}), 500),
        (pod(**{"volcano.sh/gpu-number": "2"}), 2000),
        (pod(**{"nvidia.com/mig-3g.40gb": "1"}), 429),
    ],
)
def test_parts_are_counted_in_thousandths(subject: dict[str, Any], takes: int) -> None:
    labelled = node(**{"nvidia.com/gpu.memory": "16384"})
    assert resources.devices(resources.effective_request(subject, labelled)) == takes
    told = node(DeviceRecord(0, memory_mib=16384))
    assert resources.devices(resources.effective_request(subject, told)) == takes


def test_a_slice_that_the_node_lists_counts_as_one() -> None:
    listed = node()
    listed["status"] = {"allocatable": {"nvidia.com/mig-3g.40gb": "2"}}
    subject = pod(**{"nvidia.com/mig-3g.40gb": "1"})
    assert resources.devices(resources.effective_request(subject, listed)) == 1000
    assert resources.devices(resources.effective_request(subject)) == 1000


def test_an_amount_of_memory_of_an_unknown_card_counts_nothing() -> None:
    assert resources.devices(resources.effective_request(pod(**{"aliyun.com/gpu-mem": "10"}))) == 0
    assert resources.devices(resources.effective_request(pod(**{"aliyun.com/gpu-mem": "10"}), node())) == 0


@pytest.mark.parametrize(
    ("annotations", "words"),
    [
        ({}, ""),
        ({"windlass.dev/devices": "0,3"}, "0,3"),
        (
            {"windlass.dev/devices": "0,1,2", "windlass.dev/device-shares": "0:500/10240,1:0/4096"},
            "0 (50%, 10240 MiB),1 (4096 MiB),2",
        ),
        ({"windlass.dev/devices": "0", "windlass.dev/device-slices": "0:1g.10gb@6"}, "0 (1g.10gb at 6)"),
        ({"windlass.dev/devices": "x"}, "x"),
    ],
)
def test_what_a_pod_was_given(annotations: dict[str, str], words: str) -> None:
    assert resources.held_text(pod(annotations)) == words


def test_cards_that_are_carved_are_cards() -> None:
    assert (
        resources.dynamic_mig_milli(
            node(DeviceRecord(0, mig=True, dynamic=True), DeviceRecord(1), DeviceRecord(2, mig=True))
        )
        == 1000
    )
    assert resources.dynamic_mig_milli(node()) == 0


def test_what_a_job_asks_of_cards_in_words() -> None:
    assert resources.shares_text(pod()) == ""
    assert resources.shares_text(pod(**{"aliyun.com/gpu-mem": "10"})) == "10240 MiB of a GPU"
    job = Job("Pod", pod({"gpu-fraction": "0.5"}), [])
    assert job.shares == "0.5 of a GPU"


@pytest.mark.parametrize(
    ("subject", "shown"),
    [
        (pod(), "-"),
        (pod(**{GPU: "2"}), "2"),
        (pod({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"}), "1"),
        (pod({"windlass.dev/gpu-memory": "10Gi"}), "10Gi"),
        (pod(**{"aliyun.com/gpu-mem": "10"}), "10Gi"),
        (pod(**{GPU: "2", "nvidia.com/gpumem": "4096"}), "2×4Gi"),
        (pod(**{"nvidia.com/mig-1g.10gb": "3"}), "3×1g.10gb"),
        (pod({"windlass.dev/devices": "0,3"}), "2"),
        (pod({"windlass.dev/devices": "0", "windlass.dev/device-slices": "0:1g.10gb@6"}), "1g.10gb"),
        (pod({"gpu-fraction": "1.5"}), "-"),
    ],
)
def test_the_column_of_gpus_shows_parts_as_they_were_asked_for(subject: dict[str, Any], shown: str) -> None:
    assert Job("Pod", subject, [subject]).gpus == shown


def test_the_parts_of_a_whole_job_stand_in_its_line() -> None:
    part = pod({"windlass.dev/gpu-memory": "10Gi"})
    tasks = [{"replicas": 4, "template": part}, {"replicas": 1, "template": pod(**{GPU: "2"})}]
    job = Job("Job", {"metadata": {"name": "j"}, "spec": {"tasks": tasks}})
    assert job.gpus == "2+4×10Gi"
    halves = [{"replicas": 4, "template": pod({"gpu-fraction": "0.5"})}]
    job = Job("Job", {"metadata": {"name": "j"}, "spec": {"tasks": halves}})
    assert (job.gpus, resources.devices(job.request)) == ("2", 2000)
    group = Job("PodGroup", {"metadata": {"name": "g"}, "spec": {}}, [part, part])
    assert group.gpus == "2×10Gi"


def test_a_pod_that_asks_by_a_claim_is_not_said_to_ask_for_no_gpu(
    windlass: Callable[..., Any], cluster: FakeCluster
) -> None:
    claiming = pod()
    claiming["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    cluster.add(PODS, claiming)
    assert (
        windlass("explain", "p").out.splitlines()[0]
        == "p (Pod, queue default, GPUs only by claim gpu): Pending"
    )
    claiming["spec"]["nodeName"] = "n"
    claiming["metadata"]["annotations"]["windlass.dev/devices"] = "0"
    cluster.add(PODS, claiming)
    assert windlass("explain", "p").out.startswith("p (Pod, queue default, 1 GPU)")
    assert "GPUs:     1\n" in windlass("show", "p").out


def test_where_another_scheduler_put_a_pod_is_not_said_to_be_decided_here(
    windlass: Callable[..., Any], cluster: FakeCluster
) -> None:
    foreign = pod(**{GPU: "1"})
    foreign["spec"] |= {"nodeName": "n", "schedulerName": "somebody-else"}
    foreign["status"] = {"phase": "Running"}
    cluster.add(PODS, foreign)
    assert "why there:  its scheduler is somebody-else, not Windlass\n" in windlass("explain", "p").out
    for ours in ("windlass", "volcano", "default-scheduler"):
        foreign["spec"]["schedulerName"] = ours
        cluster.add(PODS, foreign)
        assert "had enough capacity, and the pods fit on these nodes" in windlass("explain", "p").out
    told = windlass("--context", "gpu", "explain", "p").out  # a cluster has a scheduler of its own
    assert "its scheduler is default-scheduler, not Windlass\n" in told


def test_a_pod_that_waits_for_somebody_else_says_for_whom(
    windlass: Callable[..., Any], cluster: FakeCluster
) -> None:
    held = pod()
    held["spec"]["schedulingGates"] = [{"name": "example.com/hold"}]
    cluster.add(PODS, held)
    assert windlass("ps").out.rstrip().endswith("held by example.com/hold")
    assert "which their controller removes" in windlass("explain", "p").out
    held["spec"] = {**pod()["spec"], "schedulerName": "default-scheduler"}
    cluster.add(PODS, held)
    assert windlass("ps").out.rstrip().endswith("not evaluated yet by default-scheduler")
    told = windlass("--context", "gpu", "explain", "p").out
    assert "PendingEvaluation: default-scheduler has not evaluated it yet" in told
    assert "what helps" not in told
    held["spec"] = {**pod()["spec"], "schedulerName": "windlass"}
    cluster.add(PODS, held)
    told = windlass("--context", "gpu", "explain", "p").out
    assert "what helps:  windlass --context gpu doctor   (checks whether a scheduler runs)\n" in told


def test_beside_another_scheduler_who_decides_is_told(
    windlass: Callable[..., Any], cluster: FakeCluster
) -> None:
    foreign = pod()
    foreign["spec"]["schedulerName"] = "volcano"
    foreign["metadata"]["annotations"] = {"scheduling.volcano.sh/queue-name": "prod"}
    cluster.add(PODS, foreign)
    told = windlass("--context", "gpu", "explain", "p").out
    assert "install --scheduler-name windlass --scheduler-name volcano" in told
    for obj in objects.objects(objects.InstallOptions(beside=("volcano",), crds=False)):
        if obj["kind"] in ("Deployment", "ConfigMap"):
            cluster.add(objects.KINDS[obj["kind"]], obj)
    told = windlass("--context", "gpu", "explain", "p").out
    assert "volcano schedules this job, as it was not handed over to Windlass\n" in told
    assert "windlass --context gpu install --adopt volcano -q prod   (to hand it over)\n" in told
    assert "--scheduler-name" not in told


def test_a_gang_that_was_handed_over_is_in_its_queue(
    windlass: Callable[..., Any], cluster: FakeCluster
) -> None:
    gang = {"metadata": {"name": "g", "namespace": "default"}, "spec": {"queue": "default" + ADOPTED_SUFFIX}}
    cluster.add(POD_GROUPS, gang)
    member = pod()
    member["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": "g"}
    cluster.add(PODS, member)
    (found,) = json.loads(windlass("ps", "-q", "default", "-o", "json").out)["items"]
    assert (found["name"], found["queue"]) == ("g", "default")
    cluster.add(QUEUES, {"metadata": {"name": "default"}, "spec": {}})
    assert windlass("queue", "ls").err == ""
