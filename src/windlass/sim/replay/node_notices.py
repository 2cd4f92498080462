"""Notices of nodes in a replay: spot machines that end, and nodes that become slow.

They have the effects of a running Windlass: nothing new is placed on the node, its jobs
(of a slow node those of high priority) are signalled, save their work and wait again
with the age that they had.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from windlass.kits import durations

_SPOT_FORM = "NODE@TIME, or NODE@TIME/AWAY"
_SLOW_FORM = "NODE@TIME=FACTOR"


@dataclass(frozen=True, slots=True)
class SpotNotice:
    """Notice that a spot machine ends. All times in seconds of the trace.

    ``away``: time until there is such a machine again; ``None``: never.
    """

    node: str
    at: float
    away: float | None = None


@dataclass(frozen=True, slots=True)
class SlowNode:
    """Node that runs at ``factor`` times its speed from ``at`` (seconds of the trace) on."""

    node: str
    at: float
    factor: float


NodeChange = SpotNotice | SlowNode


def parse_spot(text: str, nodes: Collection[str]) -> SpotNotice:
    """Parse ``node-0000@1h`` or ``node-0000@1h/30m``. Raises ``ValueError``."""
    node, time, rest = _split(text, "--spot-notice", _SPOT_FORM, "/", nodes)
    return SpotNotice(node, time, durations.parse(rest) if rest else None)


def parse_slow(text: str, nodes: Collection[str]) -> SlowNode:
    """Parse ``node-0000@1h=0.4``. Raises ``ValueError``."""
    node, time, rest = _split(text, "--slow-node", _SLOW_FORM, "=", nodes)
    try:
        factor = float(rest)
    except ValueError:
        factor = 0.0
    if not 0.0 < factor < 1.0:
        raise ValueError(f"--slow-node {text}: {rest or 'nothing'} is not a factor between 0 and 1")
    return SlowNode(node, time, factor)


def _split(text: str, option: str, form: str, mark: str, nodes: Collection[str]) -> tuple[str, float, str]:
    """Return node, time in seconds, and the text after ``mark``."""
    node, at, rest = text.partition("@")
    time, _, rest = rest.partition(mark)
    if not at or not time:
        raise ValueError(f"{option} {text}: the form is {form}, such as {min(nodes, default='n')}@1h")
    if node not in nodes:
        known = ", ".join(sorted(nodes)[:3])
        raise ValueError(f'{option} {text}: there is no node "{node}"; nodes are {known} …')
    try:
        return node, durations.parse(time), rest
    except ValueError as error:
        raise ValueError(f"{option} {text}: {error}") from None
