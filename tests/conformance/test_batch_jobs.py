"""Jobs as kube-controller-manager and kube-apiserver 1.36 keep them: status, pods, events, columns, errors.

The same manifests and the same ends of pods are played to the embedded server with its
controllers and to a real cluster.
"""

from __future__ import annotations

import difflib
import json
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from clusters import Cluster
from server_pair import Pair

from windlass.api.annotations import JOB_ATTEMPTS

pytestmark = pytest.mark.real
Json = dict[str, Any]
QUIET_SECONDS = 2.2
"""Time without a change after which a step is over. kube-controller-manager waits a second for further pods."""
_TIMES = ("Time", "Timestamp")
_GENERATED = re.compile(r"(?<=train-)(\d+-)?[a-z0-9]{5}\b")
INDEXED = {"completionMode": "Indexed", "completions": 3, "parallelism": 3}
FAIL_JOB = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
IGNORE = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
CASES: dict[str, tuple[Json, list[tuple[str, Any]]]] = {
    "succeeds": ({}, [("run", 0), ("end", (0, 0))]),
    "fails": ({"backoffLimit": 0, "completions": 2, "parallelism": 2}, [("run", 0), ("end", (0, 3))]),
    "indexed": (INDEXED, [("run", 1), ("end", (1, 0)), ("end", (0, 0)), ("end", (0, 0))]),
    "narrow": ({**INDEXED, "parallelism": 1}, [("end", (0, 0)), ("spec", {"parallelism": 2})]),
    "per index": (
        {**INDEXED, "backoffLimitPerIndex": 0},
        [("end", (1, 1)), ("end", (0, 0)), ("end", (0, 0))],
    ),
    "too many indexes": ({**INDEXED, "backoffLimitPerIndex": 0, "maxFailedIndexes": 0}, [("end", (2, 1))]),
    "success policy": (
        {**INDEXED, "successPolicy": {"rules": [{"succeededIndexes": "1"}]}},
        [("end", (0, 0)), ("end", (0, 0))],
    ),
    "failure policy": (
        {"podFailurePolicy": {"rules": [IGNORE, FAIL_JOB]}, "parallelism": 2, "completions": 2},
        [("end", (0, 42))],
    ),
    "suspended": (
        {"suspend": True, "parallelism": 2},
        [("spec", {"suspend": False}), ("spec", {"suspend": True})],
    ),
    "scaled": ({"parallelism": 3}, [("spec", {"parallelism": 1}), ("end", (0, 0))]),
    "shrunk": (INDEXED, [("end", (0, 0)), ("spec", {"completions": 1, "parallelism": 1})]),
    "deadline": ({"activeDeadlineSeconds": 1}, [("wait", lambda status: status.get("conditions"))]),
    "managed": ({"managedBy": "example.com/queue"}, []),
}


def job(name: str = "train", restart: str | None = "Never", **spec: Any) -> Json:
    pod: Json = {"containers": [{"name": "main", "image": "busybox", "command": ["true"]}]}
    if restart is not None:
        pod["restartPolicy"] = restart
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": {"spec": pod}, **spec},
    }


class Stage:
    """One Job on one server."""

    def __init__(self, api: Cluster) -> None:
        self.api, self.space = api, api.new_namespace()
        self.jobs = f"/apis/batch/v1/namespaces/{self.space}/jobs"
        self.pods = f"/api/v1/namespaces/{self.space}/pods"

    def picture(self) -> Json:
        found = self.api.get(f"{self.jobs}/train").ok()
        pods = self.api.get(self.pods).ok()["items"]
        return {
            "job": plain(found, found["metadata"]["uid"]),
            "pods": sorted((self._pod(pod, found["metadata"]["uid"]) for pod in pods), key=str),
        }

    @staticmethod
    def _pod(pod: Json, uid: str) -> Json:
        metadata = {
            name: pod["metadata"].get(name)
            for name in ("labels", "annotations", "finalizers", "generateName")
        }
        metadata["owners"] = pod["metadata"]["ownerReferences"]
        spec = pod["spec"]
        found = {
            "metadata": metadata,
            "hostname": spec.get("hostname"),
            "env": [container.get("env") for container in spec["containers"]],
            "phase": pod["status"]["phase"],
        }
        return plain(found, uid)

    def events(self) -> list[tuple[str, str, str]]:
        found = self.api.get(f"/api/v1/namespaces/{self.space}/events").ok()["items"]
        about = [one for one in found if one["involvedObject"]["kind"] == "Job"]
        return sorted((one["type"], one["reason"], plain(one["message"], "none")) for one in about)

    def seen(self) -> list[Json]:
        return [self.api.get(path).ok()["items"] for path in (self.jobs, self.pods)]

    def wait(self, holds: Callable[[Json], Any]) -> None:
        deadline = time.monotonic() + 60
        while not holds(self.api.get(f"{self.jobs}/train").ok().get("status") or {}):
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def play(self, word: str, how: Any) -> None:
        if word == "spec":
            self.api.patch(f"{self.jobs}/train", {"spec": how}).ok()
        elif word == "wait":
            self.wait(how)
        else:
            position, code = how if word == "end" else (how, None)
            pods = [
                pod
                for pod in self.api.get(self.pods).ok()["items"]
                if pod["status"]["phase"] not in ("Succeeded", "Failed")
            ]
            pods.sort(
                key=lambda pod: int(
                    pod["metadata"].get("labels", {}).get("batch.kubernetes.io/job-completion-index", 0)
                )
            )
            name = pods[position]["metadata"]["name"]
            self.api.patch(f"{self.pods}/{name}/status", {"status": status_of(code)}).ok()


