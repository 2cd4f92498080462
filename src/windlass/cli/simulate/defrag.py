"""Report of ``windlass defrag``: stranded GPUs of a cluster, and a plan of moves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil
from typing import Any

import numpy as np

from windlass.api.quantities import is_device
from windlass.cli import tables
from windlass.cli.invocation import Invocation
from windlass.cli.nodes.stranded import SENTENCES
from windlass.cli.simulate import live_cluster
from windlass.cli.simulate.plan import add_file
from windlass.cli.text import plural
from windlass.engine.config import EngineConfig
from windlass.engine.engine import Engine
from windlass.engine.groups.entries import PENDING
from windlass.engine.nodes.view import TableView
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.cluster.snapshot import EVERY_SCHEDULER, Counted, load
from windlass.model.cluster.task_builder import OF_NODES
from windlass.plugins.devices.stranding import strandings
from windlass.sim.defragmentation.defragment_plan import Gain, plan
from windlass.spi.nodes import BoolArray

SHOWN_PODS = 5
"""Maximum number of waiting pods that are named."""


def report(invocation: Invocation, files: Sequence[str], budget: float, everybody: bool) -> dict[str, Any]:
    """Return the document.

    Raises :class:`~windlass.api.errors.WindlassError`, ``StatusError`` and
    ``Unreachable``.
    """
    model = ClusterModel(EVERY_SCHEDULER)
    if files:
        for name in files:
            add_file(model, name, Counted())
    else:
        load(model, live_cluster.objects(invocation.client, invocation.warn))
    now = invocation.clock.now()
    deltas = model.take(now)
    found = plan(deltas, now, budget / 100.0, everybody=everybody, fixed=dict(_fixed(model)))
    engine = Engine(EngineConfig(), ())
    engine.apply(deltas)
    view = TableView(engine.state.table)
    stranded = strandings(((cls.needs, cls.tasks) for cls in engine.state.classes), view)
    accepts_pods = view.ready() & ~view.unschedulable()
    nodes = [
        {
            "node": name,
            "idleGpus": int(stranded.idle[row]) / 1000,
            "strandedGpus": _gpus(stranded.reasons(row)),
        }
        for row, name in enumerate(view.names())
        if name and accepts_pods[row] and stranded.reasons(row)
    ]
    return {
        "idleGpus": int(stranded.idle[accepts_pods].sum()) / 1000,
        "closedGpus": int(stranded.idle[~accepts_pods].sum()) / 1000,
        "fragmentedGpus": round(float(stranded.fragmented[accepts_pods].sum()) / 1000, 3),
        "strandedGpus": _sum(node["strandedGpus"] for node in nodes),
        "nodes": nodes,
        "waitingPods": [*_waiting(engine, view, accepts_pods)],
        "budgetPercent": budget,
        "runningGpus": found.running_gpus,
        "runningPods": found.running_pods,
        "movablePods": found.movable_pods,
        "stayingPods": dict(found.staying),
        "smallestMovableGpus": found.least_gpus,
        "fitsWithoutMovesGpus": found.fit_gpus,
        "movedGpus": round(found.moved_gpus, 3),
        "movedPods": sum(len(gain.moves) for gain in found.gains),
        "gainedGpus": round(found.gained_gpus, 3),
        "gains": [_gain(gain) for gain in found.gains],
    }


def _waiting(engine: Engine, view: TableView, usable: BoolArray) -> Iterator[dict[str, Any]]:
    """Yield the pending pods for which enough GPUs are idle, but not on one node."""
    for key, entry in sorted(engine.state.tasks.items()):
        if entry.state is not PENDING:
            continue
        for name, units in entry.cls.items:
            if not is_device(name):
                continue
            idle = np.maximum(view.available(name), 0)[usable]
            largest, total = int(idle.max(initial=0)), int(idle.sum())
            if largest < units <= total:
                yield {"pod": key, "gpus": units / 1000, "largestIdleGpus": largest / 1000}


def _fixed(model: ClusterModel) -> Iterator[tuple[str, str]]:
    """Yield the pods that cannot be moved, with the reason."""
    for key, pod in model.objects.pods.items():
        owner = pod.controller
        if owner is None:
            yield key, "orphan"
        elif owner.kind in OF_NODES:
            yield key, "node"
        elif any(
            _is_shared_claim(model, claim.key, key) for claim in model.features.claims.index.claims_of(pod)
        ):
            yield key, "claim"


def _is_shared_claim(model: ClusterModel, claim: str, user: str) -> bool:
    """Return whether a ResourceClaim has another running user.

    Its devices then stay in place.
    """
    others = [
        model.objects.pods[key]
        for key in model.features.claims.index.users_of(claim)
        if key != user and key in model.objects.pods
    ]
    return any(pod.node_name and not pod.finished for pod in others)


def _gpus(reasons: Mapping[str, int]) -> dict[str, float]:
    return {name: milli / 1000 for name, milli in reasons.items()}


def _sum(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for amounts in parts:
        for name, gpus in amounts.items():
            sums[name] = round(sums.get(name, 0.0) + gpus, 3)
    return sums


def _gain(gain: Gain) -> dict[str, Any]:
    moves = [{"pod": m.pod, "from": m.source, "to": m.target, "gpus": m.gpus} for m in gain.moves]
    return {
        "node": gain.node,
        "gpus": gain.gpus,
        "cpu": gain.cpu,
        "waits": bool(gain.waits),
        "pod": gain.waits,
        "moves": moves,
    }


def as_text(found: Mapping[str, Any]) -> str:
    """Return the report for people: stranded GPUs with reasons, then the moves."""
    lines = [f"{_gpus_are(found['idleGpus'])} idle, {found['fragmentedGpus']:g} of them fragmented.\n"]
    if found["closedGpus"]:
        lines.append(f"{_gpus_are(found['closedGpus'])} idle on nodes that are cordoned or not ready.\n")
    for name, gpus in sorted(found["strandedGpus"].items(), key=lambda item: -item[1]):
        lines.append(f"  {gpus:g} stranded: {SENTENCES[name]}\n")
    if found["nodes"]:
        rows = [
            [n["node"], f"{n['idleGpus']:g}", " ".join(f"{g:g} {r}" for r, g in n["strandedGpus"].items())]
            for n in found["nodes"]
        ]
        lines.append(tables.render(["NODE", "IDLE", "STRANDED"], rows, right=frozenset((1,))))
    if not found["gains"]:
        return "".join([*lines, *_no_moves(found)])
    rows = [
        [move["pod"], move["from"], move["to"], f"{move['gpus']:g}", _freed_text(gain)]
        for gain in found["gains"]
        for move in gain["moves"]
    ]
    lines.append(
        tables.render(["POD", "FROM", "TO", "GPUS", "FREES CAPACITY FOR"], rows, right=frozenset((3,)))
    )
    lines.append(
        f"{plural(found['movedPods'], 'pod')} with {found['movedGpus']:g} of {found['runningGpus']:g} running GPUs "
        f"would move; {found['gainedGpus']:g} idle {_become(found['gainedGpus'])} usable.\n"
    )
    return "".join(lines)


STAYING = {
    "unasked": 'not marked as movable (annotation windlass.dev/movable: "true" on the pod or its group)',
    "gang": "in a group of several pods, which is not moved in part",
    "orphan": "without a controller that would recreate them elsewhere",
    "node": "DaemonSet or static pods, which belong to their node",
    "firm": "not preemptible",
    "pinned": 'not safe to evict (annotation cluster-autoscaler.kubernetes.io/safe-to-evict: "false")',
    "foreign": "placed by another scheduler",
    "unsettled": "starting or terminating",
    "claim": "users of a ResourceClaim that other pods also use",
    "budget": "covered by a PodDisruptionBudget that allows no eviction now",
}
"""Reason why a pod is not moved → text after the number of such pods."""


def _no_moves(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield why no moves would help, and what to try."""
    running, smallest = found["runningGpus"], found["smallestMovableGpus"]
    allowed = found["budgetPercent"] / 100 * running
    yield (
        f"No moves within {found['budgetPercent']:g}% of the running GPUs ({round(allowed, 3):g} of {running:g})"
        f" would help: {found['movablePods']} of {plural(found['runningPods'], 'running pod')} may be moved.\n"
    )
    blocked = found["waitingPods"]
    for pod in blocked[:SHOWN_PODS]:
        needed, largest = _gpus_text(pod["gpus"]), pod["largestIdleGpus"]
        yield f"  {pod['pod']} waits for {needed} on one node; the most that one node has idle is {largest:g}\n"
    if len(blocked) > SHOWN_PODS:
        yield f"  {len(blocked) - SHOWN_PODS} more pods wait likewise\n"
    if not blocked and found["idleGpus"] and found["fitsWithoutMovesGpus"] >= found["idleGpus"]:
        yield f"  all {found['idleGpus']:g} idle GPUs can be used by pods of the usual kinds without any move\n"
    for reason, count in found["stayingPods"].items():
        yield f"  {count} {'is' if count == 1 else 'are'} {STAYING[reason]}\n"
    if smallest is not None and smallest > allowed:
        percent = ceil(100 * smallest / running)
        yield (
            f"The smallest movable pod with GPUs has {smallest:g}, which exceeds this budget: "
            f"windlass defrag --plan --budget {percent}\n"
        )
    if "unasked" in found["stayingPods"]:
        yield "To plan as if all pods were movable: `windlass defrag --plan --everybody`\n"


def _gpus_text(gpus: float) -> str:
    return "1 GPU" if gpus == 1 else f"{gpus:g} GPUs"


def _gpus_are(gpus: float) -> str:
    return "1 GPU is" if gpus == 1 else f"{gpus:g} GPUs are"


def _become(gpus: float) -> str:
    return "GPU becomes" if gpus == 1 else "GPUs become"


def _freed_text(gain: Mapping[str, Any]) -> str:
    return f"{gain['gpus']:g} on {gain['node']}{' for ' + gain['pod'] if gain['waits'] else ''}"
