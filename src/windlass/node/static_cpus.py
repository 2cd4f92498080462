"""Exclusive CPUs for containers with whole CPUs, as the kubelet's static CPU manager.

A container of a Guaranteed pod gets CPUs for itself if its CPU limit is a whole number.
All other containers share the rest, which includes the reserved CPUs. When the rest
changes, running containers are moved.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from windlass.api import quantities
from windlass.api.devices.numa_annotations import cpus_of
from windlass.api.pod_requests import qos_class
from windlass.node.limits import NO_LIMITS, ContainerLimits, Enforcement, Limiter, find_limiter
from windlass.node.options import AgentOptions
from windlass.node.runtime.attempt_files import ATTEMPT_MARK

Key = tuple[str, str]
"""Pod uid and container."""
Repin = Callable[[Mapping[Key, Sequence[int]]], None]
_PASSES = 2
"""Number of passes over the processes. The second finds those that were forked during the first."""


class NotEnoughCpus(Exception):
    """Too few CPUs are free for a container that needs its own."""


def exclusive_counts(pod: Mapping[str, Any]) -> dict[str, int]:
    """Return container → number of CPUs, of the containers that get CPUs for themselves."""
    spec = pod.get("spec") or {}
    if qos_class(spec) != "Guaranteed":
        return {}
    found = {}
    for container in spec.get("containers") or ():
        amount = ((container.get("resources") or {}).get("limits") or {}).get("cpu")
        milli = quantities.to_units("cpu", amount) if amount is not None else 0
        if milli and milli % 1000 == 0:
            found[container["name"]] = milli // 1000
    return found


class StaticCpus:
    """Limiter that assigns CPUs first. ``reserved``: CPUs that are never exclusive."""

    def __init__(
        self,
        limiter: Limiter,
        cores: Sequence[int],
        reserved: Iterable[int],
        *,
        neighbours: Sequence[frozenset[int]] = (),
        repin: Repin | None = None,
    ) -> None:
        self._limiter = limiter
        self._cores = tuple(cores)
        self._reserved = frozenset(reserved)
        self._neighbours = neighbours
        """Hardware threads of each physical core."""
        self._repin = repin or repin_processes
        self._exclusive: dict[Key, tuple[int, ...]] = {}
        self._shared: dict[Key, tuple[ContainerLimits, tuple[int, ...]]] = {}
        """Running containers without CPUs of their own: limits, and the CPUs of their NUMA nodes."""
        shown = ",".join(str(cpu) for cpu in sorted(self._reserved))
        self.description = (
            f"{limiter.description}; static CPUs: whole CPUs are exclusive, reserved CPUs: {shown}"
        )

    @property
    def pool(self) -> tuple[int, ...]:
        """CPUs that containers without exclusive ones share."""
        taken = {cpu for cpus in self._exclusive.values() for cpu in cpus}
        return tuple(cpu for cpu in self._cores if cpu not in taken)

    def apply(
        self, pod: str, container: str, limits: ContainerLimits, within: Sequence[int] = ()
    ) -> Enforcement:
        """Assign CPUs and return the limits. Raises :class:`NotEnoughCpus`."""
        key = pod, container
        released = self._exclusive.pop(key, None) is not None
        if not limits.exclusive_cpus:
            self._shared[key] = limits, tuple(within)
            if released:
                self._move_shared()
            return self._limiter.apply(pod, container, limits, self._shared_cpus(within))
        self._shared.pop(key, None)
        cpus = self._choose(limits.exclusive_cpus, within)
        self._exclusive[key] = cpus
        self._move_shared()
        return self._limiter.apply(pod, container, limits, cpus)

    def _shared_cpus(self, within: Sequence[int]) -> tuple[int, ...]:
        pool = self.pool
        return tuple(cpu for cpu in pool if cpu in within) or pool

    def _choose(self, count: int, within: Sequence[int]) -> tuple[int, ...]:
        """Return free CPUs: of the pod's NUMA nodes first, and whole physical cores first."""
        free = [cpu for cpu in self.pool if cpu not in self._reserved]
        if len(free) < count:
            raise NotEnoughCpus(f"{count} CPUs of its own are needed, {len(free)} are free")
        whole = {cpu for core in self._neighbours if core <= set(free) for cpu in core}
        first = {cpu: index for index, core in enumerate(self._neighbours) for cpu in core}
        near = set(within) or set(free)
        free.sort(key=lambda cpu: (cpu not in near, cpu not in whole, first.get(cpu, cpu), cpu))
        return tuple(sorted(free[:count]))

    def _move_shared(self) -> None:
        """Move the containers without exclusive CPUs to the CPUs that are left."""
        moved: dict[Key, Sequence[int]] = {}
        for (pod, container), (limits, within) in self._shared.items():
            cpus = self._shared_cpus(within)
            enforced = self._limiter.apply(pod, container, limits, cpus)
            moved[pod, container] = enforced.affinity or cpus
        if moved:
            self._repin(moved)

    def adopt(
        self,
        pod: str,
        container: str,
        affinity: Sequence[int],
        limits: ContainerLimits = NO_LIMITS,
    ) -> None:
        if limits.exclusive_cpus and affinity:
            self._exclusive[pod, container] = tuple(affinity)
        else:
            self._shared[pod, container] = limits, ()
        self._limiter.adopt(pod, container, affinity, limits)

    def cpus_of(self, pod: str, container: str) -> tuple[int, ...]:
        own = self._exclusive.get((pod, container))
        return self._limiter.cpus_of(pod, container) if own is None else own

    def release(self, pod: str) -> None:
        self._limiter.release(pod)
        freed = [key for key in self._exclusive if key[0] == pod]
        for key in freed:
            del self._exclusive[key]
        for key in [key for key in self._shared if key[0] == pod]:
            del self._shared[key]
        if freed:
            self._move_shared()


