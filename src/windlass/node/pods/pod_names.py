"""Names of the pods and services of this node: which addresses they have, and the pods' hosts files."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from windlass.kits.clock import Clock
from windlass.node.sandbox.hosts import Directory, NamedPod, NamedService

_COALESCE_SECONDS = 0.004
_RETIRED_SECONDS = 60.0
"""Time in seconds for which the name of an ended pod still resolves, as from a DNS cache.

A rank that starts a moment after a short-lived peer ends must not fail because of an unknown name.
"""
_MAX_RETIRED = 64
"""Maximum number of ended pods without a subdomain with names that resolve. Every hosts file has them."""
_MACHINE_HOSTS = Path("/etc/hosts")


@dataclass(frozen=True, slots=True)
class HostsFile:
    """Hosts file of a pod.

    ``aliases``: from its manifest. ``machine``: the machine's own entries are included.
    """

    path: Path
    aliases: list[Mapping[str, Any]]
    machine: bool = False


class PodNames:
    """Names and addresses of the pods and services of this node.

    ``pods`` has every pod with an address here, also a reserved one, by uid. ``services`` is keyed
    by ``NS/NAME``, ``hosts_files`` by uid. Call :meth:`changed` after a change of ``services``.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.pods: dict[str, NamedPod] = {}
        self.services: dict[str, NamedService] = {}
        self.hosts_files: dict[str, HostsFile] = {}
        self.directory = Directory((), ())
        self._flushing: asyncio.Task[None] | None = None
        self._retired: dict[str, float] = {}
        """Uid of an ended pod with a name that still resolves → since when."""

    def set_pod(self, uid: str, named: NamedPod | None) -> None:
        """Take in a pod's name, address or readiness. ``None``: the pod is gone."""
        if named is None:
            self._retired.pop(uid, None)
            if self.pods.pop(uid, None) is None:
                return
        elif self.pods.get(uid) == named:
            return
        else:
            self._replace_retired(named)
            self.pods[uid] = named
        self.changed()

    def retire(self, uid: str) -> None:
        """Take in that a pod has ended: no service leads to it, its own names resolve for a while."""
        named = self.pods.get(uid)
        if named is not None:
            self._retired[uid] = self._clock.monotonic()
            self.pods[uid] = replace(named, ready=False, over=True)
            self._limit_retired()
            self.changed()

    def _limit_retired(self) -> None:
        """Remove the names that ended first beyond the limit: thousands of short pods may end in a minute."""
        if len(self._retired) > _MAX_RETIRED:
            plain = [uid for uid in self._retired if not self.pods[uid].subdomain]
            for uid in plain[: max(0, len(plain) - _MAX_RETIRED)]:
                del self._retired[uid], self.pods[uid]

    def expire(self) -> None:
        """Remove the names of pods that ended long enough ago. Called regularly."""
        oldest = self._clock.monotonic() - _RETIRED_SECONDS
        for uid in [uid for uid, since in self._retired.items() if since <= oldest]:
            self.set_pod(uid, None)

    def _replace_retired(self, named: NamedPod) -> None:
        """Remove an ended pod of the same name: a recreated pod takes the name over at once."""
        for uid in tuple(self._retired):
            old = self.pods[uid]
            if old.namespace == named.namespace and (
                old.name == named.name or (old.hostname, old.subdomain) == (named.hostname, named.subdomain)
            ):
                del self._retired[uid], self.pods[uid]

    def changed(self) -> None:
        """Rewrite all hosts files soon."""
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.ensure_future(self._flush_soon())

    async def settled(self) -> None:
        """Wait until every hosts file has the current names."""
        if self._flushing is not None:
            await asyncio.shield(self._flushing)

    async def _flush_soon(self) -> None:
        await asyncio.sleep(_COALESCE_SECONDS)
        self.directory = Directory(self.pods.values(), self.services.values())
        for uid in tuple(self.hosts_files):
            self._write(uid)

    def _write(self, uid: str) -> None:
        """Rewrite a pod's hosts file in place: it is bind-mounted, so it must stay the same file."""
        file = self.hosts_files[uid]
        named = self.pods.get(uid)
        if named is None:
            return
        text = self.directory.hosts(named, file.aliases, _machine_hosts() if file.machine else "").encode()
        descriptor = os.open(file.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if os.pread(descriptor, len(text) + 1, 0) != text:
                os.pwrite(descriptor, text, 0)
                os.ftruncate(descriptor, len(text))
        finally:
            os.close(descriptor)


def _machine_hosts() -> str:
    try:
        return _MACHINE_HOSTS.read_text(errors="replace")
    except OSError:
        return ""
