"""Flags of the kubelet that the agent accepts: limits, reserved resources, CPU pinning.

The flags have the names and the syntax that they have for a kubelet. Those without an
effect here are accepted with a warning, so that an existing file can be used as it is.
"""

from __future__ import annotations

import difflib
import json
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from windlass.api import quantities
from windlass.api.devices import numa_annotations
from windlass.api.errors import WindlassError
from windlass.kits.files import unlink_if_exists, write_atomic
from windlass.node.options import AgentOptions

STORED = "kubelet-flags.json"
_RESERVABLE = ("cpu", "memory", "ephemeral-storage")
_CHOICES = {
    "cpu-manager-policy": ("none", "static"),
    "topology-manager-policy": numa_annotations.POLICIES,
    "topology-manager-scope": ("container", "pod"),
}
_COUNTS = ("max-pods", "pod-max-pids")
EFFECTIVE: Mapping[str, str] = {
    "max-pods": "Maximum number of pods on the node: 500.",
    "pod-max-pids": "Maximum number of processes of each pod (needs a delegated cgroup v2).",
    "cpu-manager-policy": "static: containers with whole CPUs get cores of their own.",
    "topology-manager-policy": "Alignment of pods to NUMA nodes: best-effort, restricted, single-numa-node.",
    "topology-manager-scope": "Scope of the alignment: container or pod.",
    "kube-reserved": "Resources that pods do not get: cpu=4,memory=8Gi.",
    "system-reserved": "Further resources that pods do not get: cpu=2,memory=4Gi.",
    "reserved-cpus": "CPUs that no container gets exclusively, in place of reserved CPU amounts: 0-1.",
    "eviction-hard": "memory.available<500Mi: memory that pods do not get.",
}
"""Flags with an effect, and their help."""
_OTHERS = """
    address allowed-unsafe-sysctls anonymous-auth authentication-token-webhook authorization-mode
    bootstrap-kubeconfig cert-dir cgroup-driver cgroup-root cgroups-per-qos client-ca-file
    cloud-provider cluster-dns cluster-domain config config-dir container-log-max-files
    container-log-max-size container-runtime-endpoint contention-profiling cpu-cfs-quota
    cpu-cfs-quota-period cpu-manager-policy-options cpu-manager-reconcile-period
    enable-controller-attach-detach enable-debugging-handlers enforce-node-allocatable event-burst
    event-qps eviction-max-pod-grace-period eviction-minimum-reclaim eviction-pressure-transition-period
    eviction-soft eviction-soft-grace-period exit-on-lock-contention
    experimental-allocatable-ignore-eviction fail-swap-on feature-gates file-check-frequency
    hairpin-mode healthz-bind-address healthz-port hostname-override http-check-frequency
    image-credential-provider-bin-dir image-credential-provider-config image-gc-high-threshold
    image-gc-low-threshold image-service-endpoint keep-terminated-pod-volumes kernel-memcg-notification
    kube-api-burst kube-api-qps kube-reserved-cgroup kubeconfig kubelet-cgroups
    local-storage-capacity-isolation lock-file log-flush-frequency log-json-info-buffer-size
    log-json-split-stream logging-format make-iptables-util-chains manifest-url manifest-url-header
    max-open-files maximum-dead-containers maximum-dead-containers-per-container memory-manager-policy
    minimum-container-ttl-duration minimum-image-ttl-duration node-ip node-labels node-status-max-images
    node-status-update-frequency oom-score-adj pod-cidr pod-infra-container-image pod-manifest-path
    pods-per-core port protect-kernel-defaults provider-id qos-reserved read-only-port register-node
    register-schedulable register-with-taints registry-burst registry-qps reserved-memory resolv-conf
    root-dir rotate-certificates rotate-server-certificates runonce runtime-cgroups
    runtime-request-timeout seccomp-default serialize-image-pulls streaming-connection-idle-timeout
    sync-frequency system-cgroups system-reserved-cgroup tls-cert-file tls-cipher-suites tls-min-version
    tls-private-key-file topology-manager-policy-options v version vmodule volume-plugin-dir
    volume-stats-agg-period
"""
_WITHOUT_EFFECT = frozenset(_OTHERS.split())
"""Other flags of the kubelet."""
_ASSIGNMENT = re.compile(r"""(?:export\s+)?[A-Z_][A-Z0-9_]*=["']?(.*?)["']?""")
_FRAME = ("|", "---")
"""Words around flags in YAML and in shell scripts."""
_EVICTION = re.compile(r"([a-zA-Z.]+)<(\d+(?:\.\d+)?%|[0-9.]+[A-Za-z]*)")


