"""E11: reasons for a queue below its share at a given time: could any node be cleared of work above its share?

Reclaim stops only work of queues above their fair share, and only if a job of a queue within its share is sure to fit
afterwards. If each node also holds work of a queue within its share, no node can be cleared for a job that needs a
whole node. If no queue is above its share, no job may be stopped, though GPUs are idle on several nodes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from windlass.plugins.kai.surplus_division import ShareClaim, divide
from windlass.sim.replay.outcome import ReplayOutcome

HALF_HOUR = 1800.0


class Shortfall(StrEnum):
    """Reasons for reclaiming nothing, as the page shows them."""

    MIXED = "every node also holds work of a queue within its share"
    NONE_ABOVE = "no queue is above its share; idle GPUs are spread over nodes"
    TOO_LARGE = "no job that waits fits into what its queue is due"
    CLEARABLE = "a node could have been cleared"


@dataclass(slots=True)
class Instant:
    """``held``: node → queue → GPUs; ``asked``: queue → GPUs of all its jobs, those that run and those that wait;
    ``waiting``: queue → the sizes of its jobs that have waited for half an hour."""

    held: dict[str, Counter[str]] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    waiting: dict[str, set[int]] = field(default_factory=dict)

    @property
    def used(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for queues in self.held.values():
            found.update(queues)
        return found


def instants(outcome: ReplayOutcome, moments: Sequence[float]) -> list[Instant]:
    """The cluster at moments, which ascend."""
    found = [Instant() for _ in moments]
    running: list[set[int]] = [set() for _ in moments]
    for span in outcome.spans:
        queue = outcome.jobs[span.job].job.queue
        for at in range(bisect_left(moments, span.start), bisect_left(moments, span.end)):
            running[at].add(span.job)
            for node, gpus in span.by_node().items():
                found[at].held.setdefault(node, Counter())[queue] += round(gpus)
    for number, ended in enumerate(outcome.jobs):
        job, begin = ended.job, bisect_left(moments, ended.job.submit_seconds)
        for at in range(begin, len(moments) if ended.ended is None else bisect_left(moments, ended.ended)):
            found[at].asked[job.queue] += job.gpus
            if number not in running[at] and job.submit_seconds <= moments[at] - HALF_HOUR:
                found[at].waiting.setdefault(job.queue, set()).add(job.gpus)
    return found


def reason(instant: Instant, weights: Mapping[str, int], nodes: int, size: int) -> Shortfall:
    """On so many nodes of so many GPUs."""
    claims = [ShareClaim(name, 0, instant.asked[name], weight) for name, weight in weights.items()]
    divide(nodes * size, 1, claims)
    used, due = instant.used, {claim.name: claim.share for claim in claims}
    able = [
        gpus for queue, sizes in instant.waiting.items() for gpus in sizes if used[queue] + gpus <= due[queue]
    ]
    if not able:
        return Shortfall.TOO_LARGE
    above = {name: used[name] - due[name] for name in due if used[name] > due[name]}
    if not above:
        return Shortfall.NONE_ABOVE
    rooms = [_room(queues, above, size) for queues in instant.held.values()]
    rooms += [size] * (nodes - len(rooms))
    fits = any(sum(room >= min(gpus, size) for room in rooms) >= -(-gpus // size) for gpus in able)
    return Shortfall.CLEARABLE if fits else Shortfall.MIXED


def _room(queues: Mapping[str, int], above: Mapping[str, int], size: int) -> int:
    """Return the idle capacity of a node plus the capacity that queues hold there above their shares."""
    return size - sum(queues.values()) + sum(min(held, above.get(name, 0)) for name, held in queues.items())


def reasons(
    outcome: ReplayOutcome, weights: Mapping[str, int], moments: Sequence[float], nodes: int, size: int
) -> Counter[Shortfall]:
    """Count the reasons."""
    return Counter(reason(instant, weights, nodes, size) for instant in instants(outcome, moments))
