"""Small clusters on which two schedulers with one configuration are to decide the same: what is there, and which pods
must be bound in the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from windlass.sim.replay.policies import VOLCANO as VOLCANO_CHART

Json = dict[str, Any]
GPU = "nvidia.com/gpu"
_EVICTING = VOLCANO_CHART.replace("enqueue, allocate, backfill", "allocate, preempt, reclaim, backfill")
_CAPACITY = _EVICTING.replace("  - name: overcommit\n", "").replace("name: proportion", "name: capacity")
POLICIES = {
    "chart": VOLCANO_CHART,
    "evicting": _EVICTING,
    "sparing": _EVICTING.replace("  - name: gang\n    enablePreemptable: false\n", "  - name: gang\n"),
    "capacity": _CAPACITY,
    "tree": _CAPACITY.replace("  - name: capacity\n", "  - name: capacity\n    enableHierarchy: true\n"),
}
"""What Volcano's chart installs, and the same with the actions that evict (those are of no use beside `enqueue` in a
full cluster: `overcommit` does not let in who would evict), with gangs that are spared what would leave them less than
their minimum, and with queues by `capacity`, also in a tree."""
PRIORITIES = {"low": 10, "middle": 100, "high": 1000, "polite": 1000}
"""Class → value; who is polite evicts nobody."""


@dataclass(frozen=True)
class Gang:
    """``pods`` pods of ``gpus`` GPUs, of which ``minimum`` (0: all) are needed, and of each task as many as ``least``
    says; the first ``masters`` are of the task `master`, the others of `worker`."""

    name: str
    pods: int
    gpus: int = 1
    minimum: int = 0
    queue: str = "default"
    priority: str = "low"
    masters: int = 0
    least: dict[str, int] = field(default_factory=dict)

    def task(self, rank: int) -> str:
        return "master" if rank < self.masters else "worker"


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
    Case(
        "who_comes_first_uses_up_what_is_let_in",
        nodes=(12,),
        queues={"one": {"weight": 1}, "two": {"weight": 2}},
        gangs=(*singles("a", 12, "one"), *singles("b", 12, "two")),
        bound={"@one": 4, "@two": 2},
    ),
    Case(
        "what_a_queue_does_not_ask_for_goes_to_the_others",
        policy="evicting",
        nodes=(12,),
        queues={"one": {}, "other": {}, "third": {}},
        gangs=(Gang("a", 1, queue="one"), *singles("b", 12, "other"), *singles("c", 12, "third")),
        bound={"@one": 1, "@other": 5, "@third": 5},
    ),
    Case(
        "gangs_of_one_queue_share_evenly",
        policy="evicting",
        nodes=(6,),
        gangs=(Gang("a", 6, minimum=1), Gang("b", 6, minimum=1)),
        bound={"a": 3, "b": 3},
    ),
    Case(
        "who_lacks_a_worker_holds_nothing",
        policy="evicting",
        nodes=(8,),
        gangs=(
            Gang("job", 5, minimum=4, masters=4, least={"master": 2, "worker": 2}, priority="high"),
            Gang("other", 2),
        ),
        bound={"other": 2},
    ),
    Case(
        "who_has_too_few_pods_holds_nothing",
        policy="evicting",
        nodes=(8,),
        gangs=(Gang("a", 2, minimum=3, priority="high"), Gang("b", 2)),
        bound={"b": 2},
    ),
    Case(
        "whole_gangs_are_broken_where_gang_does_not_spare_them",
        policy="evicting",
        nodes=(4,),
        gangs=(Gang("whole", 4),),
        first={"whole": 4},
        later=(Gang("urgent", 2, priority="high"),),
        bound={"whole": 2, "urgent": 2},
    ),
    Case(
        "the_lowest_priority_goes_first",
        policy="evicting",
        nodes=(6,),
        gangs=(Gang("a", 3, minimum=1), Gang("b", 3, minimum=1, priority="middle")),
        first={"a": 3, "b": 3},
        later=(Gang("urgent", 4, priority="high"),),
        bound={"b": 2, "urgent": 4},
    ),
    Case(
        "wide_pods_evict_what_they_need_on_each_node",
        policy="evicting",
        nodes=(4, 4),
        gangs=(Gang("elastic", 8, minimum=1),),
        first={"elastic": 8},
        later=(Gang("wide", 2, gpus=3, priority="high"),),
        bound={"elastic": 2, "wide": 2},
    ),
    Case(
        "whole_gangs_are_spared",
        policy="sparing",
        nodes=(4,),
        gangs=(Gang("whole", 4),),
        first={"whole": 4},
        later=(Gang("urgent", 2, priority="high"),),
        bound={"whole": 4},
    ),
    Case(
        "what_is_beyond_the_minimum_is_not_spared",
        policy="sparing",
        nodes=(4,),
        gangs=(Gang("elastic", 4, minimum=2),),
        first={"elastic": 4},
        later=(Gang("urgent", 2, priority="high"),),
        bound={"elastic": 2, "urgent": 2},
    ),
    Case(
        "what_a_queue_deserves_is_taken_back_for_a_gang",
        policy="capacity",
        nodes=(8,),
        queues={"one": {"deserved": {GPU: "4"}}, "other": {"deserved": {GPU: "4"}}},
        gangs=singles("a", 8, "one"),
        first={"@one": 8},
        later=(Gang("gang", 4, queue="other"),),
        bound={"@one": 4, "@other": 4},
    ),
    Case(
        "nothing_is_taken_for_who_asks_beyond_what_is_deserved",
        policy="capacity",
        nodes=(8,),
        queues={"one": {"deserved": {GPU: "4"}}, "other": {"deserved": {GPU: "4"}}},
        gangs=singles("a", 8, "one"),
        first={"@one": 8},
        later=(Gang("gang", 6, queue="other"),),
        bound={"@one": 8},
    ),
    Case(
        "nothing_is_taken_from_a_queue_that_is_not_reclaimable",
        policy="capacity",
        nodes=(8,),
        queues={"one": {"deserved": {GPU: "4"}, "reclaimable": False}, "other": {"deserved": {GPU: "4"}}},
        gangs=singles("a", 8, "one"),
        first={"@one": 8},
        later=singles("b", 8, "other"),
        bound={"@one": 8},
    ),
    Case(
        "what_is_guaranteed_stays_free",
        policy="capacity",
        nodes=(8,),
        queues={"one": {}, "other": {"deserved": {GPU: "4"}, "guarantee": {"resource": {GPU: "3"}}}},
        gangs=singles("a", 8, "one"),
        first={"@one": 5},
        later=singles("b", 8, "other"),
        bound={"@one": 4, "@other": 4},
    ),
    Case(
        "queues_of_a_tree_take_back_what_they_deserve",
        policy="tree",
        nodes=(8,),
        queues={
            "left": {"deserved": {GPU: "4"}},
            "right": {"deserved": {GPU: "4"}},
            "left-a": {"parent": "left", "deserved": {GPU: "4"}},
            "right-a": {"parent": "right", "deserved": {GPU: "2"}},
            "right-b": {"parent": "right", "deserved": {GPU: "2"}},
        },
        gangs=singles("a", 8, "left-a"),
        first={"@left-a": 8},
        later=(*singles("b", 4, "right-a"), *singles("c", 4, "right-b")),
        bound={"@left-a": 4, "@right-a": 2, "@right-b": 2},
    ),
)
