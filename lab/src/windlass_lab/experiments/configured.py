"""Windlass as a cluster runs it, with the actions that a claim is about: a scheduler configuration each."""

from __future__ import annotations

from dataclasses import replace

from msgspec.structs import replace as altered

from windlass.plugins.queues.protection import MOVABLE
from windlass.sim.jobs import TraceJob
from windlass.sim.replay.policies import PolicyContext, ReplayEngine, ReplayPolicy, configured
from windlass.spi.objects import Dialect, Group

_TEXT = """\
actions: "{actions}"
configurations:
- name: backfill
  arguments:
    reservations: none
    aging: 0s
"""


def _with(name: str, actions: str, summary: str) -> ReplayPolicy:
    return ReplayPolicy(name, summary, configured(_TEXT.format(actions=actions), Dialect.WINDLASS))


def _movable(policy: ReplayPolicy) -> ReplayPolicy:
    """The same where all work agreed to be moved."""

    def make(setting: PolicyContext) -> ReplayEngine:
        return replace(policy.make(setting), dress=_agreeing)

    return replace(policy, make=make)


def _agreeing(group: Group, job: TraceJob) -> Group:
    return altered(group, annotations={**group.annotations, MOVABLE: "true"})


RECLAIMING = _with("windlass-reclaim", "allocate, reclaim", "queues take back what they deserve")
PREEMPTING = _with("windlass-preempt", "allocate, preempt", "higher priority takes what it needs")
MOVING = _movable(
    _with(
        "windlass-move",
        "allocate, reclaim, consolidation",
        "the same, and running work moves if that frees capacity for pending work",
    )
)
