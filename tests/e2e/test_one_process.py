"""``windlass scheduler`` with the controllers in it, its settings file and its traces, as it is deployed."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from embeddedkube import EmbeddedKube
from kubeobjects import group, node, pod
from otlp_collector import OtlpSink
from realkube import end, spawn

from windlass.api.resources import EVENTS, LEASES, NODES, POD_GROUPS, PODS, QUEUES, VOLCANO_JOBS
from windlass.client.blocking import BlockingClient
from windlass.observe.tracing import trace_id

SETTINGS = """leaderElection: {enabled: true, leaseSeconds: 60, renewSeconds: 40, retrySeconds: 1}
scheduler: {withControllers: true}
"""
TRAIN = {
    "apiVersion": VOLCANO_JOBS.api_version,
    "kind": "Job",
    "metadata": {"name": "train"},
    "spec": {
        "schedulerName": "windlass",
        "minAvailable": 1,
        "tasks": [
            {
                "name": "worker",
                "replicas": 1,
                "template": {"spec": {"containers": [{"name": "main", "image": "x"}]}},
            }
        ],
    },
}


@pytest.fixture
def kube(tmp_path: Path) -> Iterator[EmbeddedKube]:
    made = EmbeddedKube(tmp_path / "state", controllers=False)
    made.start()
    yield made
    made.stop()


def fresh(obj: dict[str, Any]) -> dict[str, Any]:
    """An object as it is created: without what the server writes."""
    for container in obj["spec"].get("containers", ()) if obj["kind"] == "Pod" else ():
        container["resources"]["limits"] = container["resources"]["requests"]
    named = {key: obj["metadata"][key] for key in ("name", "labels", "annotations") if key in obj["metadata"]}
    return {**obj, "metadata": named}


def until(what: Callable[[], object], log: Path) -> None:
    deadline = time.monotonic() + 120
    while not what():
        assert time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.05)


def test_one_process_schedules_controls_follows_its_settings_and_traces(
    kube: EmbeddedKube, tmp_path: Path
) -> None:
    settings, log = tmp_path / "settings.yaml", tmp_path / "log"
    settings.write_text(SETTINGS)
    told = {"POD_NAME": "windlass-0", "POD_UID": "u-0", "POD_NAMESPACE": "default"}
    argv = [sys.executable, "-m", "windlass", "scheduler", "--kubeconfig", str(kube.kubeconfig)]
    with OtlpSink() as sink, BlockingClient(kube.connection) as client:
        argv += ["--settings", str(settings), "--otlp-endpoint", sink.url]
        process = spawn(argv, log, env={**os.environ, **told, "OTEL_BSP_SCHEDULE_DELAY": "100"})
        try:
            until(lambda: client.find(QUEUES, "default") is not None, log)  # the controllers' work
            for name in ("windlass-scheduler", "windlass-controllers"):
                until(lambda name=name: client.find(LEASES, name, "kube-system") is not None, log)
                lease = client.get(LEASES, name, "kube-system")
                assert lease["spec"]["leaseDurationSeconds"] == 60
            client.create(NODES, fresh(node("n1", gpus=2)))
            made = client.create(POD_GROUPS, fresh(group("g", 2)), "default")
            for name in ("g-0", "g-1"):
                client.create(PODS, fresh(pod(name, group="g")), "default")
            until(
                lambda: all(client.get(PODS, n, "default")["spec"].get("nodeName") for n in ("g-0", "g-1")),
                log,
            )
            trace = f"{trace_id(made['metadata']['uid']):032x}"
            until(lambda: len([s for s in sink.named("bind") if s["trace"] == trace]) == 2, log)
            assert sink.resources[0]["service.name"] == "windlass-scheduler"
            until(lambda: [k for s in sink.named("cycle") for k in s["links"] if k[0] == trace], log)
            client.create(VOLCANO_JOBS, TRAIN, "default")
            until(lambda: sink.named("pods created") and sink.named("group created"), log)
            (group_there,) = sink.named("group created")
            assert group_there["trace"] == sink.named("pods created")[0]["trace"]
            assert group_there["attributes"]["windlass.job"] == "train"
            settings.write_text(SETTINGS + "log: {level: loud}\n")
            until(lambda: "settings refused" in log.read_text(), log)
            found: list[dict] = []

            def event() -> list[dict]:
                events = client.list(EVENTS, "default").items
                found[:] = [e for e in events if e["reason"] == "SettingsRefused"]
                return found

            until(event, log)
            assert "log.level 'loud' is not" in found[0].get("message", found[0].get("note", ""))
            settings.write_text(SETTINGS + "log: {level: debug, format: json}\n")
            until(lambda: "settings taken over" in log.read_text(), log)
        finally:
            end(process)
    assert process.returncode == 0, log.read_text()[-3000:]
