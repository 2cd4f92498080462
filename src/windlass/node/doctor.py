"""What ``windlass doctor`` tells about this machine: facts, each with what it means and how to change it.

Nothing here needs a running control plane; what a running agent says about itself is believed more than
what this process could do in its place.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from windlass.api import annotations
from windlass.api.devices import node_annotation
from windlass.node import machine
from windlass.node.devices import discovery, mps
from windlass.node.devices.mig_instances import MigInstanceFile
from windlass.node.limits import CgroupLimiter, find_limiter
from windlass.node.options import AgentOptions
from windlass.node.paths import NodePaths
from windlass.node.sandbox.namespaces import permitted_namespaces
from windlass.node.sandbox.pod_network import Capabilities, capabilities_of

OK, WEAK, NONE = "ok", "weak", "none"


@dataclass(frozen=True, slots=True)
class Fact:
    """``level``: ok; weak (works with less); none (is not there). ``fix`` is empty where nothing is to be done."""

    topic: str
    level: str
    text: str
    fix: str = ""


_NAMESPACE_WORDS = {
    "net": "a network of its own (two gangs may use one port)",
    "mnt": "files of its own (volumes at their mount paths, a hosts file)",
    "uts": "a hostname of its own",
    "ipc": "shared memory of its own",
}


def facts(
    folder: Path, options: AgentOptions | None = None, told: Mapping[str, str] | None = None
) -> Iterator[Fact]:
    """All facts. ``folder`` is the agent's (it need not exist yet); ``told``: the annotations that a
    running agent gave its node."""
    options = options or AgentOptions()
    told = told or {}
    found = machine.find_machine(_existing(folder))
    capabilities = capabilities_of(permitted_namespaces())
    yield from isolation_facts(capabilities, told.get(annotations.ISOLATION, ""))
    yield outbound_fact(capabilities, told.get(annotations.OUTBOUND, ""))
    yield limits_fact(told.get(annotations.LIMITS, "") or limits_words(folder, found.cores))
    gpus, mig = discovery.split_option(options.gpus)
    wishes = discovery.DiscoveryOptions(
        mig or discovery.MIG_AUTO, may_carve=os.geteuid() == 0, own=_own_slices(folder)
    )
    inventory = discovery.discover(gpus, wishes)
    yield from gpu_facts(inventory, mps.find_daemon(os.environ), told)
    yield capacity_fact(found, options)
    yield from image_facts(options)


def _own_slices(folder: Path) -> frozenset[tuple[str, str, int]]:
    return frozenset(MigInstanceFile(NodePaths(folder).slices).made)


def _existing(folder: Path) -> Path:
    while not folder.exists():
        folder = folder.parent
    return folder


def isolation_facts(capabilities: Capabilities, told: str = "") -> list[Fact]:
    """One line for what pods have of their own, one for each thing they lack.

    ``told``: what the running agent gives its pods.
    """
    names = [name for name in _NAMESPACE_WORDS if name in capabilities.namespaces]
    how = "by a user namespace" if capabilities.user else "as root"
    found = []
    if told and capabilities.network and "net" not in told.split(", "):
        text = f"this machine permits {', '.join(names)}, but the running agent gives pods {told}"
        found.append(
            Fact("isolation", WEAK, text, "read what logs/node.log in the state folder says about it")
        )
    elif names:
        words = ", ".join(_NAMESPACE_WORDS[name] for name in names)
        found.append(Fact("isolation", OK, f"every pod has ({how}) {words}"))
    for name, why in capabilities.refused.items():
        if name == "pid":
            text = f"pods see all processes of this machine: {why}"
            found.append(
                Fact("isolation.pid", WEAK, text, "mount /proc unmasked, or run outside a container")
            )
            continue
        words = _NAMESPACE_WORDS.get(name, "anything of its own")
        found.append(
            Fact(f"isolation.{name}", WEAK, f"no pod has {words}: {why}", namespace_fix(capabilities.user))
        )
    return found


def namespace_fix(user: bool) -> str:
    """What lets this machine make namespaces, from what its settings say."""
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


def outbound_fact(capabilities: Capabilities, told: str = "") -> Fact:
    """The way out of pods' network. ``told``: kind and note of the running agent's."""
    if told and not told.startswith("none:"):
        return Fact("outbound", OK, told)
    if not capabilities.network:
        return Fact("outbound", OK, "pods share the machine's network, also outwards")
    if not capabilities.user and (shutil.which("nft") or shutil.which("iptables")):
        return Fact("outbound", OK, "pods reach the outside by NAT of this machine")
    if shutil.which("slirp4netns") is None:
        return Fact(
            "outbound",
            NONE,
            "pods reach one another, but nothing outside this machine",
            "install slirp4netns (Debian, Ubuntu, Fedora: package slirp4netns), then windlass down && windlass up",
        )
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return Fact(
            "outbound",
            NONE,
            "slirp4netns is installed, but this user may not open /dev/net/tun",
            "sudo chmod 0666 /dev/net/tun (the usual mode), then windlass down && windlass up",
        )
    return Fact("outbound", OK, "pods reach the outside by slirp4netns (TCP and UDP, no ping)")


def limits_words(folder: Path, cores: Sequence[int]) -> str:
    """How an agent started from here would hold pods to their limits, found out by trying."""
    limiter = find_limiter(folder, cores)
    if isinstance(limiter, CgroupLimiter):
        limiter.close()
    return limiter.words


def limits_fact(words: str) -> Fact:
    """``words``: a limiter's."""
    if "watched" not in words:
        return Fact("limits", OK, words)
    return Fact(
        "limits",
        WEAK,
        words,
        "start windlass where cgroup v2 is delegated: systemd-run --user --scope -p Delegate=yes windlass up",
    )