def quiet(stages: list[Stage]) -> None:
    """Wait until no Job and no pod has changed for a moment."""
    last: Any = None
    since = time.monotonic()
    deadline = since + 90
    while time.monotonic() - since < QUIET_SECONDS:
        seen = [stage.seen() for stage in stages]
        if seen != last:
            last, since = seen, time.monotonic()
        assert time.monotonic() < deadline, last
        time.sleep(0.1)


def status_of(code: int | None) -> Json:
    if code is None:
        return {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    terminated = {"exitCode": code, "finishedAt": now, "startedAt": now}
    containers = [
        {
            "name": "main",
            "image": "busybox",
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": {"terminated": terminated},
        }
    ]
    return {"phase": "Failed" if code else "Succeeded", "containerStatuses": containers}


def plain(value: Any, uid: str) -> Any:
    """Return a value without what differs between any two runs."""
    if isinstance(value, dict):
        left = {
            name: inner
            for name, inner in value.items()
            if name not in ("resourceVersion", "managedFields", "namespace")
            and not name.startswith("windlass.dev/")
        }
        if left.get("annotations") == {} or set(value.get("annotations") or {"": ""}) == {JOB_ATTEMPTS}:
            del left["annotations"]
        return {name: "TIME" if name.endswith(_TIMES) else plain(inner, uid) for name, inner in left.items()}
    if isinstance(value, list):
        return [plain(inner, uid) for inner in value]
    if not isinstance(value, str):
        return value
    return re.sub(r"\bt-\d+-\d+/", "SPACE/", _GENERATED.sub("*", value.replace(uid, "UID")))


def same(stages: list[Stage], step: str) -> None:
    """Compare what two servers have, line by line, until it is the same."""
    deadline = time.monotonic() + 60
    while True:
        ours, theirs = (
            json.dumps(stage.picture(), indent=1, sort_keys=True).splitlines() for stage in stages
        )
        found = [line for line in difflib.unified_diff(theirs, ours, "real", "embedded", n=4, lineterm="")]
        if not found:
            return
        assert time.monotonic() < deadline, "\n".join([f"after {step}", *found])
        time.sleep(0.3)


def rows(stage: Stage) -> tuple[list[str], list[Any]]:
    """Return the columns of ``kubectl get jobs -o wide``, and the values that are the same on any server."""
    table = stage.api.get(f"{stage.jobs}/train", accept="application/json;as=Table;v=v1;g=meta.k8s.io").ok()
    cells = table["rows"][0]["cells"]
    return [column["name"] for column in table["columnDefinitions"]], [*cells[:3], *cells[5:7]]


def test_jobs_go_the_same_way(both: Pair) -> None:
    """All cases at once, so that the waiting is shared."""
    cases = {case: [Stage(api) for api in both] for case in CASES}
    for case, stages in cases.items():
        for stage in stages:
            stage.api.post(stage.jobs, job(**CASES[case][0])).ok(201)
    for step in range(1 + max(len(steps) for _, steps in CASES.values())):
        quiet([stage for stages in cases.values() for stage in stages])
        for case, stages in cases.items():
            steps = CASES[case][1]
            if step <= len(steps):
                same(stages, f"{case}: {steps[step - 1] if step else 'created'}")
        for case, stages in cases.items():
            for word, how in CASES[case][1][step : step + 1]:
                for stage in stages:
                    stage.play(word, how)
    for case, (ours, theirs) in cases.items():
        deadline = time.monotonic() + 60
        while ours.events() != theirs.events() and time.monotonic() < deadline:
            time.sleep(0.2)
        assert ours.events() == theirs.events(), case
        while rows(ours) != rows(theirs) and time.monotonic() < deadline:
            time.sleep(0.2)
        assert rows(ours) == rows(theirs), case


REJECTED: list[Json] = [
    job(restart=None),
    job(restart="Sometimes"),
    job(parallelism=-1),
    job(completionMode="Indexed", parallelism=2),
    job(completionMode="Odd"),
    job(backoffLimitPerIndex=1),
    job(completions=3, completionMode="Indexed", backoffLimitPerIndex=1, maxFailedIndexes=4),
    job(completions=3, completionMode="Indexed", maxFailedIndexes=1),
    job(managedBy="queue"),
    job(podReplacementPolicy="Never"),
    job(podFailurePolicy={"rules": [{"action": "FailJob"}]}),
    job(podFailurePolicy={"rules": [{"action": "FailIndex", "onPodConditions": [{"type": "Ready"}]}]}),
    job(restart="OnFailure", podFailurePolicy={"rules": [FAIL_JOB]}),
    job(
        podFailurePolicy={
            "rules": [
                {
                    "action": "Count",
                    "onExitCodes": {"operator": "In", "values": [3, 0, 3], "containerName": "x"},
                }
            ]
        }
    ),
    job(podFailurePolicy={"rules": [FAIL_JOB]}, podReplacementPolicy="TerminatingOrFailed"),
    job(successPolicy={"rules": [{"succeededIndexes": "0"}]}),
    job(**INDEXED, successPolicy={"rules": []}),
    job(
        **INDEXED,
        successPolicy={
            "rules": [{}, {"succeededIndexes": "2-1"}, {"succeededIndexes": "5"}, {"succeededCount": 7}]
        },
    ),
    job(selector={"matchLabels": {"a": "b"}}),
    job(manualSelector=True),
    job(name="x" * 62, **INDEXED),
    {**job(), "spec": {}},
]


def _cause(cause: Json) -> str:
    """Return field, reason and message of a cause. Go writes objects in a way of its own."""
    message = re.sub(r"Invalid value: [\[{].*[\]}]: ", "Invalid value: OBJECT: ", cause["message"])
    message = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "UID", message)
    return f"{cause.get('field')} {cause['reason']} {message}"


