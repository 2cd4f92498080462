"""Table of ``windlass node ls``.

``_HEADER`` holds the columns, ``_record`` returns the record of a node with their
values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from windlass.api import quantities
from windlass.api.annotations import SIMULATED
from windlass.api.devices.models import NVIDIA
from windlass.api.resources import NODES, PODS
from windlass.cli import resources
from windlass.cli.invocation import Invocation
from windlass.cli.nodes import overcommitted
from windlass.cli.nodes.device_counts import NodeDeviceCounts
from windlass.cli.nodes.dra_devices import ListedGpus, claims_of, listed_gpus, slices_of
from windlass.cli.output import wide_tables
from windlass.cli.output.formats import emit
from windlass.cli.text import age_of, condition, natural_key
from windlass.node.devices.simulated import PRODUCT

if TYPE_CHECKING:
    from windlass.cli.nodes.stranded import Stranded

_HEADER = (
    *("NODE", "STATE", "GPUS", "FREE", "UNITS", "STRANDED", "CPU", "MEMORY", "PODS", "AGE"),
    *("PRODUCT", "HELD BY"),
)


def show(invocation: Invocation) -> int:
    """Print the table and return the exit status."""
    nodes = sorted(invocation.client.list(NODES).items, key=lambda n: natural_key(n["metadata"]["name"]))
    pods = invocation.client.list(PODS).items
    pods_by_node: dict[str, list[dict[str, Any]]] = {}
    for pod in pods:
        if not resources.holds_resources(pod):
            continue
        pods_by_node.setdefault(pod["spec"]["nodeName"], []).append(pod)
    slices = slices_of(invocation.client)
    listed = listed_gpus(claims_of(invocation.client, slices), pods_by_node) if slices else {}
    stranded = _stranded(nodes, pods)
    records = [
        _record(node, pods_by_node.get(name, []), stranded.get(name), listed.get(name, ListedGpus()))
        for node in nodes
        for name in (node["metadata"]["name"],)
    ]
    if invocation.structured:
        records = [{**record, "units": [counts.record for counts in record["units"]]} for record in records]
        emit(invocation, {"items": records}, names=[f"node/{r['name']}" for r in records])
        return 0
    if not records:
        invocation.note("No nodes. To add simulated ones: windlass node add-simulated --count 4 --gpus 8")
        return 0
    now = invocation.clock.now()
    header, rows = _table(nodes, records, stranded, now)
    optional = ("PRODUCT", "AGE", "PODS", "MEMORY", "CPU", "STRANDED")
    wide_tables.show(invocation, header, rows, optional=optional, right=("GPUS", "FREE"))
    for record in records:
        if "overcommitted" in record:
            invocation.warn(overcommitted.warning(record["name"], record["overcommitted"]))
    if any(counts.total for counts in stranded.values()):
        from windlass.cli.nodes.stranded import summary

        invocation.note(summary(stranded.values()))
    return 0


def _table(
    nodes: Sequence[Mapping[str, Any]],
    records: Sequence[Mapping[str, Any]],
    idle: Mapping[str, Stranded],
    now: float,
) -> tuple[list[str], list[list[str]]]:
    """Return header and rows.

    The column UNITS exists if a node has units, PRODUCT if a node names a product.
    """
    omitted = {
        *(() if any(record["units"] for record in records) else ("UNITS",)),
        *(() if any(record["product"] not in (None, PRODUCT) for record in records) else ("PRODUCT",)),
    }
    rows = [
        [
            record["name"],
            record["state"],
            _gpus_text(record["gpus"]) if record["gpus"] else "-",
            _gpus_text(record["gpusFree"]) if record["gpus"] else "-",
            ", ".join(counts.text for counts in record["units"]) or "-",
            idle[record["name"]].text if record["name"] in idle else "-",
            f"{record['cpuUsed']}/{record['cpu']}",
            f"{_gib(record['memoryUsedBytes'])}/{_gib(record['memoryBytes'])}Gi",
            str(record["pods"]),
            age_of(node, now),
            record["product"] or "-",
            " ".join(record["holders"]),
        ]
        for node, record in zip(nodes, records, strict=True)
    ]
    shown = [column for column, name in enumerate(_HEADER) if name not in omitted]
    return [_HEADER[column] for column in shown], [[row[column] for column in shown] for row in rows]


def product_of(node: Mapping[str, Any]) -> str | None:
    """Return the product of the node's accelerators, from their labels; ``None`` if no label names it."""
    labels = node["metadata"].get("labels") or {}
    products = [
        labels[label]
        for resource in sorted(resources.allocatable(node), key=lambda name: name != NVIDIA)
        for label in (f"{resource}.product", f"{resource}.product-name")
        if labels.get(label)
    ]
    if not products and labels.get(f"{NVIDIA}.product"):  # all GPUs are in MIG mode, or unhealthy
        products = [labels[f"{NVIDIA}.product"]]
    return ", ".join(dict.fromkeys(products)) or None


