"""Small clusters on which two schedulers with one configuration are to decide the same: what is there, and which pods
must be bound in the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
GPU = "nvidia.com/gpu"
_TIERS = """\
tiers:
- plugins:
  - name: priority
  - name: gang
    enablePreemptable: false
  - name: conformance
- plugins:
  - name: overcommit
  - name: drf
    enablePreemptable: false
  - name: predicates
  - name: proportion
  - name: nodeorder
  - name: binpack
"""
POLICIES = {
    "chart": f'actions: "enqueue, allocate, backfill"\n{_TIERS}',
    "evicting": f'actions: "allocate, preempt, reclaim, backfill"\n{_TIERS}',
}
"""What Volcano's chart installs, and the same with the actions that evict. Those are of no use beside `enqueue` in
a full cluster: `overcommit` does not let in who would evict."""
PRIORITIES = {"low": 10, "high": 1000, "polite": 1000}
"""Class → value; who is polite evicts nobody."""


@dataclass(frozen=True)
class Gang:
    """``pods`` pods of ``gpus`` GPUs, of which ``minimum`` (0: all) are needed."""

    name: str
    pods: int
    gpus: int = 1
    minimum: int = 0
    queue: str = "default"
    priority: str = "low"


@dataclass(frozen=True)
class Case:
    """``gangs`` are there before the nodes are; ``later`` come once ``first`` is reached."""

    name: str
    nodes: tuple[int, ...]
    """GPUs of each."""
    gangs: tuple[Gang, ...]
    bound: dict[str, int]
    """Gang, or queue after ``@``, → pods of it that are bound in the end; who is not named has none."""
    queues: dict[str, Json] = field(default_factory=dict)
    policy: str = "chart"
    later: tuple[Gang, ...] = ()
    first: dict[str, int] = field(default_factory=dict)


def singles(prefix: str, count: int, queue: str) -> tuple[Gang, ...]:
    """Gangs of one pod."""
    return tuple(Gang(f"{prefix}{i}", 1, queue=queue) for i in range(count))


CASES = (
    Case(
        "who_cannot_be_whole_holds_nothing",
        policy="evicting",
        nodes=(4, 4),
        gangs=(Gang("wide", 3, gpus=3, priority="high"), Gang("narrow", 2)),
        bound={"narrow": 2},
    ),
    Case(
        "higher_priority_first",
        nodes=(4,),
        gangs=(Gang("modest", 4), Gang("urgent", 4, priority="high")),
        bound={"urgent": 4},
    ),
    Case(
        "queues_share_by_weight",
        policy="evicting",
        nodes=(6, 6),
        queues={"two": {"weight": 2}, "one": {"weight": 1}},
        gangs=(*singles("a", 12, "one"), *singles("b", 12, "two")),
        bound={"@two": 8, "@one": 4},
    ),
    Case(
        "a_queue_keeps_to_its_capability",
        nodes=(8,),
        queues={"small": {"capability": {GPU: "4"}}},
        gangs=(Gang("modest", 4, queue="small"), Gang("urgent", 4, queue="small", priority="high")),
        bound={"urgent": 4},
    ),
    Case(
        "more_than_the_minimum_where_there_is_room",
        nodes=(4,),
        gangs=(Gang("elastic", 6, minimum=2),),
        bound={"elastic": 4},
    ),
    Case(
        "a_higher_priority_evicts_what_it_needs",
        policy="evicting",
        nodes=(4,),
        gangs=(Gang("elastic", 4, minimum=1),),
        first={"elastic": 4},
        later=(Gang("urgent", 3, priority="high"),),
        bound={"elastic": 1, "urgent": 3},
    ),
    Case(
        "nobody_is_evicted_for_who_says_never",
        policy="evicting",
        nodes=(4,),
        gangs=(Gang("elastic", 4, minimum=1),),
        first={"elastic": 4},
        later=(Gang("patient", 3, priority="polite"),),
        bound={"elastic": 4},
    ),
    Case(
        "equal_priority_evicts_nobody",
        policy="evicting",
        nodes=(4,),
        gangs=(Gang("elastic", 4, minimum=1),),
        first={"elastic": 4},
        later=(Gang("equal", 3),),
        bound={"elastic": 4},
    ),
    Case(
        "a_queue_takes_back_its_share",
        policy="evicting",
        nodes=(8,),
        queues={"one": {}, "other": {}},
        gangs=singles("a", 8, "one"),
        first={"@one": 8},
        later=singles("b", 8, "other"),
        bound={"@one": 4, "@other": 4},
    ),
    Case(
        "who_asks_for_nothing_runs_in_a_full_cluster",
        nodes=(2,),
        gangs=(Gang("full", 2, priority="high"), Gang("nothing", 2, gpus=0)),
        bound={"full": 2, "nothing": 2},
    ),
)