def gpu_facts(
    inventory: discovery.Inventory, daemon: mps.Daemon, told: Mapping[str, str] | None = None
) -> Iterator[Fact]:
    """What devices there are, which are not well, who carves them, and whether shares are enforced.

    ``told``: the annotations of a running agent's node, whose word on health counts.
    """
    if not inventory.cards:
        yield _no_gpu(inventory)
        return
    products = ", ".join(sorted({card.model for card in inventory.cards if card.model}))
    note = f"; {inventory.note}" if inventory.note else ""
    if inventory.simulated:
        yield Fact("gpus", WEAK, f"{len(inventory.cards)} × {products}{note}")
    else:
        yield Fact("gpus", OK, f"{len(inventory.cards)} × {products}{note}")
    for card in node_annotation.read(told or {}).cards or inventory.cards:
        if not card.healthy:
            text = f"GPU {card.index} ({card.model}) gets nothing new: {card.reason}"
            fix = f"when it is mended (nvidia-smi --gpu-reset, or a reboot): windlass gpu clear NODE {card.index}"
            yield Fact("gpus.health", WEAK, text, fix)
    yield from _mig_facts(inventory)
    if not inventory.simulated and any(not card.mig for card in inventory.cards):
        yield _mps_fact(daemon)


def _no_gpu(inventory: discovery.Inventory) -> Fact:
    if discovery.has_files():
        text = f"device files are there, but {inventory.note}"
        fix = "nvidia-smi, or dmesg | grep -i nvrm: they say why the driver does not answer"
        return Fact("gpus", NONE, text, fix)
    fix = (
        "install the NVIDIA driver (nvidia-smi must list the GPUs), or try policies with "
        "windlass up --gpus simulated:2"
    )
    return Fact("gpus", NONE, inventory.note, fix)


def _mig_facts(inventory: discovery.Inventory) -> Iterator[Fact]:
    cut = [card for card in inventory.cards if card.mig]
    if not cut:
        return
    carved = [str(card.index) for card in cut if card.dynamic]
    fixed = [str(card.index) for card in cut if not card.dynamic]
    if carved:
        yield Fact("gpus.mig", OK, f"GPUs that are carved into MIG slices as pods ask: {', '.join(carved)}")
    if fixed:
        text = f"GPUs in MIG mode that are handed out in the slices they have: {', '.join(fixed)}"
        fix = "to have them carved as pods ask, run windlass as root and remove the slices that others made"
        yield Fact("gpus.mig", OK, text, fix)


def _mps_fact(daemon: mps.Daemon) -> Fact:
    if mps.may_connect(daemon):
        return Fact("gpus.mps", OK, f"shares of GPUs are enforced by MPS ({daemon.directory})")
    if daemon.runs:
        text = (
            f"this user may not use the MPS control daemon of {daemon.directory}: shares are only accounted"
        )
        return Fact("gpus.mps", WEAK, text, "start the daemon as this user: nvidia-cuda-mps-control -d")
    text = f"shares of GPUs are accounted, but not enforced: {daemon.problem}"
    return Fact("gpus.mps", WEAK, text, "nvidia-cuda-mps-control -d")


def capacity_fact(found: machine.Machine, options: AgentOptions) -> Fact:
    kept = machine.memory_reserve(found.memory_bytes, options.memory_reserve_bytes)
    gib = 2**30
    text = (
        f"{len(found.cores)} cores, {(found.memory_bytes - kept) / gib:.1f} GiB of memory for pods "
        f"({kept / gib:.1f} GiB kept back), {found.disk_bytes / gib:.0f} GiB of disk"
    )
    return Fact("capacity", OK, text)


def image_facts(options: AgentOptions) -> list[Fact]:
    """The map from images to environments, and entries of it that lead nowhere."""
    if not options.images:
        text = "commands run with the machine's own files whatever their image (windlass up --images maps images)"
        return [Fact("images", OK, text)]
    found = [Fact("images", OK, f"images with an environment: {', '.join(sorted(options.images))}")]
    for image, entry in sorted(options.images.items()):
        missing = [folder for folder in (entry.path, entry.venv) if folder and not os.path.isdir(folder)]
        found += [
            Fact("images", WEAK, f"{image}: {folder} does not exist", f"make {folder} or change the map")
            for folder in missing
        ]
    return found