@dataclass(frozen=True, slots=True)
class KubeletFlags:
    """Parsed flags. ``reserved``: amounts in engine units, of both reservations together."""

    max_pods: int | None = None
    pod_max_pids: int | None = None
    static_cpus: bool = False
    topology_manager_policy: str = "none"
    topology_manager_scope: str = "container"
    reserved: Mapping[str, int] = field(default_factory=dict)
    reserved_cpus: tuple[int, ...] = ()
    eviction_memory: str = ""
    """Threshold of ``memory.available``: an amount or a percentage."""

    def reserved_on(self, memory_bytes: int) -> dict[str, int]:
        """Return the resources that pods do not get on a node with this much memory."""
        found = dict(self.reserved)
        if self.reserved_cpus:
            found["cpu"] = 1000 * len(self.reserved_cpus)
        threshold = self.eviction_memory
        if threshold.endswith("%"):
            found["memory"] = found.get("memory", 0) + int(memory_bytes * float(threshold[:-1]) / 100)
        elif threshold:
            found["memory"] = found.get("memory", 0) + quantities.to_units("memory", threshold)
        return {name: units for name, units in found.items() if units}


def words_of(text: str) -> list[str]:
    """Return the flags in a file: one or more to a line, with comments after ``#``.

    A line may also assign the flags to a variable: ``KUBELET_EXTRA_ARGS="--max-pods=500"``.
    Raises :class:`WindlassError`.
    """
    found: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip().removesuffix("\\").rstrip()
        assigned = _ASSIGNMENT.fullmatch(line)
        try:
            words = shlex.split(assigned[1] if assigned else line, comments=True)
        except ValueError as error:
            raise _invalid(f"in line {number}", f"{line!r}: {error}") from error
        open_flag = False
        for word in words:
            if word.startswith("--"):
                found.append(word)
            elif open_flag:
                found[-1] += f"={word}"  # --max-pods 500
            elif word not in _FRAME:
                raise _invalid(f"in line {number}", f"{word!r} is not a flag", f"--{word.lstrip('-')}")
            open_flag = word.startswith("--") and "=" not in word
    return found


def parse(words: Iterable[str]) -> tuple[KubeletFlags, list[str]]:
    """Return the flags, and warnings about those without an effect.

    Of several flags with one name the last is used. Raises :class:`WindlassError`.
    """
    values: dict[str, str] = {}
    warnings = []
    for word in words:
        name, equals, value = word.removeprefix("--").partition("=")
        if name in EFFECTIVE:
            if not equals or not value:
                raise _invalid(word, "it has no value", f"--{name}=VALUE")
            values[name] = value
        elif name in _WITHOUT_EFFECT:
            warnings.append(f"--{name} has no effect on this agent, which runs pods as processes")
        else:
            close = difflib.get_close_matches(name, (*EFFECTIVE, *sorted(_WITHOUT_EFFECT)), 1)
            raise _invalid(word, "the kubelet has no such flag", *(f"--{match}=VALUE" for match in close))
    flags = _flags(values, warnings)
    return flags, warnings


def _flags(values: Mapping[str, str], warnings: list[str]) -> KubeletFlags:
    for name, known in _CHOICES.items():
        if name in values and values[name] not in known:
            raise _invalid(
                f"--{name}={values[name]}", f"known values: {', '.join(known)}", f"--{name}={known[0]}"
            )
    counts = {name: _count(name, values[name]) for name in _COUNTS if name in values}
    reserved: dict[str, int] = {}
    for name in ("kube-reserved", "system-reserved"):
        for resource, units in _amounts(name, values.get(name, ""), warnings).items():
            reserved[resource] = reserved.get(resource, 0) + units
    flags = KubeletFlags(
        max_pods=counts.get("max-pods"),
        pod_max_pids=counts.get("pod-max-pids"),
        static_cpus=values.get("cpu-manager-policy") == "static",
        topology_manager_policy=values.get("topology-manager-policy", "none"),
        topology_manager_scope=values.get("topology-manager-scope", "container"),
        reserved=reserved,
        reserved_cpus=_cpus(values.get("reserved-cpus", "")),
        eviction_memory=_eviction(values.get("eviction-hard", ""), warnings),
    )
    if flags.static_cpus and not flags.reserved_cpus and not reserved.get("cpu"):
        raise _invalid(
            "--cpu-manager-policy=static",
            "it needs reserved CPUs, on which everything else runs",
            "--cpu-manager-policy=static --system-reserved=cpu=1",
        )
    if flags.topology_manager_policy == "best-effort":
        warnings.append(
            "--topology-manager-policy=best-effort only prefers one NUMA node; restricted and single-numa-node "
            "refuse pods that do not fit"
        )
    return flags


