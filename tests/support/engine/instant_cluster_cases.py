"""Small clusters and crowds drawn by chance, over all actions, queue APIs and configurations."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from cluster_dsl import GIB, GPU
from instant_cluster import NAMESPACE, START, Arrival, Case, Gang
from msgspec.structs import replace as altered
from tier_configurations import config as tiered

from windlass.engine.config import EngineConfig
from windlass.spi.configuration import PluginOption, SchedulerConfig
from windlass.spi.devices import DeviceNeed
from windlass.spi.objects import Dialect, Group, Needs, Node, Queue, SubGroup, Task
from windlass.spi.topology import Level, TopologyNeed

OWN, KAI, BOTH, TIERS, SHARING = "own", "kai", "both", "tiers", "sharing"
KINDS = (OWN, KAI, BOTH, TIERS, SHARING)
PRIORITIES = (10, 10, 50, 50, 100)
NETWORK = (Level("zone"), Level("kubernetes.io/hostname"))
TIER_LISTS = (
    "priority gang- conformance | overcommit drf- predicates proportion nodeorder binpack",
    "priority gang conformance | overcommit drf predicates proportion nodeorder",
    "priority gang conformance | predicates capacity nodeorder binpack",
    "priority gang | drf predicates proportion",
    "priority | predicates nodeorder",
    "gang pdb | predicates capacity cdp",
    "priority gang cdp | predicates proportion network-topology-aware",
)
TIER_ACTIONS = (
    "enqueue allocate preempt reclaim backfill",
    "allocate reclaim preempt backfill",
    "enqueue allocate gangpreempt gangreclaim backfill",
    "allocate gangreclaim gangpreempt",
    "enqueue allocate consolidation preempt reclaim timeshare stalegangeviction",
    "allocate preempt",
    "allocate reclaim",
)
OWN_ACTIONS = (
    (),
    (),
    (),
    ("allocate", "backfill", "preempt", "reclaim", "consolidation"),
    ("allocate", "reclaim", "preempt"),
    ("allocate", "preempt"),
    ("allocate", "reclaim"),
    ("allocate", "consolidation"),
    ("allocate", "timeshare", "consolidation", "preempt", "reclaim"),
)


def policy_of(kind: str, rng: Random) -> SchedulerConfig:
    if kind == TIERS:
        actions, tiers = rng.choice(TIER_ACTIONS), rng.choice(TIER_LISTS)
        return tiered(actions, tiers, compatibility=rng.choice(("", "", "volcano")))
    backfill: dict[str, Any] = {
        "reservations": rng.choice(("easy", "easy", "conservative", "none", "strict"))
    }
    if rng.random() < 0.3:
        backfill["aging"] = rng.choice(("0s", "10s", "1m"))
    configurations: dict[str, dict[str, Any]] = {"backfill": backfill}
    if rng.random() < 0.1:
        configurations["usage"] = {"halfLife": "1h", "kValue": 1}
    plugins: tuple[PluginOption, ...] = ()
    if kind == SHARING:
        name = rng.choice(("", "predicted", "las", "srtf", "srsf"))
        plugins = (PluginOption(name),) if name else ()
    return SchedulerConfig(rng.choice(OWN_ACTIONS), configurations=configurations, plugins=plugins)


def settings_of(rng: Random) -> EngineConfig:
    return EngineConfig(
        claim_pause_seconds=rng.choice((0.0, 0.25)),
        move_hold_seconds=60.0,
        reports=rng.random() < 0.6,
        binds_per_cycle=rng.choice((0, 0, 0, 2)),
    )


def nodes_of(rng: Random) -> tuple[Node, ...]:
    gpus = rng.choice(((4, 4), (4, 4, 4), (2, 4), (8,), (1, 1, 1), (4, 4, 4, 4), (2, 3, 4), (4,)))
    found = []
    for at, n in enumerate(gpus):
        name = f"n{at}"
        amounts = {"cpu": rng.choice((8_000, 64_000)), "memory": 64 * GIB, "pods": 110, GPU: n * 1000}
        labels = {"kubernetes.io/hostname": name, "zone": "ab"[at * 2 // max(len(gpus), 2)]}
        found.append(Node(name, amounts, labels))
    return tuple(found)


def _queue(name: str, parent: str, rng: Random, dialect: Dialect, total: int, made: int) -> Queue:
    kai = dialect is Dialect.KAI
    deserved = rng.choice((None, 0, 1, 2, total // 2, total // 2, total - 1, total))
    limit = rng.choice((None, None, None, None, total // 2 + 1, total))
    amounts = {} if deserved is None or not deserved else {GPU: deserved * 1000}
    unlimited = ("cpu", "memory") if deserved is not None else ("cpu", "memory", GPU)
    guarantee = {}
    if not kai and rng.random() < 0.15:
        guarantee = {GPU: rng.randint(1, 2) * 1000}
    return Queue(
        name,
        parent=parent,
        weight=rng.choice((1, 1, 2, 3)),
        priority=(100 if kai else 0) + rng.choice((0, 0, 0, 10)),
        guarantee=guarantee,
        deserved=amounts,
        capability={} if limit is None else {GPU: limit * 1000},
        reclaimable=rng.random() < 0.9,
        created=float(made),
        dialect=dialect,
        unlimited=unlimited if kai else (),
        surplus_weights={GPU: float(rng.randint(0, 2))} if kai else {},
        preempt_min_runtime=rng.choice((None, None, None, 30.0)) if kai else None,
        reclaim_min_runtime=rng.choice((None, None, None, 30.0)) if kai else None,
    )


def queues_of(rng: Random, dialect: Dialect, total: int) -> tuple[tuple[Queue, ...], list[str]]:
    """The queues of one API, and the names of its leaves."""
    prefix = "kai/" if dialect is Dialect.KAI else ""
    tops = [f"{prefix}d{n}" for n in range(rng.choice((0, 0, 1, 2)))]
    leaves = [f"{prefix}q{n}" for n in range(rng.choice((1, 2, 2, 3)))]
    found = [_queue(top, "", rng, dialect, total, at) for at, top in enumerate(tops)]
    for at, leaf in enumerate(leaves):
        found.append(_queue(leaf, rng.choice(tops) if tops else "", rng, dialect, total, 5 + at))
    return tuple(found), leaves


def gang_of(rng: Random, at: int, queue: str, kind: str, dialect: Dialect, most: int) -> Gang:
    name = f"g{at}"
    key = f"{NAMESPACE}/{name}"
    pods = rng.choice((1, 1, 1, 2, 2, 3, 4))
    gpus = rng.choice((0.5, 1, 1, 1, 2, 2, 3, 4)) if rng.random() < 0.9 else 0
    gpus = min(gpus, most)
    minimum = pods if rng.random() < 0.6 else rng.randint(1, pods)
    annotations: dict[str, str] = {}
    if kind == SHARING and rng.random() < 0.8:
        annotations["windlass.dev/time-share"] = "true"
        if rng.random() < 0.4:
            annotations["windlass.dev/checkpoint-every"] = rng.choice(("0s", "5m"))
    if dialect is not Dialect.KAI and rng.random() < 0.4:
        annotations["windlass.dev/movable"] = "true"
    if rng.random() < 0.1:
        annotations["volcano.sh/cooldown-time"] = "30s"
    if rng.random() < 0.05:
        annotations["volcano.sh/jdb-max-unavailable"] = "1"
    subgroups: tuple[SubGroup, ...] = ()
    if pods >= 2 and rng.random() < 0.12:
        subgroups = (SubGroup("a", min_members=1), SubGroup("b", min_members=pods - 1))
    topology = None
    if rng.random() < 0.12:
        topology = TopologyNeed("network", NETWORK, rng.choice((-1, 0, 1)), rng.choice((0, 1)))
    preemptible = rng.random() < 0.88
    group = Group(
        key,
        queue=queue,
        priority=rng.choice(PRIORITIES),
        min_member=minimum if not subgroups else 0,
        preemptible=preemptible,
        never_preempts=rng.random() < 0.05,
        created=START - 500.0 + at,
        uid=f"uid-{name}",
        admitted=rng.random() < 0.7,
        dialect=dialect,
        subgroups=subgroups,
        preemption_delay=10.0 if rng.random() < 0.04 else 0.0,
        stale_grace=rng.choice((None, None, None, 5.0)),
        run_estimate=rng.choice((None, 60.0, 600.0, 3600.0)),
        annotations=annotations,
        topology=topology,
    )
    tasks = tuple(_task(rng, group, n, gpus, subgroups) for n in range(pods))
    return Gang(group, tasks)


def _task(rng: Random, group: Group, n: int, gpus: float, parts: tuple[SubGroup, ...]) -> Task:
    cpu = rng.choice((1000, 1000, 1000, 4000)) if rng.random() < 0.3 else 1000
    request = [("cpu", cpu), ("memory", GIB)]
    devices: tuple[DeviceNeed, ...] = ()
    if gpus == 0.5:
        request.append((GPU, 500))
        devices = (DeviceNeed(GPU, milli=500, memory_milli=500),)
    elif gpus:
        request.append((GPU, int(gpus) * 1000))
    dialect = Dialect.KAI if group.dialect is Dialect.KAI else group.dialect
    needs = Needs(tuple(request), namespace=NAMESPACE, dialect=dialect, devices=devices)
    part = "" if not parts else ("a" if n == 0 else "b")
    key = f"{group.key}-{n}"
    return Task(
        key,
        f"uid-{key}",
        group.key,
        needs,
        index=n,
        priority=group.priority,
        preemptible=group.preemptible,
        created=group.created,
        subgroup=part,
    )


def weighed(gang: Gang, priority: int) -> Gang:
    tasks = tuple(altered(task, priority=priority) for task in gang.tasks)
    return Gang(altered(gang.group, priority=priority), tasks)


def drawn(seed: int, kind: str = "") -> Case:
    rng = Random(seed)
    kind = kind or rng.choice(KINDS)
    nodes = nodes_of(rng)
    total = sum(node.allocatable[GPU] for node in nodes) // 1000
    most = max(node.allocatable[GPU] for node in nodes) // 1000
    sides = {
        KAI: (Dialect.KAI,),
        BOTH: (Dialect.KAI, Dialect.VOLCANO),
        TIERS: (Dialect.VOLCANO,) if rng.random() < 0.8 else (Dialect.KAI, Dialect.VOLCANO),
    }.get(kind, (Dialect.VOLCANO,))
    queues: tuple[Queue, ...] = ()
    leaves: list[tuple[str, Dialect]] = []
    for dialect in sides:
        made, names = queues_of(rng, dialect, total)
        queues += made
        leaves += [(name, dialect) for name in names]
    policy, settings = policy_of(kind, rng), settings_of(rng)
    if kind == TIERS:
        settings = replace(settings, reports=True)
    if kind == SHARING and rng.random() < 0.5:
        queues = tuple(replace(queue, annotations={"windlass.dev/time-share": "true"}) for queue in queues)
    arrivals = []
    burst, rising = rng.random(), rng.random() < 0.5
    gangs = rng.randint(3, 10)
    for at in range(gangs):
        name, dialect = rng.choice(leaves)
        gang = gang_of(rng, at, name, kind, dialect, most)
        if rising:  # those who come later are more important, mostly
            gang = weighed(gang, rng.choice(PRIORITIES[: 1 + len(PRIORITIES) * at // gangs]))
        after = rng.choice((0.0, 0.0, 0.0, 1.0, 61.0, 1000.0)) if rng.random() < burst else 0.0
        arrivals.append(Arrival(gang, after, rng.choice((0, 0, 1, 2))))
    return Case(policy, settings, nodes, queues, tuple(arrivals), lingers=rng.random() < 0.4)
