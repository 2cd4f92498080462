"""Restarts in place of pods on simulated nodes (JobSet's KEP-467). No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

from windlass.node.pods.record import PodRecord
from windlass.node.restart_barriers import Barrier, RestartBarriers

_T = TypeVar("_T")


@dataclass(slots=True)
class _Member:
    """Pod of a JobSet. ``passed``: attempt at which it ran last."""

    attempt: int | None
    restarts: int
    waits: bool
    passed: int | None = None


class SimulatedRestarts:
    """Pods that restart in place, by JobSet."""

    def __init__(self, barriers: RestartBarriers) -> None:
        self._barriers = barriers
        self._members: dict[str, _Member] = {}
        self._keys: dict[str, dict[str, str]] = {}
        """JobSet → uid and key of its pods."""

    def restore(self, pod: PodRecord) -> None:
        """Take up a pod as its status tells it."""
        part = pod.in_place
        if part is None or pod.uid in self._members:
            return
        waits = part.waits or pod.phase == "Pending"
        passed = None if waits else part.attempt
        self._members[pod.uid] = _Member(part.attempt, part.restarts, waits, passed)
        self._keys.setdefault(part.job_set, {})[pod.uid] = pod.key

    def forget(self, pod: PodRecord) -> None:
        self._members.pop(pod.uid, None)
        if pod.in_place is not None:
            pods = self._keys.get(pod.in_place.job_set, {})
            pods.pop(pod.uid, None)
            if not pods:
                self._keys.pop(pod.in_place.job_set, None)

    def keys(self, barrier: Barrier) -> Iterable[str]:
        """Return the keys of the pods that wait at a barrier or have passed it."""
        return tuple(self._keys.get(barrier.key, {}).values())

    def restarts(self, pod: PodRecord) -> int:
        member = self._members.get(pod.uid)
        return member.restarts if member is not None else 0

    def next_attempt(self, pod: PodRecord) -> int | None:
        """Return the attempt with which a pod joins the barrier; ``None`` while its JobSet is unknown."""
        assert pod.in_place is not None
        barrier, member = self._barriers.get(pod.in_place.job_set), self._members.get(pod.uid)
        if barrier is None or member is None:
            return None
        return barrier.next_attempt(member.passed)

    def waits(self, pod: PodRecord) -> bool:
        """Return whether a pod has joined a barrier that is not open yet."""
        member = self._members.get(pod.uid)
        return member is not None and member.waits and member.attempt is not None

    @contextmanager
    def joining(self, pod: PodRecord, attempt: int, *, restarted: bool) -> Iterator[None]:
        """Record that a pod waits, unless the write in the body fails.

        ``restarted``: its containers were stopped for this.
        """
        member = self._members.get(pod.uid)
        before = replace(member) if member is not None else None
        if member is not None:
            member.attempt, member.waits = attempt, True
            member.restarts += int(restarted)
        with self._kept(pod, before):
            yield

    @contextmanager
    def starting(self, pod: PodRecord) -> Iterator[None]:
        """Record that a pod runs, unless the write in the body fails."""
        member = self._members.get(pod.uid)
        before = replace(member) if member is not None else None
        if member is not None:
            member.waits, member.passed = False, member.attempt
        with self._kept(pod, before):
            yield

    @contextmanager
    def _kept(self, pod: PodRecord, before: _Member | None) -> Iterator[None]:
        try:
            yield
        except BaseException:
            if before is not None and pod.uid in self._members:
                self._members[pod.uid] = before
            raise

    def may_run(self, pod: PodRecord) -> bool:
        """Return whether a pod waits at a barrier that is open."""
        found = self._state(pod)
        return found is not None and found[1].waits and found[0].is_open(_attempt(found[1]))

    def must_restart(self, pod: PodRecord) -> bool:
        """Return whether a running pod is at a former attempt."""
        found = self._state(pod)
        if found is None or found[1].waits or found[1].attempt is None:
            return False
        return found[0].is_outdated(found[1].attempt)

    def _state(self, pod: PodRecord) -> tuple[Barrier, _Member] | None:
        if pod.in_place is None or pod.uid not in self._members:
            return None
        barrier = self._barriers.get(pod.in_place.job_set)
        return None if barrier is None else (barrier, self._members[pod.uid])


def _attempt(member: _Member) -> int:
    return -1 if member.attempt is None else member.attempt


def of_run(values: Sequence[_T], run: int, default: _T) -> _T:
    """Return the value for a run, counted from 0. The last value holds for later runs."""
    return values[min(run, len(values) - 1)] if values else default