def limiter_of(state: Path, cores: Sequence[int], options: AgentOptions) -> Limiter:
    """Return the limiter of this machine, with exclusive CPUs if the options ask for them."""
    limiter = find_limiter(state, cores, pod_pids=options.pod_max_pids)
    if not options.static_cpus:
        return limiter
    reserved = reserved_cpus(cores, options.reserved_cpus, options.reserved.get("cpu", 0))
    return StaticCpus(limiter, cores, reserved, neighbours=neighbours_of(cores))


def reserved_cpus(cores: Sequence[int], listed: Sequence[int], reserved_milli: int) -> tuple[int, ...]:
    """Return the reserved CPUs: the listed ones, else the first for the reserved amount, rounded up."""
    return tuple(listed) or tuple(cores[: -(-reserved_milli // 1000)])


def neighbours_of(cores: Sequence[int], root: Path = Path("/sys/devices/system/cpu")) -> list[frozenset[int]]:
    """Return the hardware threads of each physical core, as far as the kernel shows them."""
    found: dict[frozenset[int], None] = {}
    for cpu in cores:
        try:
            text = (root / f"cpu{cpu}/topology/thread_siblings_list").read_text().strip()
        except OSError:
            text = str(cpu)
        found[frozenset(cpus_of(text)) or frozenset((cpu,))] = None
    return list(found)


def repin_processes(moved: Mapping[Key, Sequence[int]], proc: Path = Path("/proc")) -> None:
    """Restrict all threads of running containers to these CPUs."""
    by_mark = {f"{ATTEMPT_MARK}={pod}/{name}/".encode(): set(cpus) for (pod, name), cpus in moved.items()}
    for _ in range(_PASSES):
        for entry in proc.iterdir():
            if not entry.name.isdecimal():
                continue
            with contextlib.suppress(OSError):  # it ended, or belongs to another user
                for variable in (entry / "environ").read_bytes().split(b"\0"):
                    mark = variable[: variable.rfind(b"/") + 1]
                    if mark in by_mark:
                        _repin(entry, by_mark[mark])
                        break


def _repin(process: Path, cpus: set[int]) -> None:
    for thread in (process / "task").iterdir():
        with contextlib.suppress(OSError):
            os.sched_setaffinity(int(thread.name), cpus)
