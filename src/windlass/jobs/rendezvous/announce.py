"""Announcement of a world to a rendezvous: the next change of its state. Pure.

``torchrun`` guesses the size of a round: it waits for more nodes (*last call*), and for
the heartbeats of dead ones to expire. The scheduler knows both. An announced world
names the pods that take part. A round closes as soon as exactly these have joined, and
nodes of other pods are removed at once.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from windlass.jobs.rendezvous.state import RendezvousNode, RendezvousState

NOTICE_NAME = "windlass-announcement"
"""Name of an entry of the wait list that makes the agents leave the round of its ``local_id``."""
MASTER, _MASTER_WORD = -1, "master"
"""Member of a world that is the Master of a job, and its word in an announcement. It has rank 0."""
_INDEX = re.compile(r"-(\d+)$")
_MASTER_NAME = re.compile(r"-master-0$")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
MAX_INDEX = 100_000
"""Maximum index of a worker in an announcement."""


@dataclass(frozen=True, slots=True)
class Announcement:
    """Result for one state.

    ``state``: the state to store, ``None`` if it need not change.
    ``settled``: the round has exactly the pods of the world.
    """

    state: RendezvousState | None
    settled: bool
    words: str = ""


def world_text(indices: Collection[int]) -> str:
    """Return the members of a world: workers as ranges, after the Master: ``0-3,6`` or ``master,0-3``."""
    parts: list[str] = [_MASTER_WORD] if MASTER in indices else []
    ordered = sorted(index for index in indices if index != MASTER)
    start = 0
    for position, index in enumerate(ordered):
        last = position + 1 == len(ordered)
        if last or ordered[position + 1] != index + 1:
            first = ordered[start]
            parts.append(str(first) if first == index else f"{first}-{index}")
            start = position + 1
    return ",".join(parts)


def read_world(text: str) -> frozenset[int]:
    """Return the members of a world. Raises ``ValueError``."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        if part == _MASTER_WORD:
            found.add(MASTER)
            continue
        match = _RANGE.fullmatch(part)
        if match is None or int(match[2] or match[1]) > MAX_INDEX:
            raise ValueError(f"{text!r} is not a list of worker indices such as 0-3,6")
        found.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return frozenset(found)


def index_of(node: RendezvousNode) -> int | None:
    """Return the index of a node's pod, the number at the end of its name; :data:`MASTER` for a Master."""
    if _MASTER_NAME.search(node.pod):
        return MASTER
    match = _INDEX.search(node.pod)
    return int(match[1]) if match is not None else None


def announce(state: RendezvousState, world: Collection[int]) -> Announcement:
    """Return the next state of a rendezvous so that the pods of ``world`` form the round."""
    if state.closed or not world:
        return Announcement(None, settled=True)
    members = frozenset(world)
    obsolete = _obsolete(state, members)
    participants = {node: rank for node, rank in state.participants.items() if node not in obsolete}
    waiting = {node for node in state.waiting if node not in obsolete}
    joined = {index_of(node) for node in participants}
    after = replace(
        state,
        participants=participants,
        waiting=waiting,
        heartbeats={node: time for node, time in state.heartbeats.items() if node not in obsolete},
    )
    after.waiting = {node for node in waiting if not _is_notice(node) or node.local_id == state.round}
    if state.complete:
        return _closed_round(state, after, members)
    after.waiting = {node for node in waiting if not _is_notice(node)}
    if joined == members and members:
        ordered = sorted(participants, key=lambda node: (index_of(node) or 0, node))
        after.complete = True
        after.participants = {node: rank for rank, node in enumerate(ordered)}
        if "deadline" in after.others:
            after.others = {**after.others, "deadline": None}
        return Announcement(after, settled=True, words=f"round {after.round} closed with {len(members)}")
    if after == state:
        return Announcement(None, settled=False)
    return Announcement(after, settled=False, words=f"removed {_names(obsolete)}")


def _is_notice(node: RendezvousNode) -> bool:
    return node.fqdn == NOTICE_NAME


def _closed_round(state: RendezvousState, after: RendezvousState, members: frozenset[int]) -> Announcement:
    """Return what changes after a round has closed: gone nodes leave, and a new round begins if needed."""
    if not after.participants:
        after.complete, after.round = False, state.round + 1
        after.waiting = {node for node in after.waiting if not _is_notice(node)}
        return Announcement(after, settled=False, words="every node of the round has gone")
    if after.participants != state.participants:  # The others start a new round.
        after.waiting.add(RendezvousNode(NOTICE_NAME, 0, state.round))
        return Announcement(after, settled=False, words=f"a new round for {len(members)}")
    announced = any(map(_is_notice, after.waiting))
    same = {index_of(node) for node in after.participants} == members
    return Announcement(after if after != state else None, settled=same and not announced)


def _obsolete(state: RendezvousState, members: frozenset[int]) -> set[RendezvousNode]:
    """Return nodes that are not of the world, and those of ended processes of its pods."""
    nodes = {
        node for node in (*state.participants, *state.waiting, *state.heartbeats) if not _is_notice(node)
    }
    found = {node for node in nodes if index_of(node) not in members}
    by_pod: dict[str, list[RendezvousNode]] = {}
    for node in nodes - found:
        by_pod.setdefault(node.pod, []).append(node)
    for group in by_pod.values():
        if len(group) > 1:
            newest = max(group, key=lambda node: _age_key(state, node))
            found |= set(group) - {newest}
    return found


def _age_key(state: RendezvousState, node: RendezvousNode) -> tuple[Any, ...]:
    """Order the nodes of one pod by their last heartbeat. The newest is its living process."""
    beat = state.heartbeats.get(node)
    return (beat is not None, beat or 0, node in state.participants, node.pid)


def _names(nodes: Collection[RendezvousNode]) -> str:
    return ", ".join(sorted(node.pod for node in nodes)) or "the notice"