def _stranded(nodes: list[dict[str, Any]], pods: list[dict[str, Any]]) -> Mapping[str, Stranded]:
    """Return the stranded GPUs of each node with idle GPUs; empty if no node has GPUs."""
    if not any(resources.devices(resources.allocatable(node)) for node in nodes):
        return {}
    from windlass.cli.nodes.stranded import stranded

    return stranded(nodes, pods)


def _gib(value: int) -> str:
    return f"{value / 2**30:.0f}"


def _gpus_text(gpus: float) -> str:
    """Return a number of GPUs for people: ``8``, ``0.5``, ``1.429``."""
    return f"{round(gpus, 3):g}"


def _record(
    node: Mapping[str, Any], pods: list[dict[str, Any]], stranded: Stranded | None, listed: ListedGpus
) -> dict[str, Any]:
    """Return the record of one node, for the table and for ``-o json``.

    ``units`` holds :class:`windlass.cli.nodes.device_counts.UnitCounts`.
    """
    have = resources.allocatable(node)
    held = [resources.effective_request(pod, node) for pod in pods]
    used = resources.total(held)
    counts = NodeDeviceCounts(node, used)
    holders: dict[str, int] = {}
    for pod, request in zip(pods, held, strict=True):
        by_claims = listed.held.get(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}", 0)
        if milli := counts.milli_of(request) + by_claims:
            labels = pod["metadata"].get("labels") or {}
            name = labels.get("volcano.sh/job-name") or pod["metadata"]["name"]
            holders[name] = holders.get(name, 0) + milli
    free = counts.usable + listed.milli - counts.used - sum(listed.held.values())
    excess = overcommitted.excess(node, pods)
    return {
        "name": node["metadata"]["name"],
        "state": state_of(node) + (",Overcommitted" if excess else ""),
        "simulated": (node["metadata"].get("labels") or {}).get(SIMULATED) == "true",
        "product": product_of(node),
        "gpus": (counts.total + listed.milli) / 1000,
        "gpusFree": max(0, free) / 1000,
        "units": counts.unit_counts,
        **({"stranded": stranded.record} if stranded is not None else {}),
        **({"overcommitted": excess} if excess else {}),
        "cpu": quantities.from_units("cpu", have.get("cpu", 0)),
        "cpuUsed": quantities.from_units("cpu", used.get("cpu", 0)),
        "memoryBytes": have.get("memory", 0),
        "memoryUsedBytes": used.get("memory", 0),
        "pods": len(pods),
        "holders": [f"{name}({_gpus_text(milli / 1000)})" for name, milli in sorted(holders.items())],
    }


def state_of(node: Mapping[str, Any]) -> str:
    ready = condition(node, "Ready")
    state = "Ready" if ready is not None and ready.get("status") == "True" else "NotReady"
    return f"{state},Cordoned" if (node.get("spec") or {}).get("unschedulable") else state
