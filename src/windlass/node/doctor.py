"""Facts about this machine for ``windlass doctor``, each with a remedy.

They need no running control plane. What a running agent reports takes precedence over what this
process finds out.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from windlass.api import annotations as annotation_names
from windlass.api.devices import node_annotation
from windlass.node import machine
from windlass.node.devices import discovery, mps, mps_control
from windlass.node.devices.mig_instances import MigInstanceFile
from windlass.node.limits import CgroupLimiter, find_limiter
from windlass.node.options import AgentOptions
from windlass.node.paths import NodePaths
from windlass.node.sandbox.namespaces import permitted_namespaces
from windlass.node.sandbox.pod_network import Capabilities, capabilities_of

OK, WEAK, NONE = "ok", "weak", "none"


@dataclass(frozen=True, slots=True)
class Fact:
    """Fact about this machine.

    ``level``: ok, weak (works with restrictions) or none (not available). ``fix``: empty if there is
    nothing to do.
    """

    topic: str
    level: str
    text: str
    fix: str = ""


_NAMESPACE_DESCRIPTIONS = {
    "net": "a network of its own (two gangs may use one port)",
    "mnt": "files of its own (volumes at their mount paths, a hosts file)",
    "uts": "a hostname of its own",
    "ipc": "shared memory of its own",
}


def facts(
    directory: Path, options: AgentOptions | None = None, reported: Mapping[str, str] | None = None
) -> Iterator[Fact]:
    """Return all facts. ``directory`` is the agent's and need not exist.

    ``reported``: the annotations that a running agent gave its node.
    """
    options = options or AgentOptions()
    reported = reported or {}
    this_machine = machine.find_machine(_existing(directory))
    capabilities = capabilities_of(permitted_namespaces())
    yield from isolation_facts(capabilities, reported.get(annotation_names.ISOLATION, ""))
    yield outbound_fact(capabilities, reported.get(annotation_names.OUTBOUND, ""))
    yield limits_fact(
        reported.get(annotation_names.LIMITS, "") or limits_description(directory, this_machine.cores)
    )
    gpus, mig = discovery.split_option(mps_control.split_option(options.gpus)[0])
    discovery_options = discovery.DiscoveryOptions(
        mig or discovery.MIG_AUTO, may_create=os.geteuid() == 0, own=_own_instances(directory)
    )
    inventory = discovery.discover(gpus, discovery_options)
    yield from gpu_facts(inventory, mps.find_daemon(os.environ), reported)
    yield capacity_fact(this_machine, options)
    yield from image_facts(options)


def local_node(options: AgentOptions) -> dict[str, Any]:
    """Return the Node that an agent of this machine would register, as far as its GPUs go."""
    gpus, mig = discovery.split_option(mps_control.split_option(options.gpus)[0])
    inventory = discovery.discover(gpus, discovery.DiscoveryOptions(mig or discovery.MIG_AUTO))
    this_machine = machine.find_machine(Path("/"))
    name = options.node_name or this_machine.hostname
    return {
        "metadata": {
            "name": name,
            "labels": machine.labels(name, this_machine, inventory),
            "annotations": {annotation_names.NODE_DEVICES: node_annotation.write(inventory.devices)},
        },
        "status": {
            "allocatable": {resource: str(count) for resource, count in inventory.allocatable.items()}
        },
    }


def _own_instances(directory: Path) -> frozenset[tuple[str, str, int]]:
    return frozenset(MigInstanceFile(NodePaths(directory).mig_instances).instances)


def _existing(directory: Path) -> Path:
    while not directory.exists():
        directory = directory.parent
    return directory


def isolation_facts(capabilities: Capabilities, reported: str = "") -> list[Fact]:
    """Return a fact about the pods' own namespaces, and one for each namespace they lack.

    ``reported``: what the running agent gives its pods.
    """
    names = [name for name in _NAMESPACE_DESCRIPTIONS if name in capabilities.namespaces]
    how = "by a user namespace" if capabilities.user else "as root"
    result = []
    if reported and capabilities.network and "net" not in reported.split(", "):
        text = f"this machine permits {', '.join(names)}, but the running agent gives pods {reported}"
        result.append(
            Fact("isolation", WEAK, text, "look for the reason in logs/node.log of the state directory")
        )
    elif names:
        description = ", ".join(_NAMESPACE_DESCRIPTIONS[name] for name in names)
        result.append(Fact("isolation", OK, f"every pod has ({how}) {description}"))
    for name, why in capabilities.refused.items():
        if name == "pid":
            text = f"pods see all processes of this machine: {why}"
            result.append(
                Fact("isolation.pid", WEAK, text, "mount /proc unmasked, or run outside a container")
            )
            continue
        description = _NAMESPACE_DESCRIPTIONS.get(name, "anything of its own")
        result.append(
            Fact(
                f"isolation.{name}",
                WEAK,
                f"no pod has {description}: {why}",
                namespace_fix(capabilities.user),
            )
        )
    return result


def namespace_fix(user: bool) -> str:
    """Return the setting that makes this machine permit namespaces."""
    if not user:
        return "in a container, start it with --privileged or --cap-add SYS_ADMIN --cap-add NET_ADMIN"
    for path, bad, fix in (
        ("/proc/sys/user/max_user_namespaces", "0", "sudo sysctl user.max_user_namespaces=65536"),
        (
            "/proc/sys/kernel/unprivileged_userns_clone",
            "0",
            "sudo sysctl kernel.unprivileged_userns_clone=1",
        ),
        (
            "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0",
        ),
    ):
        if _setting(path) == bad:
            return fix
    return "allow unprivileged user namespaces (in a container: a seccomp profile that permits unshare and mount)"


def _setting(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def outbound_fact(capabilities: Capabilities, reported: str = "") -> Fact:
    """Return the fact about outbound traffic of pods. ``reported``: kind and note of the running agent."""
    if reported and not reported.startswith("none:"):
        return Fact("outbound", OK, reported)
    if not capabilities.network:
        return Fact("outbound", OK, "pods use the machine's network, also for outbound traffic")
    if not capabilities.user and (shutil.which("nft") or shutil.which("iptables")):
        return Fact("outbound", OK, "outbound traffic of pods uses NAT of this machine")
    if shutil.which("slirp4netns") is None:
        return Fact(
            "outbound",
            NONE,
            "pods reach each other, but nothing outside this machine",
            "install slirp4netns (Debian, Ubuntu, Fedora: package slirp4netns), then windlass down && windlass up",
        )
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return Fact(
            "outbound",
            NONE,
            "slirp4netns is installed, but this user may not open /dev/net/tun",
            "sudo chmod 0666 /dev/net/tun (the usual mode), then windlass down && windlass up",
        )
    return Fact("outbound", OK, "outbound traffic of pods uses slirp4netns (TCP and UDP, no ping)")


def limits_description(directory: Path, cores: Sequence[int]) -> str:
    """Return how an agent of this process would enforce limits, found out by trying."""
    limiter = find_limiter(directory, cores)
    if isinstance(limiter, CgroupLimiter):
        limiter.close()
    return limiter.description


def limits_fact(description: str) -> Fact:
    """Return the fact about limits. ``description``: the limiter's."""
    if "watched" not in description:
        return Fact("limits", OK, description)
    return Fact(
        "limits",
        WEAK,
        description,
        "start windlass where cgroup v2 is delegated: systemd-run --user --scope -p Delegate=yes windlass up",
    )


