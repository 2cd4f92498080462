"""CPU and memory limits, enforced as far as this machine permits, and a description of that.

- cgroup v2 enforces both, if a directory of it is delegated to this user or the user is root.
- Otherwise affinity limits CPU (whole cores only). The shim checks memory twice a second and kills
  containers above their limit, as the kernel would.

The description reports only what is enforced (:attr:`Limiter.description`). It is in the node's
annotation and in doctor.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from windlass.api import quantities

_PERIOD = 100_000
_CONTROLLERS = ("cpu", "memory")


@dataclass(frozen=True, slots=True)
class ContainerLimits:
    """Limits of one container. 0: no limit. CPU in milli, memory in bytes.

    ``exclusive_cpus``: number of CPUs that it gets for itself.
    """

    cpu_milli: int = 0
    cpu_request_milli: int = 0
    memory_bytes: int = 0
    exclusive_cpus: int = 0


NO_LIMITS = ContainerLimits()


@dataclass(frozen=True, slots=True)
class Enforcement:
    """Limits that the shim enforces for one attempt."""

    cgroup: str = ""
    affinity: tuple[int, ...] = ()
    memory_watch_bytes: int = 0


def limits_of(container: Mapping[str, object]) -> ContainerLimits:
    resources = container.get("resources")
    record: Mapping[str, object] = resources if isinstance(resources, Mapping) else {}
    by_kind: dict[str, Mapping[str, str]] = {}
    for kind in ("limits", "requests"):
        part = record.get(kind)
        by_kind[kind] = part if isinstance(part, Mapping) else {}
    return ContainerLimits(
        quantities.to_units("cpu", by_kind["limits"].get("cpu", "0")),
        quantities.to_units("cpu", by_kind["requests"].get("cpu", "0")),
        quantities.to_units("memory", by_kind["limits"].get("memory", "0")),
    )


class Limiter(Protocol):
    """Enforces CPU and memory limits. ``description``: one line that says how."""

    description: str

    def apply(
        self, pod: str, container: str, limits: ContainerLimits, within: Sequence[int] = ()
    ) -> Enforcement:
        """Return the limits for the shim. ``within``: the CPUs of the container. Empty: all."""
        ...

    def release(self, pod: str) -> None: ...

    def adopt(
        self, pod: str, container: str, affinity: Sequence[int], limits: ContainerLimits = NO_LIMITS
    ) -> None:
        """Count the CPUs of a running container that an earlier agent started."""
        ...

    def cpus_of(self, pod: str, container: str) -> tuple[int, ...]:
        """Return the CPUs that the container may use; empty for all."""
        ...


class WatchLimiter:
    """Limiter with affinity and memory checks. It works everywhere."""

    def __init__(self, cores: Sequence[int], why_not_cgroups: str, *, pod_pids: int = 0) -> None:
        self._cores = tuple(cores)
        self._load = dict.fromkeys(self._cores, 0)
        self._taken: dict[str, dict[str, tuple[int, ...]]] = {}
        """Pod → container → CPUs of its current attempt."""
        self.description = (
            "cpu: affinity to whole cores (less than one core is not enforced); "
            f"memory: watched twice a second and killed above the limit; cgroups: {why_not_cgroups}"
        )
        if pod_pids:
            self.description += "; pod-max-pids has no effect without cgroups"

    def apply(
        self, pod: str, container: str, limits: ContainerLimits, within: Sequence[int] = ()
    ) -> Enforcement:
        self._release_container(pod, container)
        cores = [core for core in self._cores if core in within] or list(self._cores)
        affinity = tuple(cores) if len(cores) < len(self._cores) else ()
        count = -(-limits.cpu_milli // 1000)
        if 0 < count < len(cores):
            affinity = tuple(sorted(sorted(cores, key=lambda core: (self._load[core], core))[:count]))
        if affinity:
            self.adopt(pod, container, affinity)
        return Enforcement(affinity=affinity, memory_watch_bytes=limits.memory_bytes)

    def adopt(
        self, pod: str, container: str, affinity: Sequence[int], limits: ContainerLimits = NO_LIMITS
    ) -> None:
        self._release_container(pod, container)
        cores = tuple(core for core in affinity if core in self._load)
        for core in cores:
            self._load[core] += 1
        self._taken.setdefault(pod, {})[container] = cores

    def cpus_of(self, pod: str, container: str) -> tuple[int, ...]:
        return self._taken.get(pod, {}).get(container, ())

    def _release_container(self, pod: str, container: str) -> None:
        """Release the CPUs of an earlier attempt."""
        for core in self._taken.get(pod, {}).pop(container, ()):
            self._load[core] -= 1

    def release(self, pod: str) -> None:
        for container in tuple(self._taken.get(pod, ())):
            self._release_container(pod, container)
        self._taken.pop(pod, None)


class CgroupLimiter:
    """Limiter with cgroup v2 below ``base``: one directory per pod, one per container in it."""

    def __init__(self, base: Path, *, pod_pids: int = 0) -> None:
        self._base = base
        self._pod_pids = pod_pids
        """Maximum number of processes of each pod; 0: no limit."""
        self._cpus: dict[str, dict[str, tuple[int, ...]]] = {}
        """Pod → container → CPUs that it may use, if not all."""
        self.description = f"cpu and memory: cgroup v2 below {base}"
        if pod_pids:
            self.description += f"; processes: at most {pod_pids} for each pod"

    def close(self) -> None:
        """Remove the base directory unless it has pods."""
        with contextlib.suppress(OSError):
            self._base.rmdir()

    def apply(
        self, pod: str, container: str, limits: ContainerLimits, within: Sequence[int] = ()
    ) -> Enforcement:
        directory = self._base / pod
        directory.mkdir(exist_ok=True)
        _write(directory / "cgroup.subtree_control", " ".join(f"+{name}" for name in _CONTROLLERS))
        if self._pod_pids:
            _write(directory / "pids.max", str(self._pod_pids))
        own = directory / container
        own.mkdir(exist_ok=True)
        quota = f"{limits.cpu_milli * _PERIOD // 1000}" if limits.cpu_milli else "max"
        _write(own / "cpu.max", f"{quota} {_PERIOD}")
        _write(own / "cpu.weight", str(cpu_weight(limits.cpu_request_milli)))
        _write(own / "memory.max", str(limits.memory_bytes or "max"))
        if limits.memory_bytes:
            _write(own / "memory.oom.group", "1")
            if (own / "memory.swap.max").exists():
                _write(own / "memory.swap.max", "0")
        self._cpus.setdefault(pod, {})[container] = tuple(within)
        return Enforcement(cgroup=str(own), affinity=tuple(within))

    def adopt(
        self, pod: str, container: str, affinity: Sequence[int], limits: ContainerLimits = NO_LIMITS
    ) -> None:
        self._cpus.setdefault(pod, {})[container] = tuple(affinity)

    def cpus_of(self, pod: str, container: str) -> tuple[int, ...]:
        return self._cpus.get(pod, {}).get(container, ())

    def release(self, pod: str) -> None:
        """Remove the directories of an ended pod. A busy one stays until later."""
        self._cpus.pop(pod, None)
        directory = self._base / pod
        if not directory.is_dir():
            return
        for own in [*(entry for entry in directory.iterdir() if entry.is_dir()), directory]:
            try:
                own.rmdir()
            except OSError:
                return


def cpu_weight(request_milli: int) -> int:
    """Return the cgroup v2 weight of a CPU request.

    shares = milli·1024/1000, mapped as the kubelet does (KEP-2254).
    """
    shares = min(262_144, max(2, request_milli * 1024 // 1000))
    return 1 + (shares - 2) * 9999 // 262_142


def _write(path: Path, text: str) -> None:
    path.write_text(text)


def find_limiter(
    state: Path,
    cores: Sequence[int],
    *,
    pod_pids: int = 0,
    own_cgroup: str | None = None,
    mountinfo: str | None = None,
) -> Limiter:
    """Return a cgroup limiter if a delegated directory is usable, else one that watches.

    Its description has the reason.
    """
    mount = cgroup_mount(Path("/proc/self/mountinfo").read_text() if mountinfo is None else mountinfo)
    if mount is None:
        return WatchLimiter(cores, "no cgroup v2 on this machine", pod_pids=pod_pids)
    text = Path("/proc/self/cgroup").read_text() if own_cgroup is None else own_cgroup
    own = next((line[3:] for line in text.splitlines() if line.startswith("0::")), "/")
    own_directory = Path(os.path.normpath(str(mount) + "/" + own.lstrip("/")))
    name = "windlass-" + hashlib.sha256(str(state).encode()).hexdigest()[:10]
    why = "no directory of cgroup v2 with the controllers cpu and memory is delegated to this user"
    for candidate in (own_directory, *own_directory.parents):
        if not candidate.is_relative_to(mount):
            break
        if not _delegated(candidate):
            continue
        try:
            return _cgroup_limiter(_make_base(candidate, name), pod_pids)
        except OSError as error:
            why = f"{candidate}: {error.strerror or error}"
    return WatchLimiter(cores, why, pod_pids=pod_pids)


def _cgroup_limiter(base: Path, pod_pids: int) -> CgroupLimiter:
    """Return the limiter, with a limit of processes if the controller of that is available."""
    if not pod_pids:
        return CgroupLimiter(base)
    try:
        _write(base.parent / "cgroup.subtree_control", "+pids")
        _write(base / "cgroup.subtree_control", "+pids")
    except OSError as error:
        limiter = CgroupLimiter(base)
        limiter.description += f"; pod-max-pids has no effect: {error.strerror or error}"
        return limiter
    return CgroupLimiter(base, pod_pids=pod_pids)


def cgroup_mount(mountinfo: str) -> Path | None:
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        if right.startswith("cgroup2 "):
            return Path(left.split()[4])
    return None


def _delegated(directory: Path) -> bool:
    """Return whether the agent may create cgroups in ``directory`` and move processes into them.

    Their members need both controllers.
    """
    try:
        controllers = (directory / "cgroup.subtree_control").read_text().split()
        available = (directory / "cgroup.controllers").read_text().split()
    except OSError:
        return False
    if not all(
        os.access(directory / part, os.W_OK) for part in ("", "cgroup.procs", "cgroup.subtree_control")
    ):
        return False
    if all(name in controllers for name in _CONTROLLERS):
        return True
    return all(name in available for name in _CONTROLLERS)


def _make_base(parent: Path, name: str) -> Path:
    """Create the base directory. Raises ``OSError``, for instance EBUSY if ``parent`` has processes."""
    enable = " ".join(f"+{controller}" for controller in _CONTROLLERS)
    enabled = (parent / "cgroup.subtree_control").read_text().split()
    if not all(controller in enabled for controller in _CONTROLLERS):
        _write(parent / "cgroup.subtree_control", enable)
    base = parent / name
    base.mkdir(exist_ok=True)
    _write(base / "cgroup.subtree_control", enable)
    return base
