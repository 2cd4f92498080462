"""The table of ``windlass node ls``: what each node has, and who holds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from windlass.api import quantities
from windlass.api.annotations import SIMULATED
from windlass.api.resources import NODES, PODS
from windlass.cli import resources
from windlass.cli.invocation import Invocation
from windlass.cli.nodes import overcommitted
from windlass.cli.nodes.device_counts import NodeDeviceCounts
from windlass.cli.nodes.dra_devices import ListedGpus, claims_of, listed_gpus, slices_of
from windlass.cli.output import wide_tables
from windlass.cli.output.formats import emit
from windlass.cli.text import age_of, condition, natural_key

if TYPE_CHECKING:
    from windlass.cli.nodes.stranded import Stranded

_HEADER = ("NODE", "STATE", "GPUS", "FREE", "UNITS", "STRANDED", "CPU", "MEMORY", "PODS", "AGE", "HELD BY")


def show(invocation: Invocation) -> int:
    """Print it; returns the exit status."""
    nodes = sorted(invocation.client.list(NODES).items, key=lambda n: natural_key(n["metadata"]["name"]))
    pods = invocation.client.list(PODS).items
    on: dict[str, list[dict[str, Any]]] = {}
    for pod in filter(resources.holds_resources, pods):
        on.setdefault(pod["spec"]["nodeName"], []).append(pod)
    slices = slices_of(invocation.client)
    listed = listed_gpus(claims_of(invocation.client, slices), on) if slices else {}
    idle = _stranded(nodes, pods)
    records = [
        _record(node, on.get(name, []), idle.get(name), listed.get(name, ListedGpus()))
        for node in nodes
        for name in (node["metadata"]["name"],)
    ]
    if invocation.structured:
        records = [{**record, "units": [one.record for one in record["units"]]} for record in records]
        emit(invocation, {"items": records}, names=[f"node/{r['name']}" for r in records])
        return 0
    if not records:
        invocation.note("No nodes. Add some: windlass node add-simulated --count 4 --gpus 8")
        return 0
    now = invocation.clock.now()
    header, rows = _table(nodes, records, idle, now)
    spare = ("AGE", "PODS", "MEMORY", "CPU", "STRANDED")
    wide_tables.show(invocation, header, rows, spare=spare, right=("GPUS", "FREE"))
    for record in records:
        if "overcommitted" in record:
            invocation.warn(overcommitted.warning(record["name"], record["overcommitted"]))
    if any(one.total for one in idle.values()):
        from windlass.cli.nodes.stranded import summary

        invocation.note(summary(idle.values()))
    return 0


def _table(
    nodes: Sequence[Mapping[str, Any]],
    records: Sequence[Mapping[str, Any]],
    idle: Mapping[str, Stranded],
    now: float,
) -> tuple[list[str], list[list[str]]]:
    """Header and rows. The column UNITS is there where a node has any."""
    rows = [
        [
            record["name"],
            record["state"],
            _few(record["gpus"]) if record["gpus"] else "-",
            _few(record["gpusFree"]) if record["gpus"] else "-",
            ", ".join(one.text for one in record["units"]) or "-",
            idle[record["name"]].text if record["name"] in idle else "-",
            f"{record['cpuUsed']}/{record['cpu']}",
            f"{_gib(record['memoryUsedBytes'])}/{_gib(record['memoryBytes'])}Gi",
            str(record["pods"]),
            age_of(node, now),
            " ".join(record["holders"]),
        ]
        for node, record in zip(nodes, records, strict=True)
    ]
    shown = [at for at, name in enumerate(_HEADER) if name != "UNITS" or any(r["units"] for r in records)]
    return [_HEADER[at] for at in shown], [[row[at] for at in shown] for row in rows]


def _stranded(nodes: list[dict[str, Any]], pods: list[dict[str, Any]]) -> Mapping[str, Stranded]:
    """What is stranded on each node with idle GPUs; nothing is looked at where no node has any."""
    if not any(resources.devices(resources.allocatable(node)) for node in nodes):
        return {}
    from windlass.cli.nodes.stranded import stranded

    return stranded(nodes, pods)


def _gib(value: int) -> str:
    return f"{value / 2**30:.0f}"


def _few(gpus: float) -> str:
    """A number of cards for people: ``8``, ``0.5``, ``1.429``."""
    return f"{round(gpus, 3):g}"


def _record(
    node: Mapping[str, Any], pods: list[dict[str, Any]], idle: Stranded | None, listed: ListedGpus
) -> dict[str, Any]:
    """What is told of one node; ``units`` holds :class:`windlass.cli.nodes.device_counts.UnitCounts`."""
    have = resources.allocatable(node)
    held = [resources.effective_request(pod, node) for pod in pods]
    used = resources.total(held)
    cards = NodeDeviceCounts(node, used)
    holders: dict[str, int] = {}
    for pod, request in zip(pods, held, strict=True):
        claimed = listed.held.get(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}", 0)
        if milli := cards.milli_of(request) + claimed:
            labels = pod["metadata"].get("labels") or {}
            name = labels.get("volcano.sh/job-name") or pod["metadata"]["name"]
            holders[name] = holders.get(name, 0) + milli
    free = cards.usable + listed.milli - cards.used - sum(listed.held.values())
    over = overcommitted.beyond(node, pods)
    return {
        "name": node["metadata"]["name"],
        "state": state_of(node) + (",Overcommitted" if over else ""),
        "simulated": (node["metadata"].get("labels") or {}).get(SIMULATED) == "true",
        "product": (node["metadata"].get("labels") or {}).get("nvidia.com/gpu.product"),
        "gpus": (cards.total + listed.milli) / 1000,
        "gpusFree": max(0, free) / 1000,
        "units": cards.sold,
        **({"stranded": idle.record} if idle is not None else {}),
        **({"overcommitted": over} if over else {}),
        "cpu": quantities.from_units("cpu", have.get("cpu", 0)),
        "cpuUsed": quantities.from_units("cpu", used.get("cpu", 0)),
        "memoryBytes": have.get("memory", 0),
        "memoryUsedBytes": used.get("memory", 0),
        "pods": len(pods),
        "holders": [f"{name}({_few(milli / 1000)})" for name, milli in sorted(holders.items())],
    }


def state_of(node: Mapping[str, Any]) -> str:
    ready = condition(node, "Ready")
    state = "Ready" if ready is not None and ready.get("status") == "True" else "NotReady"
    return f"{state},Cordoned" if (node.get("spec") or {}).get("unschedulable") else state
