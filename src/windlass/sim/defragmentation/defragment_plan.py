"""Plan of moves for the current cluster. Nothing is moved.

Probes represent pods: first the pending ones, then typical work, of the device kinds that run, the most frequent
first. On a separate engine they take the free capacity. The probes that are then admitted by moves are the gain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from msgspec.structs import replace as altered

from windlass.engine.config import EngineConfig
from windlass.engine.decision import Decision
from windlass.engine.deltas import (
    Delta,
    GroupRemoved,
    GroupUpserted,
    QueueUpserted,
    TaskRemoved,
    TaskUpserted,
)
from windlass.engine.engine import Engine
from windlass.engine.groups.entries import TaskEntry, tasks_by_row
from windlass.engine.nodes.view import TableView
from windlass.plugins.defaults import default_plugins
from windlass.plugins.devices.device_arrays import WHOLE
from windlass.plugins.queues.protection import MOVABLE
from windlass.sim.defragmentation.defragment import Defrag, hindrance
from windlass.sim.defragmentation.free_capacity import asked_for, asked_on, held_of, milli_of
from windlass.spi.objects import Group, Needs, Queue, Task, TaskState

QUEUE = "windlass-defrag-probes"
KINDS = 12
"""Maximum number of kinds of probes; each is repeated until one does not fit."""
PROBES = 2000
REFUSALS = 8
"""On so many nodes moves are tried for one pod of which the engine carries out none, at most."""
CONFIG = EngineConfig(
    actions=("allocate", "consolidation"), backfill="none", reports=False, claim_pause_seconds=0.0
)
UNASKED = "unasked"
"""Reason against moving a pod: its owner has not agreed."""


@dataclass(frozen=True, slots=True)
class PodMove:
    """One pod (``namespace/name``) from a node to another; the same for another device of its own. ``gpus``: what it
    has of devices."""

    pod: str
    source: str
    target: str
    gpus: float


@dataclass(frozen=True, slots=True)
class Gain:
    """Placement that one more pod gets after its moves.

    ``waits``: the pending pod (``namespace/name``); empty: a typical pod.
    """

    node: str
    gpus: float
    cpu: float
    moves: tuple[PodMove, ...]
    waits: str


@dataclass(frozen=True, slots=True)
class DefragmentPlan:
    """``running_gpus``: what is in use. ``fit_gpus``: what pods of the usual kinds could have without any move.
    ``running_pods``, ``movable_pods``: how many run, and how many of them may be moved; ``staying``: why the others may
    not → how many. ``least_gpus``: the fewest that one which may be moved has, of those that have any."""

    gains: tuple[Gain, ...]
    running_gpus: float
    fit_gpus: float
    running_pods: int
    movable_pods: int
    staying: Mapping[str, int]
    least_gpus: float | None

    @property
    def moved_gpus(self) -> float:
        return sum(move.gpus for gain in self.gains for move in gain.moves)

    @property
    def gained_gpus(self) -> float:
        return sum(gain.gpus for gain in self.gains)


def plan(
    deltas: Iterable[Delta],
    now: float,
    part: float,
    *,
    everybody: bool = False,
    fixed: Mapping[str, str] | None = None,
) -> DefragmentPlan:
    """Return the plan of moves for the cluster described by ``deltas``.

    ``part``: maximum part (0 to 1) of the running GPUs to move. ``everybody``: treat all work as movable (annotation
    ``windlass.dev/movable``). ``fixed``: pods that must stay, with the reason.
    """
    told, waiting = _settled(deltas, everybody)
    tasks = {delta.task.key: delta.task for delta in told if isinstance(delta, TaskUpserted)}
    fixed, unasked = dict(fixed or {}), _unasked(told, tasks)
    stay = fixed.keys() | unasked.keys()
    defrag = Defrag(part, stays=stay.__contains__)
    engine = _loaded(told, defrag)
    state = engine.state
    running = [entry for tasks in tasks_by_row(state.table) for entry in tasks.values()]
    view = TableView(state.table)
    defrag.running = sum(milli_of(entry) for entry in running)
    sources = {entry.key: (state.table.names[entry.row], milli_of(entry)) for entry in running}
    probes = [*waiting.items(), *_usual_probes(running)]
    why = {
        entry.key: fixed.get(entry.key) or hindrance(entry, state.budgets) or unasked.get(entry.key, "")
        for entry in running
    }
    staying = Counter(filter(None, why.values()))
    sizes = [milli for key, (_, milli) in sources.items() if milli and not why[key]]
    gains: list[Gain] = []
    fitting = number = 0
    for needs, names in probes:
        for waits in names[: PROBES - number]:
            number += 1
            decision = _probe(engine, defrag, number, needs, now)
            gain = _gain(decision, needs, view, sources, waits)
            if gain is None and not decision.binds:
                _forget(engine, number)
                break
            if gain is None:
                fitting += sum(
                    held_of(share) for bind in decision.binds for share in bind.devices
                ) or asked_for(needs)
            else:
                gains.append(gain)
                engine.apply([delta for move in gain.moves for delta in _away(tasks[move.pod])])
                engine.cycle(now)
                defrag.moved += round(WHOLE * sum(move.gpus for move in gain.moves))
                stay.update(move.pod for move in gain.moves)
    return DefragmentPlan(
        tuple(gains),
        defrag.running / WHOLE,
        fitting / WHOLE,
        len(running),
        len(running) - staying.total(),
        dict(staying.most_common()),
        min(sizes) / WHOLE if sizes else None,
    )


def _usual_probes(running: Sequence[TaskEntry]) -> Iterator[tuple[Needs, tuple[str, ...]]]:
    """Yield probes of the most frequent kinds of running pods with devices."""
    usual = Counter(entry.cls.needs for entry in running if asked_for(entry.cls.needs))
    for needs, _ in usual.most_common(KINDS):
        yield needs, ("",) * PROBES


def _loaded(told: Sequence[Delta], defrag: Defrag) -> Engine:
    engine = Engine(CONFIG, [defrag, *default_plugins()])
    defrag.serve(engine)
    queues = {delta.group.queue for delta in told if isinstance(delta, GroupUpserted)}
    engine.apply([QueueUpserted(Queue(name)) for name in (*sorted(queues), QUEUE)])  # a dump may lack them
    engine.apply(told)
    return engine


def _unasked(told: Iterable[Delta], tasks: Mapping[str, Task]) -> dict[str, str]:
    """Return the pods without the consent of their owners to a move."""
    agreed = {
        delta.group.key
        for delta in told
        if isinstance(delta, GroupUpserted) and delta.group.annotations.get(MOVABLE) == "true"
    }
    return {key: UNASKED for key, task in tasks.items() if task.group not in agreed}


def _settled(deltas: Iterable[Delta], everybody: bool) -> tuple[list[Delta], dict[Needs, list[str]]]:
    """Without what waits, since it would take the room that is judged; and which pods with devices of each kind
    wait, in the order they came."""
    found: list[Delta] = []
    waiting: list[Task] = []
    for delta in deltas:
        if isinstance(delta, GroupUpserted) and everybody:
            annotations = {**delta.group.annotations, MOVABLE: "true"}
            found.append(GroupUpserted(altered(delta.group, annotations=annotations)))
        elif not isinstance(delta, TaskUpserted) or delta.task.state is not TaskState.PENDING:
            found.append(delta)
        elif asked_for(delta.task.needs):
            waiting.append(delta.task)
    waiting.sort(key=lambda task: task.created)
    kinds: dict[Needs, list[str]] = {}
    for task in waiting:
        kinds.setdefault(task.needs, []).append(task.key)
    return found, kinds


def _probe(engine: Engine, defrag: Defrag, number: int, needs: Needs, now: float) -> Decision:
    """Submit one more pod.

    If the engine rejects the proposed moves (anti-affinity, or an exhausted budget), those on other nodes are tried.
    """
    key = f"{QUEUE}/probe-{number}"
    defrag.claimer = key
    defrag.refused.clear()
    group = Group(key, QUEUE, created=now + number, uid=key, admitted=True)
    while True:
        defrag.latest = None
        engine.apply([GroupUpserted(group), TaskUpserted(Task(f"{key}-0", key, key, replace(needs)))])
        decision = engine.cycle(now)
        vain = defrag.latest if not decision.binds and not decision.evictions else None
        if vain is None or len(defrag.refused) == REFUSALS:
            return decision
        defrag.refused.add(vain.node)
        _forget(engine, number)


def _away(task: Task) -> tuple[Delta, Delta]:
    """Return the deltas for a moved pod that its owner recreated: it goes to its reserved place."""
    again = altered(task, uid=f"{task.uid}-moved", state=TaskState.PENDING, node="", devices=())
    return TaskRemoved(task.key), TaskUpserted(again)


def _forget(engine: Engine, number: int) -> None:
    key = f"{QUEUE}/probe-{number}"
    engine.apply([TaskRemoved(f"{key}-0"), GroupRemoved(key)])


def _gain(
    decision: Decision, needs: Needs, view: TableView, sources: dict[str, tuple[str, int]], waits: str
) -> Gain | None:
    if not decision.evictions:
        return None
    promised = {nomination.task: nomination.node for nomination in decision.nominations}
    moves = tuple(
        PodMove(
            eviction.task,
            sources[eviction.task][0],
            promised.get(eviction.task, ""),
            sources[eviction.task][1] / WHOLE,
        )
        for eviction in decision.evictions
    )
    node = next((name for task, name in promised.items() if task.startswith(QUEUE)), "")
    cpu = next((units for name, units in needs.request if name == "cpu"), 0)
    return Gain(node, asked_on(needs, view, node) / WHOLE, cpu / WHOLE, moves, waits)
