"""CPU and memory that the containers and the node use, read when they are asked for.

The figures of a container come from its cgroup, or else from its processes. CPU is a rate between
two readings: the last one is kept, and if it is missing or old, a second one follows shortly.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from windlass.kits.clock import Clock
from windlass.node.runtime import attempt_files, syscalls

_SHORT_SECONDS = 0.5
"""Interval between two readings if there is no earlier one."""
_MIN_SECONDS, _MAX_SECONDS = 0.5, 60.0
"""Age of an earlier reading that is used."""
_NANO = 1_000_000_000


@dataclass(frozen=True, slots=True)
class UsageReading:
    """CPU time in nanoseconds since the start, and memory in bytes."""

    cpu_ns: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class _Readings:
    at: float
    containers: Mapping[tuple[str, str, int], UsageReading]
    """(pod UID, container, attempt) → reading."""
    node: UsageReading


@dataclass(frozen=True, slots=True)
class ContainerPlace:
    """``directory``: of the container's current attempt."""

    uid: str
    name: str
    attempt: int
    directory: Path


class UsageMeter:
    """Meter of one node."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: _Readings | None = None

    async def usage(self, places: list[ContainerPlace]) -> dict[str, Any]:
        """Return ``{"at", "window", "node": {"cpu", "memory"}, "pods": {uid: {container: …}}}``.

        ``cpu``: nanocores. ``memory``: bytes. ``window``: seconds between the readings.
        """
        before = self._last
        now = self._clock.now()
        if before is None or not _MIN_SECONDS <= now - before.at <= _MAX_SECONDS:
            before = self._read(places, now)
            await self._clock.sleep(_SHORT_SECONDS)
        after = self._read(places, self._clock.now())
        self._last = after
        return _rates(before, after)

    def _read(self, places: list[ContainerPlace], at: float) -> _Readings:
        containers = {}
        for place in places:
            reading = read_container(str(place.directory))
            if reading is not None:
                containers[place.uid, place.name, place.attempt] = reading
        return _Readings(at, containers, read_node())


def _rates(before: _Readings, after: _Readings) -> dict[str, Any]:
    seconds = max(after.at - before.at, 0.001)
    pods: dict[str, dict[str, dict[str, int]]] = {}
    for (uid, name, attempt), reading in after.containers.items():
        earlier = before.containers.get((uid, name, attempt), UsageReading(reading.cpu_ns, 0))
        pods.setdefault(uid, {})[name] = _rate(earlier, reading, seconds)
    return {
        "at": after.at,
        "window": seconds,
        "node": _rate(before.node, after.node, seconds),
        "pods": pods,
    }


def _rate(before: UsageReading, after: UsageReading, seconds: float) -> dict[str, int]:
    used = max(0, after.cpu_ns - before.cpu_ns)
    return {"cpu": int(used / seconds), "memory": after.memory_bytes}


def read_container(directory: str) -> UsageReading | None:
    """Return the reading of a running container; None if it is not running."""
    init = attempt_files.read(directory, attempt_files.PROCESS)
    if init is None or not attempt_files.is_running(init):
        return None
    spec = attempt_files.read(directory, attempt_files.SPEC) or {}
    if spec.get("cgroup"):
        try:
            return _read_cgroup(spec["cgroup"])
        except (OSError, ValueError, KeyError):
            pass  # removed meanwhile, or without the controller
    return _read_processes(int(init["pid"]))


def _read_cgroup(path: str) -> UsageReading:
    stat = _table(f"{path}/cpu.stat")
    with open(f"{path}/memory.current", encoding="ascii") as stream:
        current = int(stream.read())
    cached = _table(f"{path}/memory.stat").get("inactive_file", 0)
    return UsageReading(stat["usage_usec"] * 1000, max(0, current - cached))


def _table(path: str) -> dict[str, int]:
    with open(path, encoding="ascii") as stream:
        return {name: int(value) for name, value in (line.split() for line in stream)}


def _read_processes(init: int) -> UsageReading:
    ticks, pages = 0, 0
    for pid in (init, *syscalls.descendants(init)):
        try:
            with open(f"/proc/{pid}/stat", "rb") as stream:
                fields = stream.read().rpartition(b")")[2].split()
        except OSError:
            continue
        ticks += sum(int(field) for field in fields[11:15])  # own time, and that of reaped children
        pages += int(fields[21]) if pid != init else 0  # init is the agent's own helper
    cpu_ns = ticks * _NANO // os.sysconf("SC_CLK_TCK")
    return UsageReading(cpu_ns, pages * os.sysconf("SC_PAGE_SIZE"))


def read_node() -> UsageReading:
    """Return the reading of the machine: CPU time that was not idle, memory that is not available."""
    with open("/proc/stat", encoding="ascii") as stream:
        fields = [int(field) for field in stream.readline().split()[1:9]]
    idle = fields[3] + fields[4]
    memory = {}
    with open("/proc/meminfo", encoding="ascii") as stream:
        for line in stream:
            name, _, rest = line.partition(":")
            memory[name] = int(rest.split()[0]) * 1024
    cpu_ns = (sum(fields) - idle) * _NANO // os.sysconf("SC_CLK_TCK")
    return UsageReading(cpu_ns, memory["MemTotal"] - memory.get("MemAvailable", memory["MemFree"]))