def gpu_facts(
    inventory: discovery.Inventory, daemon: mps.Daemon, reported: Mapping[str, str] | None = None
) -> Iterator[Fact]:
    """Return facts about devices: their number and health, MIG, and the enforcement of shares.

    ``reported``: the annotations of a running agent's node. Their health information counts.
    """
    if not inventory.devices:
        yield _no_gpu(inventory)
        return
    products = ", ".join(sorted({device.model for device in inventory.devices if device.model}))
    note = f"; {inventory.note}" if inventory.note else ""
    if inventory.simulated:
        yield Fact("gpus", WEAK, f"{len(inventory.devices)} × {products}{note}")
    else:
        yield Fact("gpus", OK, f"{len(inventory.devices)} × {products}{note}")
    for device in node_annotation.read(reported or {}).cards or inventory.devices:
        if not device.healthy:
            text = f"GPU {device.index} ({device.model}) is not used for new pods: {device.reason}"
            fix = f"when it is repaired (nvidia-smi --gpu-reset, or a reboot): windlass gpu clear NODE {device.index}"
            yield Fact("gpus.health", WEAK, text, fix)
    yield from _mig_facts(inventory)
    if not inventory.simulated and any(not device.mig for device in inventory.devices):
        yield _mps_fact(daemon)


def _no_gpu(inventory: discovery.Inventory) -> Fact:
    if discovery.has_device_files():
        text = f"device files are there, but {inventory.note}"
        fix = "nvidia-smi, or dmesg | grep -i nvrm: they show why the driver does not respond"
        return Fact("gpus", NONE, text, fix)
    fix = (
        "install the NVIDIA driver (nvidia-smi must list the GPUs), or try policies with "
        "windlass up --gpus simulated:2"
    )
    return Fact("gpus", NONE, inventory.note, fix)


