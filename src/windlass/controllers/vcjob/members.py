"""The pods of one Volcano Job, and what each of them is in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from windlass.api import annotations as names
from windlass.api.views import Pod

_SPAN = re.compile(r"([0-9]{1,7})(?:-([0-9]{1,7}))?")


@dataclass(frozen=True, slots=True)
class Member:
    """``version``: the job version that made the pod. ``index`` is -1 where it cannot be read."""

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
        """The pod phase; Pending before anybody wrote one."""
        return self.pod.phase or "Pending"

    @property
    def finished(self) -> bool:
        return self.pod.finished

    @property
    def deleting(self) -> bool:
        return self.pod.deleting

    @property
    def exit_code(self) -> int:
        """Of the first container, 0 while it has none: Volcano's policies look at that one only."""
        return self.pod.exits[0].exit_code if self.pod.exits else 0


def members(pods: Iterable[Pod]) -> dict[str, Member]:
    """Pod name → member."""
    return {pod.name: _member(pod) for pod in pods}


def _member(pod: Pod) -> Member:
    notes = pod.annotations
    return Member(
        pod=pod,
        task=notes.get(names.TASK_SPEC, ""),
        index=_number(notes.get(names.TASK_INDEX)),
        version=_number(notes.get(names.JOB_VERSION)),
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
    """The inverse of :func:`spans`; what is no number, or none that a job's replicas reach, is passed over."""
    found: set[int] = set()
    for part in text.split(","):
        if span := _SPAN.fullmatch(part):
            first, last = span.groups()
            found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def partition_of(index: int, size: int) -> str:
    """``volcano.sh/partition-id`` of a pod; a partition size that makes no sense puts all into 0."""
    return str(index // size) if size > 0 else "0"


Members = Mapping[str, Member]
