"""Probes and lifecycle hooks on real processes: what the kubelet would do, a pod of this machine sees too."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from node_agent_server import NODE, NodeBox, pod, serving
from realkube import free_ports

from windlass.api.resources import EVENTS, PODS, SERVICES
from windlass.node.options import AgentOptions

SERVE = """
import http.server, os, sys
class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        healthy = os.path.exists(sys.argv[1])
        self.send_response(200 if healthy and self.headers['X-Who'] == 'probe' else 503)
        self.send_header('Content-Length', '0')
        self.end_headers()
    def log_message(self, *words): pass
http.server.ThreadingHTTPServer(('0.0.0.0', int(sys.argv[2])), Health).serve_forever()
"""


@pytest.fixture(params=["auto", "none"])
async def either(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Node with namespaces for its pods, and node without."""
    options = AgentOptions(node_name=NODE, gpus="none", isolation=request.param)
    async with serving(tmp_path, options) as box:
        yield box


async def events(box: NodeBox, name: str) -> list[tuple[str, str]]:
    assert box.agent is not None
    await box.agent.recorder.drain()
    found = (await box.client.list(EVENTS, "default")).items
    return [(e["reason"], e["message"]) for e in found if e["involvedObject"]["name"] == name]


async def told(box: NodeBox, name: str, reason: str, words: str) -> str:
    """Until an event says so; its message."""

    async def found() -> str:
        every = await events(box, name)
        return next((text for why, text in every if why == reason and words in text), "")

    return await box.until(found)