@pytest.mark.parametrize("position", range(len(REJECTED)))
def test_mistake_is_named_in_the_same_words(both: Pair, position: int) -> None:
    answers = []
    for api in both:
        answer = api.post("/apis/batch/v1/namespaces/default/jobs", REJECTED[position])
        answers.append((answer.status, plain(answer.json, "none")))
    causes = [(body.get("details") or {}).get("causes") or [body] for _, body in answers]
    cleaned = [[_cause(cause) for cause in found] for found in causes]
    assert sorted(cleaned[0]) == sorted(cleaned[1])
    assert answers[0][0] == answers[1][0] == 422


def cron_job(name: str = "tick", template: Json | None = None, **spec: Any) -> Json:
    body = {"schedule": "0 * * * *", "jobTemplate": {"spec": template or job()["spec"]}, **spec}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name}, "spec": body}


CRON_JOBS = [
    cron_job(timeZone="Europe/Berlin", suspend=True),
    cron_job(schedule=""),
    cron_job(schedule="* * *"),
    cron_job(schedule="TZ=UTC 0 * * * *"),
    cron_job(timeZone="Nowhere/City"),
    cron_job(timeZone="Local"),
    cron_job(timeZone=""),
    cron_job(concurrencyPolicy="Sometimes"),
    cron_job(startingDeadlineSeconds=-1, successfulJobsHistoryLimit=-1, failedJobsHistoryLimit=-1),
    cron_job(name="x" * 53),
    cron_job(template=job(restart=None, completionMode="Odd")["spec"]),
    cron_job(template=job(selector={"matchLabels": {"a": "b"}}, manualSelector=True)["spec"]),
]


def test_cron_jobs_have_the_same_mistakes_and_defaults(both: Pair) -> None:
    """Messages about schedules differ: Go's library has words of its own."""
    for body in CRON_JOBS:
        found = []
        for api in both:
            answer = api.post(f"/apis/batch/v1/namespaces/{api.new_namespace()}/cronjobs", body)
            if answer.status == 201:
                found.append(plain(answer.json, answer.json["metadata"]["uid"]))
            else:
                causes = (answer.json.get("details") or {}).get("causes") or []
                found.append({(cause["field"], cause["reason"]) for cause in causes})
        assert found[0] == found[1], body


UPDATES = [
    ({}, {"completions": 2}),
    ({}, {"completionMode": "Indexed"}),
    ({}, {"parallelism": 2, "backoffLimit": 1, "activeDeadlineSeconds": 50}),
    (INDEXED, {"completions": 5}),
    (INDEXED, {"completions": 5, "parallelism": 5}),
    ({}, {"template": {"metadata": {"labels": {"a": "b"}}}}),
    (
        {"suspend": True},
        {"template": {"metadata": {"labels": {"a": "b"}}, "spec": {"nodeSelector": {"zone": "a"}}}},
    ),
    ({"suspend": True}, {"template": {"spec": {"serviceAccountName": "x"}}}),
    ({}, {"managedBy": "example.com/x"}),
]


def test_same_fields_may_change(both: Pair) -> None:
    for spec, change in UPDATES:
        found = []
        for api in both:
            stage = Stage(api)
            api.post(stage.jobs, job(**spec)).ok(201)
            answer = api.patch(f"{stage.jobs}/train", {"spec": change})
            causes = (answer.json.get("details") or {}).get("causes") or []
            found.append((answer.status, sorted((cause["field"], cause["reason"]) for cause in causes)))
        assert found[0] == found[1], (spec, change)