def _count(name: str, text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise _invalid(f"--{name}={text}", "it must be a whole number of at least 1", f"--{name}=500")
    return int(text)


def _amounts(flag: str, text: str, warnings: list[str]) -> dict[str, int]:
    found = {}
    for part in filter(None, text.split(",")):
        name, equals, amount = part.partition("=")
        if name == "pid":
            warnings.append(f"--{flag}: pid has no effect on this agent")
            continue
        if not equals or name not in _RESERVABLE:
            raise _invalid(
                f"--{flag}={text}",
                f"{part!r} is not RESOURCE=AMOUNT; resources: {', '.join(_RESERVABLE)}",
                f"--{flag}=cpu=1,memory=1Gi",
            )
        try:
            units = quantities.to_units(name, amount)
        except quantities.QuantityError as error:
            raise _invalid(f"--{flag}={text}", f"{name}: {error}", f"--{flag}={name}=1") from error
        if units < 0:
            raise _invalid(f"--{flag}={text}", f"{name} is negative", f"--{flag}={name}=1")
        found[name] = units
    return found


def _cpus(text: str) -> tuple[int, ...]:
    try:
        cpus = numa_annotations.cpus_of(text)
    except ValueError:
        cpus = ()
    if text and not cpus:
        raise _invalid(f"--reserved-cpus={text}", "it must be a list of CPUs", "--reserved-cpus=0-1")
    return cpus


def _eviction(text: str, warnings: list[str]) -> str:
    memory, others = "", []
    for part in filter(None, text.split(",")):
        match = _EVICTION.fullmatch(part.strip())
        if match is None:
            raise _invalid(
                f"--eviction-hard={text}",
                f"{part!r} is not SIGNAL<AMOUNT",
                "--eviction-hard=memory.available<500Mi",
            )
        if match[1] == "memory.available":
            memory = match[2]
        else:
            others.append(match[1])
    if memory:
        warnings.append(
            "--eviction-hard=memory.available: the amount is reserved; this agent kills containers above their "
            "own limit, and evicts no pod for the memory of the node"
        )
    if others:
        warnings.append(f"--eviction-hard: {', '.join(others)} has no effect on this agent")
    return memory


def check_machine(flags: KubeletFlags, cores: Iterable[int], memory_bytes: int) -> None:
    """Check that a machine has what is reserved. Raises :class:`WindlassError`."""
    usable = tuple(cores)
    capacity = {"cpu": 1000 * len(usable), "memory": memory_bytes}
    for name, units in flags.reserved_on(memory_bytes).items():
        if name in capacity and units >= capacity[name]:
            raise WindlassError(
                "WL-USE-400",
                f"the kubelet flags reserve {name} {quantities.from_units(name, units)}, and nothing is left for pods",
                evidence=f"this machine has {name} {quantities.from_units(name, capacity[name])}",
                remedies=(f"--system-reserved={name}={quantities.from_units(name, capacity[name] // 4)}",),
            )
    if missing := sorted(set(flags.reserved_cpus) - set(usable)):
        raise _invalid(
            f"--reserved-cpus: {numa_annotations.cpu_text(missing)}",
            f"this machine has the CPUs {numa_annotations.cpu_text(usable)}",
            f"--reserved-cpus={usable[0]}",
        )


def _invalid(what: str, why: str, *remedies: str) -> WindlassError:
    return WindlassError("WL-USE-400", f"kubelet flag {what} is not valid", evidence=why, remedies=remedies)


# -- storage: a restarted agent uses the flags of its start ------------------------------------


def store(directory: Path, words: Iterable[str]) -> None:
    """Write the flags into the agent's directory. Without flags, remove stored ones."""
    listed = list(words)
    if listed:
        write_atomic(directory / STORED, json.dumps(listed))
    else:
        unlink_if_exists(directory / STORED)


def load_stored(directory: Path) -> KubeletFlags:
    """Return the flags stored in the agent's directory. Raises :class:`WindlassError`."""
    try:
        return parse(json.loads((directory / STORED).read_bytes()))[0]
    except FileNotFoundError:
        return KubeletFlags()
    except (ValueError, AttributeError, TypeError) as error:
        raise _invalid(str(directory / STORED), str(error), "windlass down && windlass up") from error


def applied(options: AgentOptions, directory: Path) -> AgentOptions:
    """Return the options of the agent with the flags stored in its directory.

    Raises :class:`WindlassError`.
    """
    from windlass.node.machine import usable_memory

    flags = load_stored(directory)
    return replace(
        options,
        max_pods=flags.max_pods or options.max_pods,
        pod_max_pids=flags.pod_max_pids or 0,
        static_cpus=flags.static_cpus,
        reserved_cpus=flags.reserved_cpus,
        reserved=flags.reserved_on(usable_memory()),
        topology_manager_policy=flags.topology_manager_policy,
        topology_manager_scope=flags.topology_manager_scope,
    )
