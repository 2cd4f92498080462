"""Generated files of ``/etc`` that the containers of a pod see instead of the machine's."""

from __future__ import annotations

import os
from pathlib import Path

from windlass.node.runtime.mounts import Mount
from windlass.node.sandbox.hosts import name_switch, reads_hosts_first

_SWITCH = Path("/etc/nsswitch.conf")


def system_files(
    directory: Path, hostname: str, nameserver: str, *, own_network: bool, resolves_names: bool
) -> list[Mount]:
    """Write the files into the pod's ``directory`` and return their mounts.

    ``nameserver``: empty if the pod keeps the machine's ``resolv.conf``.
    ``own_network``: the pod has a network of its own, and so its own hostname.
    ``resolves_names``: the pod's hosts file has the names of pods and services.
    """
    mounts = _name_files(directory) if resolves_names else []
    if not own_network:
        return mounts
    (directory / "hostname").write_text(hostname + "\n")
    mounts.append(Mount(str(directory / "hostname"), "/etc/hostname", optional=True))
    if nameserver:
        resolver = directory / "resolv.conf"
        resolver.write_text(f"nameserver {nameserver}\n")
        mounts.append(Mount(str(resolver), "/etc/resolv.conf", optional=True))
    return mounts


def _name_files(directory: Path) -> list[Mount]:
    mounts = [Mount(str(directory / "hosts"), "/etc/hosts", optional=True)]
    machine = _SWITCH.read_text() if _SWITCH.exists() else ""
    if not reads_hosts_first(machine):
        switch = directory / "nsswitch.conf"
        switch.write_text(name_switch(machine))
        mounts.append(Mount(str(switch), str(_SWITCH), optional=True))
    if os.path.isdir("/run/nscd"):  # its cache knows only the machine's own hosts file
        (directory / "empty").mkdir(exist_ok=True)
        mounts.append(Mount(str(directory / "empty"), "/run/nscd", optional=True))
    return mounts
