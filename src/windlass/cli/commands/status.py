"""``windlass status``: is it well, what is there, who waits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from windlass import __version__
from windlass.api import quantities
from windlass.api.error_codes import exit_status_of
from windlass.api.errors import StatusError, WindlassError
from windlass.api.resources import NODES, PODS
from windlass.cli import errors, resources, tables
from windlass.cli.install.objects import DEPLOYMENTS, PART_OF
from windlass.cli.invocation import Invocation
from windlass.cli.nodes.device_counts import NodeDeviceCounts
from windlass.cli.options import standard
from windlass.cli.output.formats import emit
from windlass.cli.queues.queues import gather
from windlass.cli.text import natural_key, plural, timestamp
from windlass.client.transport import Request
from windlass.kits.timestamps import age


@click.command("status")
@standard(namespace=False)
def command(invocation: Invocation) -> int:
    """Show health, capacity and queues."""
    record = gather_status(invocation)
    if invocation.structured:
        emit(invocation, record, names=[str(record["server"].get("url", ""))])
    else:
        invocation.out.write(as_text(invocation, record))
    if record["healthy"]:
        return errors.OK
    return exit_status_of(record["problems"][0]["code"]) if record["problems"] else errors.UNREACHABLE


def gather_status(invocation: Invocation) -> dict[str, Any]:
    """Everything that the command shows; never raises for a server that is away."""
    record: dict[str, Any] = {"version": __version__, "healthy": False, "server": {}, "problems": []}
    if not invocation.target.remote:
        record["state"] = str(invocation.target.state.path)
        record["server"] = _supervisor(invocation)
    for part, look in _PARTS.items():
        if part == "installed" and not invocation.target.remote:
            continue
        try:
            found = look(invocation)
        except StatusError as error:
            told = errors.translate(error, invocation.client)
        except WindlassError as error:
            told = error
        else:
            (record["server"] if part == "version" else record)[part] = found
            continue
        problem = errors.with_target(told, invocation.surroundings).as_dict()
        problem["remedies"] = [one for one in problem["remedies"] if not _this_command(one)]
        record["problems"].append(problem)
        if not record["server"].get("version"):
            break  # nobody answers
    record["healthy"] = record.get("readiness") == "ok" and not record["problems"]
    return record


def _this_command(remedy: str) -> bool:
    """``windlass status``, and the same with flags that name a box."""
    return remedy.startswith("windlass ") and remedy.endswith(" status")


def _supervisor(invocation: Invocation) -> dict[str, Any]:
    from windlass.kits.processes import is_alive

    found = invocation.target.state.read_supervisor() or {}
    if not found.get("pid") or not is_alive(found["pid"], found.get("startTicks")):
        return {"running": False}
    kept = ("pid", "started", "url", "socket", "kubeconfig", "node", "processes")
    return {"running": True, **{key: found.get(key) for key in kept}}


def _version(invocation: Invocation) -> dict[str, Any]:
    import msgspec

    return msgspec.json.decode(invocation.client.call(Request("GET", "/version")))


def _readiness(invocation: Invocation) -> str:
    try:
        invocation.client.call(Request("GET", "/readyz"))
    except StatusError as error:
        return error.message or f"HTTP {error.code}"
    return "ok"


def _installed(invocation: Invocation) -> list[dict[str, Any]] | None:
    """The Deployments of Windlass in a cluster; ``None`` where they cannot be seen."""
    client = invocation.client
    found = errors.if_served(lambda: client.list(DEPLOYMENTS, labels=PART_OF).items, None)
    if found is None:
        return None
    return [
        {
            "name": one["metadata"]["name"],
            "namespace": one["metadata"]["namespace"],
            "version": one["metadata"]["labels"].get("app.kubernetes.io/version", ""),
            "replicas": one["spec"].get("replicas", 1),
            "ready": (one.get("status") or {}).get("readyReplicas", 0),
        }
        for one in found
    ]


def _capacity(invocation: Invocation) -> dict[str, Any]:
    nodes = invocation.client.list(NODES).items
    pods = [pod for pod in invocation.client.list(PODS).items if resources.holds_resources(pod)]
    have = resources.total(resources.allocatable(node) for node in nodes)
    places = {node["metadata"]["name"]: node for node in nodes}
    on: dict[str, resources.Vector] = {}
    for pod in pods:
        name = pod["spec"]["nodeName"]
        on[name] = quantities.add(on.get(name, {}), resources.effective_request(pod, places.get(name)))
    used = resources.total(on.values())
    cards = [NodeDeviceCounts(places.get(name, {}), on.get(name, {})) for name in {**places, **on}]
    ready = sum(1 for node in nodes if _ready(node))
    return {
        "nodes": len(nodes),
        "nodesReady": ready,
        "pods": len(pods),
        "gpus": sum(one.total for one in cards) / 1000,
        "gpusUsed": sum(one.used for one in cards) / 1000,
        "cpu": quantities.from_units("cpu", have.get("cpu", 0)),
        "cpuUsed": quantities.from_units("cpu", used.get("cpu", 0)),
        "memory": quantities.from_units("memory", have.get("memory", 0)),
        "memoryUsed": quantities.from_units("memory", used.get("memory", 0)),
    }


def _ready(node: dict[str, Any]) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def _queues(invocation: Invocation) -> list[dict[str, Any]]:
    return [share.as_record() for share in sorted(gather(invocation), key=lambda s: natural_key(s.name))]


_PARTS: Mapping[str, Callable[[Invocation], Any]] = {
    "version": _version,
    "readiness": _readiness,
    "installed": _installed,
    "capacity": _capacity,
    "queues": _queues,
}
"""What is shown, each of which may fail by itself."""


def as_text(invocation: Invocation, record: dict[str, Any]) -> str:
    server = record["server"]
    now = invocation.clock.now()
    running = server.get("running", "version" in server)
    health = "well" if record.get("readiness") == "ok" else record.get("readiness") or "not running"
    up = f", up {age(now - timestamp(server['started']))}" if server.get("started") else ""
    version = (server.get("version") or {}).get("gitVersion", "")
    capacity = record.get("capacity")
    remote = invocation.target.remote
    lines = [
        ("API server" if remote else "Control plane", f"{health}{up}" if running else "not running"),
        ("Windlass", _deployments(record.get("installed"))),
        ("Version", f"windlass {record['version']}" + (f", Kubernetes API {version}" if version else "")),
        ("Server", server.get("url") or ""),
        ("Kubeconfig", server.get("kubeconfig") or ""),
        ("State", record.get("state", "")),
        ("Processes", _processes(server.get("processes") or {})),
    ]
    if capacity:
        lines += [
            ("Nodes", f"{capacity['nodesReady']} of {capacity['nodes']} ready"),
            ("GPUs", f"{round(capacity['gpusUsed'], 3):g} of {capacity['gpus']:g} in use"),
            ("CPUs", f"{capacity['cpuUsed']} of {capacity['cpu']} requested"),
            ("Memory", f"{_gib(capacity['memoryUsed'])} of {_gib(capacity['memory'])} requested"),
            ("Pods", plural(capacity["pods"], "pod")),
        ]
    text = tables.pairs(lines)
    if record.get("queues"):
        rows = [
            [q["name"], q["state"], str(q["weight"]), str(q["running"]), str(q["pending"])]
            for q in record["queues"]
        ]
        text += "\n" + tables.render(("QUEUE", "STATE", "WEIGHT", "RUNNING", "PENDING"), rows)
    for problem in record["problems"]:
        error = WindlassError(
            problem["code"], problem["message"], evidence=problem["evidence"], remedies=problem["remedies"]
        )
        text += "\n" + errors.as_text(error)
    return text


def _deployments(found: list[dict[str, Any]] | None) -> str:
    """Empty where nothing is known of it, so that no line is shown."""
    if found == []:
        return "not installed"
    return "\n".join(
        f"{one['namespace']}/{one['name']} {one['version']}: {one['ready']} of {one['replicas']} ready"
        for one in found or ()
    )


def _processes(found: dict[str, Any]) -> str:
    parts = []
    for role, process in found.items():
        restarts = process.get("restarts") or 0
        again = f" ({plural(restarts, 'restart')}, last {process.get('lastEnd')})" if restarts else ""
        parts.append(f"{role} {process.get('pid') or 'down'}{again}")
    return "\n".join(parts)


def _gib(text: str) -> str:
    return f"{quantities.to_units('memory', text) / 2**30:.1f}Gi"
