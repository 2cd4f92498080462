"""RDMA of a job for users: its network preset, and the RDMA islands of its nodes."""

from __future__ import annotations

from typing import Any

from windlass.api import network_presets
from windlass.api.annotations import RDMA_CAPABLE
from windlass.api.resources import NODES
from windlass.cli.errors import unless_forbidden
from windlass.cli.invocation import Invocation
from windlass.cli.jobs.jobs import Job
from windlass.cli.text import join_words, natural_key, nodes_text, plural


def network_record(invocation: Invocation, job: Job) -> dict[str, Any] | None:
    """Return the network preset of a job and the nodes of each RDMA island.

    ``None`` for a job without a preset. ``islands``: for a job with nodes, the islands
    that its nodes are in. For a waiting job, all islands of the cluster.
    """
    preset = next((p for pod in job.pods if (p := network_presets.preset_of(pod["metadata"]))), "")
    if preset != network_presets.RDMA:
        return None
    islands: dict[str, list[str]] = {}
    without: list[str] = []
    for node in unless_forbidden(lambda: invocation.client.list(NODES).items, []):
        name = node["metadata"]["name"]
        if job.nodes and name not in job.nodes:
            continue
        island = network_presets.island_of(node["metadata"].get("labels") or {})
        if island:
            islands.setdefault(island, []).append(name)
        elif job.nodes:
            without.append(name)
    return {
        "preset": preset,
        "islandLabel": RDMA_CAPABLE,
        "islands": {name: sorted(islands[name], key=natural_key) for name in sorted(islands)},
        "nodesWithoutRdma": sorted(without, key=natural_key),
        "placed": bool(job.nodes),
    }


def network_text(record: dict[str, Any] | None) -> str:
    """Return the record for ``explain``, in one or two lines."""
    if record is None:
        return ""
    islands: dict[str, list[str]] = record["islands"]
    listed = "\n".join(
        f"RDMA island {record['islandLabel']}={name}: {nodes_text(dict.fromkeys(nodes, 1), most=20)}"
        for name, nodes in islands.items()
    )
    if not record["placed"]:
        known = listed or f"no node has the label {record['islandLabel']}, so any nodes are used"
        return f"{record['preset']}: nodes of one RDMA island are preferred\n{known}"
    without: list[str] = record["nodesWithoutRdma"]
    if without:
        verb = "does" if len(without) == 1 else "do"
        missing = f"{join_words(without)} {verb} not have the label {record['islandLabel']}"
        return "\n".join(filter(None, (f"{record['preset']}: {missing}", listed)))
    total = sum(len(nodes) for nodes in islands.values())
    where = "one RDMA island, as preferred" if len(islands) == 1 else f"{len(islands)} RDMA islands"
    return f"{record['preset']}: {plural(total, 'node')} in {where}\n{listed}"
