"""AIGCJobs in ``windlass explain`` and ``show``: pods with the driver, messages, metrics, attempts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from windlass.api.annotations import EXPLANATION, JOB_ATTEMPTS
from windlass.api.reasons import Explanation, Reason
from windlass.api.resources import AIGC_JOBS, EVENTS, POD_GROUPS, PODS
from windlass.cli.jobs import attempts
from windlass.cli.jobs.jobs import Job
from windlass.jobs.attempt_records import ledger_text
from windlass.jobs.attempts import Attempt, AttemptLedger


def job(phase: str, **status: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kurator.dev/v1alpha1",
        "kind": "AIGCJob",
        "metadata": {"name": "rows", "namespace": "default", "uid": "u-rows"},
        "spec": {"autoscale": {"min": 1, "max": 4}, "runtimeRef": {"name": "noop"}},
        "status": {"phase": phase, **status},
    }


def pod(role: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": f"rows-{role}",
            "namespace": "default",
            "uid": f"u-{role}",
            "labels": {"aigc.kurator.dev/job-name": "rows"},
        },
        "spec": {"nodeName": "gpu1", "containers": [{"name": "main"}]},
        "status": {"phase": "Running"},
    }


def test_driver_is_one_of_the_desired_pods(cluster, windlass):
    cluster.add(AIGC_JOBS, job("Running"))
    for role in ("driver", "worker-0"):
        cluster.add(PODS, pod(role))
    explained = windlass("explain", "rows").out
    assert "2 of 2 running" in explained, explained
    assert "hold 2 pods of 2" in explained
    assert "2 desired, 2 exist, 2 on a node" in windlass("show", "rows").out


def test_server_that_cannot_be_reached_is_told_by_explain_and_ps(cluster, windlass):
    error = {"reason": "ServerUnreachable", "message": "http://llm:8000/v1 cannot be reached: refused"}
    cluster.add(AIGC_JOBS, job("Running", lastError=error, items={"total": 60, "done": 0}))
    for role in ("driver", "worker-0"):
        cluster.add(PODS, pod(role))
    explained = windlass("explain", "rows").out
    assert "last error:  ServerUnreachable: http://llm:8000/v1 cannot be reached: refused" in explained
    assert "ServerUnreachable" in windlass("ps").out


def test_failure_of_a_row_is_told_by_explain_and_not_by_ps(cluster, windlass):
    cluster.add(AIGC_JOBS, job("Running", lastError={"reason": "ValueError", "message": "no name"}))
    for role in ("driver", "worker-0"):
        cluster.add(PODS, pod(role))
    assert "last error:  ValueError: no name" in windlass("explain", "rows").out
    assert "ValueError" not in windlass("ps").out


def test_quota_of_a_job_that_runs_with_a_part_of_its_workers_is_named(cluster, windlass):
    running = job("Running", workers={"desired": 3})
    cluster.add(AIGC_JOBS, running)
    for role in ("driver", "worker-0"):
        cluster.add(PODS, pod(role))
    assert "not created" not in windlass("explain", "rows").out
    told = 'pods "rows-worker-{}" is forbidden: exceeded quota: small, requested: pods=1'
    for index, stamp in ((2, "2026-01-01T00:00:01Z"), (0, "2026-01-01T00:00:00Z")):
        event = {
            "metadata": {"name": f"e-{index}", "namespace": "default"},
            "involvedObject": {"kind": "AIGCJob", "name": "rows", "namespace": "default", "uid": "u-rows"},
            "reason": "FailedCreate",
            "message": f"Error: {told.format(index)}",
            "lastTimestamp": stamp,
        }
        cluster.add(EVENTS, event)
    explained = windlass("explain", "rows").out
    assert f"not created:  {told.format(2)}" in explained
    assert "kubectl describe resourcequota small -n default" in explained
    assert told.format(2) in windlass("show", "rows").out
    cluster.add(PODS, pod("worker-2"))  # both events are about pods that exist now
    assert "not created" not in windlass("explain", "rows").out


@pytest.mark.parametrize("command", ["explain", "show"])
def test_driver_that_cannot_start_is_helped_by_the_fields_that_are_wrong(
    cluster, windlass, tmp_path, command
):
    words = 'rows-driver does not start on node gpu1: hostPath "/proc/zz" (the folder of spec.outputs.path)'
    waiting = job("Queued", message=words)
    waiting["spec"]["input"] = {"path": str(tmp_path / "none.csv")}
    cluster.add(AIGC_JOBS, waiting)
    driver = pod("driver")
    driver["metadata"]["labels"]["aigc.kurator.dev/role"] = "driver"
    driver["status"]["phase"] = "Pending"
    cluster.add(PODS, driver)
    said = Explanation(
        Reason.WAITING_FOR_MEMBERS, "It has 0 of the 1 pods.", remedies=("Create the 1 pods: …",)
    ).as_dict()
    group = {"name": "rows", "namespace": "default", "annotations": {EXPLANATION: json.dumps(said)}}
    cluster.add(POD_GROUPS, {"metadata": group, "spec": {"minMember": 1}, "status": {"phase": "Pending"}})
    told = windlass(command, "rows").out
    assert "they are created once the driver has read the rows" in told
    assert "Correct spec.outputs.path, or create its folder on the node." in told
    assert f"Correct spec.input.path: there is no {tmp_path / 'none.csv'}." in told
    assert "windlass suspend rows, kubectl edit aigcjob rows, windlass resume rows" in told
    assert "Create the 1 pods" not in told
    assert "Create the 1 pods" not in windlass("explain", "rows", "-o", "json").out


@pytest.mark.parametrize(
    ("phase", "message", "told"),
    [
        ("WaitingForGPU", "OutputInUse: job default/a writes to the outputs", "0/1 worker, OutputInUse\n"),
        ("Retrying", "rows-worker-0: /models/none does not exist", "/models/none does not exist"),
    ],
)
def test_ps_tells_what_a_job_on_its_nodes_waits_for(cluster, windlass, phase, message, told):
    cluster.add(AIGC_JOBS, job(phase, message=message, workers={"desired": 1}))
    driver = pod("driver")
    owner = {"apiVersion": "kurator.dev/v1alpha1", "kind": "AIGCJob", "name": "rows", "uid": "u-rows"}
    driver["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    cluster.add(PODS, driver)
    assert told in windlass("ps").out


def test_message_of_a_job_that_tries_again_is_its_explanation(cluster, windlass):
    cluster.add(AIGC_JOBS, job("Retrying", message="rows-worker-0: /models/none does not exist"))
    assert "rows-worker-0: /models/none does not exist" in windlass("explain", "rows").out


def test_metric_that_no_rule_reads_is_refused_with_those_that_exist(cluster, windlass):
    cluster.add(AIGC_JOBS, job("Running"))
    refused = windlass("explain", "rows", "--with", "foo=1")
    assert refused.code != 0
    assert "no such metric" in refused.err
    assert "nvidia_gpu_utilization" in refused.err
    assert windlass("explain", "rows", "--with", "pendingItems=500").code == 0
    with_class = job("Running")
    with_class["spec"]["autoscale"]["plugin"] = "module:Mine"
    cluster.add(AIGC_JOBS, with_class)
    told = windlass("explain", "rows", "--with", "foo=1")
    assert (told.code, "nothing reports foo" in told.err) == (0, True)


def test_done_rows_are_the_checkpoint_of_a_generation_job():
    obj = job("Running")
    ledger = AttemptLedger((Attempt(1, 0.0, started=1.0, ended=9.0, cause="program"), Attempt(2, 9.0)))
    obj["metadata"]["annotations"] = {JOB_ATTEMPTS: ledger_text(ledger)}
    found = Job("AIGCJob", obj)
    facts = dict(attempts.facts(found, ledger, 10.0))
    assert facts["Checkpoint"] == "its ledger: rows that are done are not done again"


def test_workers_that_started_since_the_decision_are_told(cluster, windlass):
    inputs = [{"name": "workersRunning", "value": 0.0, "source": "pods", "ageSeconds": 0.1}]
    scaling = {"time": "2026-01-01T00:00:00Z", "arithmetic": "1", "inputs": inputs}
    cluster.add(AIGC_JOBS, job("Running", scaling=scaling, workers={"running": 1, "desired": 2}))
    for role in ("driver", "worker-0"):
        cluster.add(PODS, pod(role))
    explained = windlass("explain", "rows").out
    assert "workersRunning is 1 now: the metrics are those of the decision" in explained, explained
    assert "1/2 workers" in windlass("ps").out


def test_missing_claim_is_told_by_show_and_explain(cluster, windlass):
    message = "PersistentVolumeClaim films (spec.outputs.pvc.claimName) does not exist in namespace default."
    waits = {"type": "VolumesReady", "status": "False", "message": message}
    cluster.add(AIGC_JOBS, job("Queued", message=f"VolumeClaimUnavailable: {message}", conditions=[waits]))
    assert message in windlass("show", "rows").out
    assert f"VolumeClaimUnavailable: {message}" in windlass("explain", "rows").out


@pytest.mark.parametrize(
    ("phase", "words", "code", "command"),
    [
        ("Succeeded", ("retry", "rows", "a"), "WL-ITEMS-409", "windlass items retry rows -n team"),
        ("Suspended", ("dead", "rows"), "WL-ITEMS-503", "windlass resume rows -n team"),
        ("Succeeded", ("dead", "rows"), "WL-ITEMS-404", "windlass items retry rows -n team"),
    ],
)
def test_remedies_about_items_name_the_namespace(cluster, windlass, phase, words, code, command):
    other = job(phase)
    other["metadata"]["namespace"] = "team"
    cluster.add(AIGC_JOBS, other)
    refused = windlass("items", *words, "-n", "team")
    assert f"error[{code}]" in refused.err
    assert command in refused.err


def test_scale_tells_that_the_job_is_suspended(cluster, windlass):
    suspended = job("Suspended")
    suspended["spec"]["policy"] = {"suspend": True}
    cluster.add(AIGC_JOBS, suspended)
    done = windlass("scale", "rows", "2").out
    assert done.startswith("rows is asked for 2 workers")
    assert done.endswith("It is suspended, and runs with its new size after: windlass resume rows\n")


@pytest.mark.parametrize("name", ["", " "])
def test_empty_name_of_a_generation_job_is_refused(windlass, tmp_path, name):
    rows = tmp_path / "rows.csv"
    rows.write_text("id,name\na,cup\n")
    refused = windlass("generate", str(rows), "--dry-run", "--name", name, "--", "cat")
    assert refused.code == 2
    assert "error[WL-USE-400]: --name is empty" in refused.err
    assert f"windlass generate {rows} --name NAME -- cat\n" in refused.err
    assert windlass("generate", str(rows), "--dry-run", "--", "cat").code == 0