def _mig_facts(inventory: discovery.Inventory) -> Iterator[Fact]:
    partitioned = [device for device in inventory.devices if device.mig]
    if not partitioned:
        return
    dynamic = [str(device.index) for device in partitioned if device.dynamic]
    static = [str(device.index) for device in partitioned if not device.dynamic]
    if dynamic:
        yield Fact(
            "gpus.mig",
            OK,
            f"GPUs on which MIG instances are created as pods request them: {', '.join(dynamic)}",
        )
    if static:
        text = f"GPUs in MIG mode with the existing instances only: {', '.join(static)}"
        fix = (
            "to create instances as pods request them, run windlass as root and remove the existing instances"
        )
        yield Fact("gpus.mig", OK, text, fix)


def _mps_fact(daemon: mps.Daemon) -> Fact:
    if mps.may_connect(daemon):
        return Fact("gpus.mps", OK, f"GPU shares are enforced by MPS ({daemon.directory})")
    if daemon.runs:
        text = f"this user has no access to the MPS control daemon of {daemon.directory}: GPU shares are not enforced"
        return Fact("gpus.mps", WEAK, text, "start the daemon as this user: nvidia-cuda-mps-control -d")
    text = f"GPU shares are accounted, but not enforced: {daemon.problem}"
    return Fact("gpus.mps", WEAK, text, "nvidia-cuda-mps-control -d")


def capacity_fact(this_machine: machine.Machine, options: AgentOptions) -> Fact:
    reserved = machine.memory_reserve(this_machine.memory_bytes, options.memory_reserve_bytes)
    gib = 2**30
    text = (
        f"{len(this_machine.cores)} cores, {(this_machine.memory_bytes - reserved) / gib:.1f} GiB of memory for pods "
        f"({reserved / gib:.1f} GiB reserved for the system), {this_machine.disk_bytes / gib:.0f} GiB of disk"
    )
    return Fact("capacity", OK, text)


def image_facts(options: AgentOptions) -> list[Fact]:
    """Return facts about the image map, and about entries without an existing directory."""
    if not options.images:
        text = "commands run with the machine's own files whatever their image (windlass up --images maps images)"
        return [Fact("images", OK, text)]
    result = [Fact("images", OK, f"images with an environment: {', '.join(sorted(options.images))}")]
    for image, entry in sorted(options.images.items()):
        missing = [
            directory for directory in (entry.path, entry.venv) if directory and not os.path.isdir(directory)
        ]
        result += [
            Fact(
                "images",
                WEAK,
                f"{image}: {directory} does not exist",
                f"create {directory} or change the map",
            )
            for directory in missing
        ]
    return result
