"""Windlass as a cluster runs it, with the actions that a claim is about: a scheduler configuration each."""

from __future__ import annotations

from windlass.sim.policies import Policy, configured
from windlass.spi.objects import Dialect

_TEXT = """\
actions: "{actions}"
configurations:
- name: backfill
  arguments:
    reservations: none
    aging: 0s
"""


def _with(name: str, actions: str, summary: str) -> Policy:
    return Policy(name, summary, configured(_TEXT.format(actions=actions), Dialect.WINDLASS))


RECLAIMING = _with("windlass-reclaim", "allocate, reclaim", "queues take back what they deserve")
PREEMPTING = _with("windlass-preempt", "allocate, preempt", "higher priority takes what it needs")
