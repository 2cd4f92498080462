"""Names of pods and services: the content of each pod's ``/etc/hosts``. Pure.

The node has no DNS server and no kube-proxy. The name of a headless service resolves to all of its
pods except those that probes or readiness gates keep unready. A service with a cluster address
resolves to the address of its first ready pod, so its ``targetPort`` counts and not ``port``. With
``publishNotReadyAddresses`` both also resolve to unready pods.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

DOMAIN = "cluster.local"
MANAGED = "# Managed by windlass: names of pods and services, kept up to date while the pod runs.\n"
_LOOPBACK = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"


@dataclass(frozen=True, slots=True)
class NamedPod:
    """Pod with its names and address.

    ``held_back``: probes or readiness gates keep it unready.
    ``over``: it has ended. Its own names still resolve, but no service selects it.
    """

    uid: str
    namespace: str
    name: str
    hostname: str
    subdomain: str
    address: str
    labels: Mapping[str, str]
    ready: bool = False
    held_back: bool = False
    over: bool = False


@dataclass(frozen=True, slots=True)
class NamedService:
    namespace: str
    name: str
    selector: Mapping[str, str]
    headless: bool
    publishes_unready: bool = False


def hostname_of(name: str, spec_hostname: str) -> str:
    """Return the pod's hostname: ``spec.hostname`` or the pod's name, at most 63 characters."""
    return (spec_hostname or name)[:63].rstrip("-.")


def _qualified(name: str, namespace: str) -> list[str]:
    return [f"{name}.{namespace}", f"{name}.{namespace}.svc", f"{name}.{namespace}.svc.{DOMAIN}"]


class Directory:
    """All names at one time, shared by the hosts files of all pods."""

    def __init__(self, pods: Iterable[NamedPod], services: Iterable[NamedService]) -> None:
        self._lines: dict[str, list[tuple[str, list[str]]]] = {}
        """Namespace → address and names that only this namespace uses."""
        self._everywhere: list[tuple[str, list[str]]] = []
        by_namespace: dict[str, list[NamedPod]] = {}
        for pod in sorted(pods, key=lambda p: (p.namespace, p.name)):
            by_namespace.setdefault(pod.namespace, []).append(pod)
            local = [pod.name] if pod.hostname == pod.name else [pod.hostname, pod.name]
            if pod.subdomain:
                full = f"{pod.hostname}.{pod.subdomain}"
                local.append(full)
                self._everywhere.append((pod.address, _qualified(full, pod.namespace)))
            self._lines.setdefault(pod.namespace, []).append((pod.address, local))
        for service in sorted(services, key=lambda s: (s.namespace, s.name)):
            members = by_namespace.get(service.namespace, [])
            self._add_service(service, [pod for pod in members if _selects(service.selector, pod.labels)])

    def _add_service(self, service: NamedService, members: list[NamedPod]) -> None:
        living = [pod for pod in members if not pod.over]
        if service.headless:
            chosen = [pod for pod in living if service.publishes_unready or not pod.held_back]
        else:
            chosen = [pod for pod in living if service.publishes_unready or pod.ready][:1]
        for pod in chosen:
            self._lines.setdefault(service.namespace, []).append((pod.address, [service.name]))
            self._everywhere.append((pod.address, _qualified(service.name, service.namespace)))

    def hosts(self, pod: NamedPod, aliases: Iterable[Mapping[str, object]] = (), machine: str = "") -> str:
        """Return the pod's hosts file: its own names, those of its namespace, then qualified names.

        ``machine``: content of the machine's hosts file, for a pod on the host network.
        """
        lines = [MANAGED, machine.rstrip("\n") + "\n" if machine.strip() else _LOOPBACK]
        own = [pod.hostname]
        if pod.subdomain:
            full = f"{pod.hostname}.{pod.subdomain}"
            own = [f"{full}.{pod.namespace}.svc.{DOMAIN}", pod.hostname]
        lines.append(f"{pod.address}\t{' '.join(own)}\n")
        known = {(pod.address, name) for name in own}
        for address, names in (*self._lines.get(pod.namespace, ()), *self._everywhere):
            if fresh := [name for name in names if (address, name) not in known]:
                lines.append(f"{address}\t{' '.join(fresh)}\n")
        for alias in aliases:
            names = alias.get("hostnames") or ()
            if isinstance(names, list) and names:
                lines.append(f"{alias.get('ip')}\t{' '.join(str(name) for name in names)}\n")
        return "".join(lines)

    def table(self, namespace: str) -> dict[str, str]:
        """Return name → first address, for substitution without a hosts file."""
        table: dict[str, str] = {}
        for address, names in (*self._lines.get(namespace, ()), *self._everywhere):
            for name in names:
                table.setdefault(name, address)
        return table


def _selects(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    return bool(selector) and all(labels.get(key) == value for key, value in selector.items())


def substitute(text: str, table: Mapping[str, str]) -> str:
    """Replace whole names (longest first) by their addresses.

    Parts of longer words and of paths stay. A plain word that is also a name (for instance a service
    ``train``) counts as a host only alone or in a list, after ``//``, ``@`` or ``=``, or before a
    port.
    """
    if not table:
        return text
    names = sorted(table, key=len, reverse=True)
    pattern = r"(?:(?<=//)|(?<![\w./-]))(" + "|".join(re.escape(name) for name in names) + r")(?![\w-]|\.\w)"
    listed = _LIST.fullmatch(text) is not None

    def replaced(match: re.Match[str]) -> str:
        name, before, after = match[1], text[: match.start()], text[match.end() :]
        in_address = before.endswith("//")
        if after.startswith("/") and not in_address:
            return name  # the first part of a path
        plain = "-" not in name and "." not in name
        if plain and not (listed or in_address or before.endswith(("@", "=")) or _PORT.match(after)):
            return name
        return table[name]

    return re.sub(pattern, replaced, text)


_LIST = re.compile(r"[\w.-]+(?:[,:][\w.-]+)*")
_PORT = re.compile(r":\d")


def name_switch(own: str) -> str:
    """Return the machine's nsswitch.conf with ``hosts: files dns``, so that the hosts file comes first."""
    lines = [line for line in own.splitlines() if not line.startswith("hosts:")]
    return "\n".join([*lines, "hosts: files dns", ""])
