"""Jobs and CronJobs of Kubernetes on one box, driven with kubectl and real programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from single_node import Box

pytestmark = pytest.mark.kubectl


@pytest.fixture(scope="module")
def box() -> Iterator[Box]:
    with Box("--gpus", "simulated:8xH100-80GB") as one:
        yield one


def job(name: str, command: str, gpus: int = 0, **spec: Any) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "main", "image": "busybox", "command": ["sh", "-c", command]}
    if gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
    pod = {"restartPolicy": "Never", "containers": [container]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": {"spec": pod}, **spec},
    }


def apply(box: Box, *objects: dict[str, Any]) -> str:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
    return box.kubectl("apply", "-f", "-", stdin=text).stderr


def test_indexes_run_and_kubectl_waits_for_them(box: Box) -> None:
    indexed = {"completionMode": "Indexed", "completions": 3, "parallelism": 2}
    apply(box, job("sweep", "echo index $JOB_COMPLETION_INDEX on $(hostname)", **indexed))
    box.kubectl("wait", "--for=condition=complete", "job/sweep", "--timeout=180s")
    lines = box.windlass("logs", "job.batch/sweep").stdout
    assert all(f"index {index} on sweep-{index}" in lines for index in range(3))
    assert "index" in box.kubectl("logs", "job/sweep").stdout
    shown = box.kubectl("get", "jobs", "sweep").stdout.split()
    assert shown[:4] == ["NAME", "STATUS", "COMPLETIONS", "DURATION"]
    assert shown[5:8] == ["sweep", "Complete", "3/3"]

    def told() -> bool:
        text = box.kubectl("describe", "job", "sweep").stdout
        return all(
            words in text for words in ("Completed Indexes:  0-2", "SuccessfulCreate", "Job completed")
        )

    box.wait_for("its events are told", told)


def test_exit_code_of_a_rule_fails_the_job(box: Box) -> None:
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
    apply(box, job("broken", "exit 42", podFailurePolicy={"rules": [rule]}))
    box.kubectl("wait", "--for=condition=failed", "job/broken", "--timeout=180s")
    conditions = box.get("job.batch", "broken")["status"]["conditions"]
    assert [found["reason"] for found in conditions] == ["PodFailurePolicy"] * 2
    assert "exit 42" in box.windlass("ps", "-a").stdout


def test_suspended_job_gives_its_gpus_back_and_runs_again(box: Box) -> None:
    apply(box, job("held", "sleep 600", gpus=8))
    box.kubectl("wait", "--for=jsonpath={.status.ready}=1", "job/held", "--timeout=180s")
    box.kubectl("patch", "job", "held", "-p", '{"spec":{"suspend":true}}')
    box.kubectl("wait", "--for=condition=suspended", "job/held", "--timeout=180s")
    apply(box, job("other", "true", gpus=8))
    box.kubectl("wait", "--for=condition=complete", "job/other", "--timeout=180s")
    box.kubectl("patch", "job", "held", "-p", '{"spec":{"suspend":false}}')
    box.kubectl("wait", "--for=jsonpath={.status.ready}=1", "job/held", "--timeout=180s")
    assert "is being deleted" in box.windlass("cancel", "held").stdout
    box.wait_for(
        "its pods are gone", lambda: not box.items("pods", labels="batch.kubernetes.io/job-name=held")
    )


def test_workload_makes_a_job_one_gang(box: Box) -> None:
    gang = {"schedulingPolicy": {"gang": {"minCount": 3}}, "name": "workers"}
    workload = {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "Workload",
        "metadata": {"name": "trio"},
        "spec": {
            "controllerRef": {"apiGroup": "batch", "kind": "Job", "name": "trio"},
            "podGroupTemplates": [gang],
        },
    }
    indexed = {"completionMode": "Indexed", "completions": 3, "parallelism": 3}
    apply(box, workload, job("trio", "true", gpus=4, **indexed))
    box.wait_for("the gang waits", lambda: "together" in box.windlass("explain", "trio").stdout)
    assert not any(
        pod["spec"].get("nodeName") for pod in box.items("pods", labels="batch.kubernetes.io/job-name=trio")
    )
    box.kubectl("delete", "job", "trio")
    box.wait_for("its PodGroup is gone", lambda: not box.items("podgroups.v1alpha2.scheduling.k8s.io"))


def test_job_of_kueue_is_started_with_a_warning(box: Box) -> None:
    queued = job("queued", "true", suspend=True)
    queued["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "default"}
    assert "suspend: false" in apply(box, queued)
    box.kubectl("wait", "--for=condition=complete", "job/queued", "--timeout=180s")


def test_cron_job_and_a_job_from_it(box: Box) -> None:
    box.kubectl("create", "cronjob", "tick", "--image=busybox", "--schedule=@hourly", "--", "echo", "tick")
    box.kubectl("create", "job", "now", "--from=cronjob/tick")
    box.kubectl("wait", "--for=condition=complete", "job/now", "--timeout=180s")

    def shown() -> list[str]:
        return box.kubectl("get", "cronjobs").stdout.split()[8:13]

    box.wait_for("no job is active", lambda: shown() == ["tick", "@hourly", "<none>", "False", "0"])
    refused = box.kubectl(
        "create", "cronjob", "bad", "--image=busybox", "--schedule=* *", "--", "true", check=False
    )
    assert "spec.schedule: Invalid value" in refused.stderr
