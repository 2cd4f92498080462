"""Pods of one Volcano Job with their task, index and version."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from windlass.api import annotations as names
from windlass.api.views import Pod

_SPAN = re.compile(r"([0-9]{1,7})(?:-([0-9]{1,7}))?")


@dataclass(frozen=True, slots=True)
class Member:
    """Pod of a job. ``version``: job version that created it. ``index``: -1 if unreadable."""

    pod: Pod
    task: str
    index: int
    version: int
    partition: str

    @property
    def name(self) -> str:
        return self.pod.name

    @property
    def phase(self) -> str:
        """Return the pod phase; Pending if none was written yet."""
        return self.pod.phase or "Pending"

    @property
    def finished(self) -> bool:
        return self.pod.finished

    @property
    def deleting(self) -> bool:
        return self.pod.deleting

    @property
    def exit_code(self) -> int:
        """Return the exit code of the first container; 0 if it has none.

        Volcano's policies read that container only.
        """
        return self.pod.exits[0].exit_code if self.pod.exits else 0


def members(pods: Iterable[Pod]) -> dict[str, Member]:
    """Return pod name → member."""
    return {pod.name: member(pod) for pod in pods}


def member(pod: Pod) -> Member:
    """Return a pod with its task, index and version."""
    annotations = pod.annotations
    return Member(
        pod=pod,
        task=annotations.get(names.TASK_SPEC, ""),
        index=_number(annotations.get(names.TASK_INDEX)),
        version=_number(annotations.get(names.JOB_VERSION)),
        partition=pod.labels.get(names.PARTITION_ID, ""),
    )


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isascii() and text.isdigit() else -1


def spans(indices: Iterable[int]) -> str:
    """``{0, 1, 2, 5}`` → ``0-2,5``."""
    parts: list[str] = []
    ordered = sorted(set(indices))
    start = 0
    while start < len(ordered):
        end = start
        while end + 1 < len(ordered) and ordered[end + 1] == ordered[end] + 1:
            end += 1
        first, last = ordered[start], ordered[end]
        parts.append(str(first) if first == last else f"{first}-{last}")
        start = end + 1
    return ",".join(parts)


def parse_spans(text: str) -> frozenset[int]:
    """Parse the output of :func:`spans`. Parts that are not spans are ignored."""
    found: set[int] = set()
    for part in text.split(","):
        if span := _SPAN.fullmatch(part):
            first, last = span.groups()
            found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def partition_of(index: int, size: int) -> str:
    """Return ``volcano.sh/partition-id`` of a pod; ``0`` if the partition size is not positive."""
    return str(index // size) if size > 0 else "0"


Members = Mapping[str, Member]