async def until(box: NodeBox, name: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Until the status of its container is as wanted; the pod."""

    async def met() -> dict[str, Any] | None:
        found = await box.get(name)
        containers = (found.get("status") or {}).get("containerStatuses")
        return found if containers and holds(containers[0]) else None

    return await box.until(met)


def ready_condition(found: dict[str, Any]) -> dict[str, Any]:
    return next(c for c in found["status"]["conditions"] if c["type"] == "Ready")


def leads_to(box: NodeBox, name: str) -> str:
    """The address that other pods find under this name."""
    assert box.agent is not None
    return box.agent.names.directory.table("default").get(name, "")


async def test_a_server_is_ready_when_it_answers_and_its_service_follows(
    either: NodeBox, tmp_path: Path
) -> None:
    box, healthy = either, tmp_path / "healthy"
    (port,) = free_ports(1)
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "model", "namespace": "default"},
        "spec": {"clusterIP": "None", "selector": {"app": "model"}, "ports": [{"port": port}]},
    }
    await box.client.create(SERVICES, service)
    probe = {
        "httpGet": {"path": "/health", "port": "web", "httpHeaders": [{"name": "X-Who", "value": "probe"}]},
        "periodSeconds": 1,
        "timeoutSeconds": 20,
        "failureThreshold": 1,
    }
    container = {"readinessProbe": probe, "ports": [{"name": "web", "containerPort": port}]}
    words = [sys.executable, "-c", SERVE, str(healthy), str(port)]
    made = pod("server", *words, metadata={"labels": {"app": "model"}}, container=container)
    await box.create(made)
    await told(box, "server", "Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 503")
    found = await until(box, "server", lambda c: c["started"] and not c["ready"])
    assert ready_condition(found)["message"] == "containers with unready status: [main]"
    assert leads_to(box, "model") == ""
    healthy.touch()
    found = await until(box, "server", lambda c: c["ready"])
    since = ready_condition(found)["lastTransitionTime"]
    await box.until(lambda: leads_to(box, "model") == found["status"]["podIP"])

    await box.kill_agent()
    await box.start_agent()
    await asyncio.sleep(1.2)  # time for what a new agent would say at first, and for its first probe
    found = await until(box, "server", lambda c: c["ready"])
    assert ready_condition(found)["lastTransitionTime"] == since, "another agent changes nothing"
    await box.until(lambda: leads_to(box, "model") == found["status"]["podIP"])

    healthy.unlink()
    await until(box, "server", lambda c: not c["ready"])
    await box.until(lambda: leads_to(box, "model") == "")
    assert (await box.get("server"))["status"]["containerStatuses"][0]["restartCount"] == 0


async def test_a_failed_liveness_probe_restarts_and_commands_run_inside(
    either: NodeBox, tmp_path: Path
) -> None:
    """The probe's command has the container's variables, folder and volumes; so have its hooks."""
    box, spoil = either, tmp_path / "spoil"
    inside = f"echo $WHO $(cat /data/started); test ! -e {spoil}"
    container = {
        "env": [{"name": "WHO", "value": "me"}],
        "volumeMounts": [{"name": "d", "mountPath": "/data"}],
        "livenessProbe": {
            "exec": {"command": ["sh", "-c", inside]},
            "periodSeconds": 1,
            "timeoutSeconds": 20,
            "failureThreshold": 1,
            "terminationGracePeriodSeconds": 9,
        },
        "lifecycle": {
            "postStart": {"exec": {"command": ["sh", "-c", "echo once >> /data/started"]}},
            "preStop": {"exec": {"command": ["sh", "-c", f"rm -f {spoil}; echo bye >> /data/started"]}},
        },
    }
    spec = {"volumes": [{"name": "d", "emptyDir": {}}], "restartPolicy": "OnFailure"}
    await box.create(
        pod("p", "sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done", container=container, **spec)
    )
    await until(box, "p", lambda c: c["ready"])
    spoil.touch()
    await until(box, "p", lambda c: c["restartCount"] == 1 and c["ready"])
    await told(box, "p", "Unhealthy", "Liveness probe failed: me once")
    await told(box, "p", "Killing", "Container main failed liveness probe, will be restarted")
    spoil.touch()
    await told(box, "p", "Unhealthy", "Liveness probe failed: me once bye once")
    await box.client.delete(PODS, "p", "default")
    await box.gone("p")
    assert not [why for why, _ in await events(box, "p") if why.startswith("Failed")]


async def test_a_hook_that_fails_and_a_command_that_is_late_say_so(box: NodeBox) -> None:
    late = {
        "exec": {"command": ["sleep", "30"]},
        "periodSeconds": 1,
        "timeoutSeconds": 1,
        "failureThreshold": 900,
    }
    hooks = {"postStart": {"exec": {"command": ["sh", "-c", "exit 3"]}}}
    await box.create(pod("post", "sleep", "600", container={"lifecycle": hooks}))
    hooks = {"preStop": {"httpGet": {"port": 9, "path": "/"}}}
    await box.create(pod("pre", "sleep", "600", container={"lifecycle": hooks, "startupProbe": late}))
    await told(box, "post", "FailedPostStartHook", "PostStartHook failed")
    await box.phase("post", "Failed")
    await told(box, "post", "Killing", "FailedPostStartHook")
    await told(
        box, "pre", "Unhealthy", 'Startup probe failed: command timed out: "sleep 30" timed out after 1s'
    )
    found = await box.get("pre")
    assert (found["status"]["phase"], found["status"]["containerStatuses"][0]["started"]) == (
        "Running",
        False,
    )
    await box.client.delete(PODS, "pre", "default")
    await told(box, "pre", "FailedPreStopHook", "PreStopHook failed")
    await box.gone("pre")


async def test_a_stop_hook_that_an_agent_left_is_carried_out_by_the_next(
    box: NodeBox, tmp_path: Path
) -> None:
    """As in the kubelet, the agent that ends the container runs its hook, from the beginning."""
    told_by, end = tmp_path / "told", tmp_path / "end"
    word = f"echo bye >> {told_by}; while test ! -e {end}; do sleep 0.1; done"
    hooks = {"preStop": {"exec": {"command": ["sh", "-c", word]}}}
    await box.create(
        pod("p", "sleep", "600", container={"lifecycle": hooks}, terminationGracePeriodSeconds=50)
    )
    await until(box, "p", lambda c: c["ready"])
    await box.client.delete(PODS, "p", "default")
    await box.until(told_by.exists)
    await box.kill_agent()
    await box.start_agent()
    await box.until(lambda: told_by.read_text().split() == ["bye", "bye"])
    end.touch()
    await box.gone("p")


async def test_readiness_gates_wait_for_whoever_sets_them(box: NodeBox) -> None:
    await box.create(pod("g", "sleep", "600", readinessGates=[{"conditionType": "example.com/warm"}]))
    found = await until(box, "g", lambda c: c["ready"])
    assert ready_condition(found)["reason"] == "ReadinessGatesNotReady"
    change = {"status": {"conditions": [{"type": "example.com/warm", "status": "True"}]}}
    await box.client.patch(PODS, "g", change, "default", kind="strategic", subresource="status")

    async def opened() -> bool:
        return ready_condition(await box.get("g"))["status"] == "True"

    await box.until(opened)


async def test_what_an_agent_without_probes_left_stays_ready_and_is_probed_from_now_on(
    box: NodeBox, tmp_path: Path
) -> None:
    """An upgrade: neither the pod's record nor its attempt's says anything about probes."""
    seen = tmp_path / "seen"
    words = f"until test -e {seen}; do sleep 0.1; done; echo asked; exit 1"
    probe = {
        "exec": {"command": ["sh", "-c", words]},
        "periodSeconds": 2,
        "failureThreshold": 1,
    }
    await box.create(pod("old", "sleep", "600"))
    found = await until(box, "old", lambda c: c["ready"])
    await box.kill_agent()
    folder = box.state.node / "pods" / found["metadata"]["uid"]
    for path, left_out in (
        (folder / "pod.json", "health"),
        (folder / "containers/main/0/spec.json", "commands"),
    ):
        record = json.loads(path.read_bytes())
        del record[left_out]
        if left_out == "health":
            record["pod"]["spec"]["containers"][0]["readinessProbe"] = {**probe, "timeoutSeconds": 60}
        path.write_text(json.dumps(record))
    before, starting = box.agent, asyncio.ensure_future(box.start_agent())
    while box.agent is None or box.agent is before or not box.agent.ready.is_set():
        await asyncio.sleep(0)
    assert box.agent.workers[found["metadata"]["uid"]].machine.containers["main"].health.ready
    seen.touch()
    await starting
    await until(box, "old", lambda c: not c["ready"])
    await told(box, "old", "Unhealthy", "Readiness probe failed: asked")
