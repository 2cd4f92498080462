"""Mistakes in Jobs and CronJobs are named. ``tests/conformance`` compares the words with a real server."""

from __future__ import annotations

from typing import Any

import pytest
from batch_cluster import batch_object

from windlass.api import defaults, validation
from windlass.api.fields.batch import (
    CONTROLLER_UID,
    JOB_NAME,
    OLD_CONTROLLER_UID,
    OLD_JOB_NAME,
    queue_of_job,
)
from windlass.api.resources import BATCH_JOBS, CRON_JOBS, NATIVE_POD_GROUPS, WORKLOADS, Resource
from windlass.api.validation.workloads.batch_policies import IndexesError, count_indexes

Json = dict[str, Any]


def stored(restart: str = "Never", **spec: Any) -> Json:
    """Return a Job with the selector and the labels that the server adds."""
    obj = batch_object(restart, **spec)
    labels = {CONTROLLER_UID: "u", OLD_CONTROLLER_UID: "u", JOB_NAME: "train", OLD_JOB_NAME: "train"}
    obj["spec"]["template"].setdefault("metadata", {})["labels"] = labels
    obj["spec"].setdefault("selector", {"matchLabels": {CONTROLLER_UID: "u"}})
    return obj


def fields(resource: Resource, obj: Json, old: Json | None = None) -> list[str]:
    return [error.field for error in validation.validate(resource, obj, old)]


def test_defaults():
    plain, indexed = stored()["spec"], stored(backoffLimitPerIndex=1, podFailurePolicy={"rules": []})["spec"]
    assert (plain["completions"], plain["parallelism"], plain["backoffLimit"]) == (1, 1, 6)
    assert (plain["podReplacementPolicy"], plain["completionMode"]) == ("TerminatingOrFailed", "NonIndexed")
    assert (indexed["backoffLimit"], indexed["podReplacementPolicy"]) == (2**31 - 1, "Failed")
    assert "completions" not in stored(parallelism=2)["spec"]


def test_mistakes_are_named():
    assert fields(BATCH_JOBS, stored()) == []
    code = {"onExitCodes": {"operator": "In", "values": [3, 1], "containerName": "x"}, "action": "FailJob"}
    cases: list[tuple[Json, list[str]]] = [
        ({"restart": "Always"}, ["spec.template.spec.restartPolicy"]),
        ({"parallelism": -1}, ["spec.parallelism"]),
        ({"completionMode": "Indexed", "parallelism": 2}, ["spec.completions"]),
        ({"backoffLimitPerIndex": 1}, ["spec.backoffLimitPerIndex"]),
        ({"managedBy": "queue"}, ["spec.managedBy"]),
        (
            {"podFailurePolicy": {"rules": [code]}},
            [
                "spec.podFailurePolicy.rules[0].onExitCodes.containerName",
                "spec.podFailurePolicy.rules[0].onExitCodes.values",
            ],
        ),
        ({"successPolicy": {"rules": []}}, ["spec.successPolicy"]),
        ({"selector": {"matchLabels": {"a": "b"}}}, ["spec.selector", "spec.template.metadata.labels"]),
    ]
    for spec, wanted in cases:
        assert fields(BATCH_JOBS, stored(**spec)) == wanted, spec


def test_template_changes_only_while_the_job_is_suspended_without_pods():
    def changed(obj: Json, **spec: Any) -> Json:
        template = obj["spec"]["template"]
        body = {**template, "spec": {**template["spec"], **spec}}
        return {**obj, "spec": {**obj["spec"], "template": body}}

    running, held = stored(), stored(suspend=True)
    assert fields(BATCH_JOBS, changed(running, nodeSelector={"a": "b"}), running) == ["spec.template"]
    assert fields(BATCH_JOBS, changed(held, nodeSelector={"a": "b"}), held) == []
    assert fields(BATCH_JOBS, changed(held, hostNetwork=True), held) == ["spec.template.spec"]
    busy = {**held, "status": {"active": 1}}
    assert fields(BATCH_JOBS, changed(held, nodeSelector={"a": "b"}), busy) == ["spec.template"]


def test_indexes_are_counted():
    assert [count_indexes(text, 10) for text in ("", "0", "0,2-4,9")] == [0, 1, 5]
    for text, words in (
        ("1-", "cannot convert"),
        ("10", "too large"),
        ("3-2", "non-increasing"),
        ("2,1", "previous: 2"),
    ):
        with pytest.raises(IndexesError, match=words):
            count_indexes(text, 10)


def test_cron_jobs():
    def cron(**spec: Any) -> Json:
        template = {"spec": batch_object()["spec"]}
        obj = {
            "metadata": {"name": "tick", "namespace": "default"},
            "spec": {"schedule": "@hourly", "jobTemplate": template, **spec},
        }
        defaults.apply(CRON_JOBS, obj)
        return obj

    assert fields(CRON_JOBS, cron(timeZone="Europe/Berlin")) == []
    assert fields(CRON_JOBS, cron(schedule="* *", timeZone="No/Where")) == ["spec.schedule", "spec.timeZone"]
    assert fields(CRON_JOBS, cron(schedule="TZ=UTC @hourly")) == ["spec.schedule"]
    assert fields(CRON_JOBS, cron(concurrencyPolicy="No")) == ["spec.concurrencyPolicy"]


def test_gangs_of_kubernetes():
    def group(**policy: Any) -> Json:
        return {"metadata": {"name": "g", "namespace": "default"}, "spec": {"schedulingPolicy": policy}}

    assert fields(NATIVE_POD_GROUPS, group(gang={"minCount": 2})) == []
    assert fields(NATIVE_POD_GROUPS, group()) == ["spec.schedulingPolicy"]
    assert fields(NATIVE_POD_GROUPS, group(gang={"minCount": 0})) == ["spec.schedulingPolicy.gang.minCount"]
    workload = {"metadata": {"name": "w", "namespace": "default"}, "spec": {}}
    assert fields(WORKLOADS, workload) == ["spec.podGroupTemplates"]


def test_queue_of_a_job_is_that_of_its_labels():
    template = {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "inner"}}}
    assert queue_of_job({"metadata": {}, "spec": {"template": template}}) == "inner"
    labels = {"kueue.x-k8s.io/queue-name": "theirs", "volcano.sh/queue-name": "ours"}
    assert queue_of_job({"metadata": {"labels": labels}, "spec": {"template": template}}) == "ours"
    assert queue_of_job({"metadata": {}}) == ""
