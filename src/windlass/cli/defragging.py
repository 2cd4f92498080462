"""What ``windlass defrag`` reads and prints: a cluster → what is stranded, and a plan of moves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from windlass.cli import livecluster, tables
from windlass.cli.invocation import Invocation
from windlass.cli.planning import enter
from windlass.cli.stranded import SENTENCES
from windlass.cli.words import plural
from windlass.engine.config import EngineConfig
from windlass.engine.engine import Engine
from windlass.engine.view import TableView
from windlass.model.cluster import ClusterModel
from windlass.model.snapshot import EVERY_SCHEDULER, Counted, load
from windlass.plugins.stranding import strandings
from windlass.sim.defragplan import Gain, plan


def report(invocation: Invocation, files: Sequence[str], budget: float, everybody: bool) -> dict[str, Any]:
    """The document. Raises :class:`~windlass.api.errors.WindlassError`, ``StatusError``, ``Unreachable``."""
    model = ClusterModel(EVERY_SCHEDULER)
    if files:
        for name in files:
            enter(model, name, Counted())
    else:
        load(model, livecluster.objects(invocation.client, invocation.warn))
    now = invocation.clock.now()
    deltas = model.take(now)
    orphans = {key for key, pod in model.pods.items() if pod.controller is None}
    found = plan(deltas, now, budget / 100.0, everybody=everybody, orphans=orphans)
    engine = Engine(EngineConfig(), ())
    engine.apply(deltas)
    view = TableView(engine.world.table)
    lost = strandings(((cls.needs, cls.tasks) for cls in engine.world.classes), view)
    nodes = [
        {"node": name, "idleGpus": int(lost.idle[at]) / 1000, "strandedGpus": _gpus(lost.reasons(at))}
        for at, name in enumerate(view.names())
        if name and lost.reasons(at)
    ]
    return {
        "idleGpus": int(lost.idle.sum()) / 1000,
        "fragmentedGpus": round(float(lost.fragmented.sum()) / 1000, 3),
        "strandedGpus": _sum(node["strandedGpus"] for node in nodes),
        "nodes": nodes,
        "budgetPercent": budget,
        "runningGpus": found.running_gpus,
        "runningPods": found.running_pods,
        "movablePods": found.movable_pods,
        "fitsWithoutMovesGpus": found.fit_gpus,
        "movedGpus": round(found.moved_gpus, 3),
        "movedPods": sum(len(gain.moves) for gain in found.gains),
        "gainedGpus": round(found.gained_gpus, 3),
        "gains": [_gain(gain) for gain in found.gains],
    }


def _gpus(reasons: Mapping[str, int]) -> dict[str, float]:
    return {name: milli / 1000 for name, milli in reasons.items()}


def _sum(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for part in parts:
        for name, gpus in part.items():
            found[name] = round(found.get(name, 0.0) + gpus, 3)
    return found


def _gain(gain: Gain) -> dict[str, Any]:
    moves = [{"pod": m.pod, "from": m.source, "to": m.target, "gpus": m.gpus} for m in gain.moves]
    return {"node": gain.node, "gpus": gain.gpus, "cpu": gain.cpu, "waits": gain.waits, "moves": moves}


def as_text(found: Mapping[str, Any]) -> str:
    """For people: what is stranded and why, then the moves."""
    lines = [f"{found['idleGpus']:g} GPUs are idle, {found['fragmentedGpus']:g} of them fragmented.\n"]
    for name, gpus in sorted(found["strandedGpus"].items(), key=lambda item: -item[1]):
        lines.append(f"  {gpus:g} stranded: {SENTENCES[name]}\n")
    if found["nodes"]:
        rows = [
            [n["node"], f"{n['idleGpus']:g}", " ".join(f"{g:g} {r}" for r, g in n["strandedGpus"].items())]
            for n in found["nodes"]
        ]
        lines.append(tables.render(["NODE", "IDLE", "STRANDED"], rows, right=frozenset((1,))))
    if not found["gains"]:
        lines.append(
            f"No moves within {found['budgetPercent']:g}% of the running GPUs would help: of "
            f"{plural(found['runningPods'], 'pod')} that run, {found['movablePods']} may be moved.\n"
        )
        return "".join(lines)
    rows = [
        [move["pod"], move["from"], move["to"], f"{move['gpus']:g}", _room(gain)]
        for gain in found["gains"]
        for move in gain["moves"]
    ]
    lines.append(tables.render(["MOVE", "FROM", "TO", "GPUS", "MAKES ROOM FOR"], rows, right=frozenset((3,))))
    lines.append(
        f"{plural(found['movedPods'], 'pod')} with {found['movedGpus']:g} of {found['runningGpus']:g} running GPUs "
        f"would move; {found['gainedGpus']:g} idle GPUs become usable.\n"
    )
    return "".join(lines)


def _room(gain: Mapping[str, Any]) -> str:
    return f"{gain['gpus']:g} on {gain['node']}{' for one that waits' if gain['waits'] else ''}"
