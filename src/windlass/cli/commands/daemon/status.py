"""``windlass status``: health, running parts by layer, capacity, queues."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from windlass import __version__
from windlass.api import quantities
from windlass.api.annotations import MIRROR
from windlass.api.error_codes import exit_status_of
from windlass.api.errors import StatusError, WindlassError
from windlass.api.resources import DEPLOYMENTS, NODES, PODS
from windlass.cli import errors, resources, tables
from windlass.cli.invocation import Invocation
from windlass.cli.job_kind_operators import gather_job_kinds
from windlass.cli.layers import gather_layers, layer_rows
from windlass.cli.nodes.device_counts import NodeDeviceCounts
from windlass.cli.nodes.own_node import deleted_node
from windlass.cli.options import standard
from windlass.cli.output.formats import emit
from windlass.cli.output.wide_tables import max_width
from windlass.cli.queues.queues import gather
from windlass.cli.text import natural_key, plural, timestamp
from windlass.client.transport import Request
from windlass.kits.timestamps import age


@click.command("status")
@standard(namespace=False)
def command(invocation: Invocation) -> int:
    """Show health, the running parts by layer, capacity and queues."""
    record = gather_status(invocation)
    if invocation.structured:
        emit(invocation, record, names=[str(record["server"].get("url", ""))])
    else:
        invocation.out.write(as_text(invocation, record))
    if record["healthy"]:
        return errors.OK
    return exit_status_of(record["problems"][0]["code"]) if record["problems"] else errors.UNREACHABLE


def gather_status(invocation: Invocation) -> dict[str, Any]:
    """Return the record of the command. Does not raise for an unreachable server."""
    record: dict[str, Any] = {"version": __version__, "healthy": False, "server": {}, "problems": []}
    if not invocation.target.remote:
        record["state"] = str(invocation.target.state.path)
        record["server"] = _supervisor(invocation)
    for part, gather_part in _PARTS.items():
        if part in ("installed", "jobKinds") and not invocation.target.remote:
            continue
        try:
            value = gather_part(invocation)
        except StatusError as error:
            problem_error = errors.translate(error, invocation.client)
        except WindlassError as error:
            problem_error = error
        else:
            (record["server"] if part == "version" else record)[part] = value
            continue
        problem = errors.with_target(problem_error, invocation.context).as_dict()
        problem["remedies"] = [remedy for remedy in problem["remedies"] if not _this_command(remedy)]
        record["problems"].append(problem)
        if not record["server"].get("version"):
            break  # no server responds
    if record.get("readiness") and (deleted := deleted_node(invocation)) is not None:
        record["problems"].append(errors.with_target(deleted, invocation.context).as_dict())
    record["layers"] = gather_layers(record, invocation)
    record["healthy"] = record.get("readiness") == "ok" and not record["problems"]
    return record


def _this_command(remedy: str) -> bool:
    """Return whether a remedy is ``windlass status``, with or without flags."""
    return remedy.startswith("windlass ") and remedy.endswith(" status")


def _supervisor(invocation: Invocation) -> dict[str, Any]:
    from windlass.kits.processes import is_alive

    record = invocation.target.state.read_supervisor() or {}
    if not record.get("pid") or not is_alive(record["pid"], record.get("startTicks")):
        return {"running": False}
    keys = ("pid", "started", "url", "socket", "kubeconfig", "node", "processes")
    return {"running": True, **{key: record.get(key) for key in keys}}


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
    """Return the Deployments of Windlass in a cluster; ``None`` if they are not visible."""
    from windlass.cli.install.objects import PART_OF

    client = invocation.client
    deployments = errors.if_served(lambda: client.list(DEPLOYMENTS, labels=PART_OF).items, None)
    if deployments is None:
        return None
    return [
        {
            "name": deployment["metadata"]["name"],
            "namespace": deployment["metadata"]["namespace"],
            "version": deployment["metadata"]["labels"].get("app.kubernetes.io/version", ""),
            "replicas": deployment["spec"].get("replicas", 1),
            "ready": (deployment.get("status") or {}).get("readyReplicas", 0),
        }
        for deployment in deployments
    ]


def _capacity(invocation: Invocation) -> dict[str, Any]:
    nodes = invocation.client.list(NODES).items
    pods = [pod for pod in invocation.client.list(PODS).items if resources.holds_resources(pod)]
    have = resources.total(resources.allocatable(node) for node in nodes)
    by_name = {node["metadata"]["name"]: node for node in nodes}
    used_by_node: dict[str, resources.Vector] = {}
    for pod in pods:
        name = pod["spec"]["nodeName"]
        used_by_node[name] = quantities.add(
            used_by_node.get(name, {}), resources.effective_request(pod, by_name.get(name))
        )
    used = resources.total(used_by_node.values())
    counts = [
        NodeDeviceCounts(by_name.get(name, {}), used_by_node.get(name, {}))
        for name in {**by_name, **used_by_node}
    ]
    ready = sum(1 for node in nodes if _ready(node))
    return {
        "nodes": len(nodes),
        "nodesReady": ready,
        "pods": sum(MIRROR not in (pod["metadata"].get("annotations") or {}) for pod in pods),
        "gpus": sum(node_counts.total for node_counts in counts) / 1000,
        "gpusUsed": sum(node_counts.used for node_counts in counts) / 1000,
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
    "jobKinds": gather_job_kinds,
    "capacity": _capacity,
    "queues": _queues,
}
"""Parts of the record; each may fail alone."""


def as_text(invocation: Invocation, record: dict[str, Any]) -> str:
    server = record["server"]
    now = invocation.clock.now()
    running = server.get("running", "version" in server)
    health = "healthy" if record.get("readiness") == "ok" else record.get("readiness") or "not running"
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
    header = ("LAYER", "PART", "STATE", "DETAILS")
    text += "\n" + tables.render(header, layer_rows(record["layers"]), width=max_width(invocation))
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
    """Return a line per Deployment; empty if unknown, so that no line is shown."""
    if found == []:
        return "not installed"
    return "\n".join(
        f"{deployment['namespace']}/{deployment['name']} {deployment['version']}: "
        f"{deployment['ready']} of {deployment['replicas']} ready"
        for deployment in found or ()
    )


def _gib(text: str) -> str:
    return f"{quantities.to_units('memory', text) / 2**30:.1f}Gi"
