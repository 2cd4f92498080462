"""Names of pods and services: the content of each pod's ``/etc/hosts``. Pure.

The node has no DNS server. The name of a service with a cluster address resolves to this address,
which :mod:`windlass.node.services` serves. The name of a headless service resolves to all of its
pods except those that probes or readiness gates keep unready. With ``publishNotReadyAddresses`` it
also resolves to unready pods. A service without a selector resolves to the addresses of its
EndpointSlices, and one of type ExternalName to those of another name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from windlass.api.selectors import selects

DOMAIN = "cluster.local"
_TAB = "\t"
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
    """Service with its name.

    ``address``: cluster address as pods reach it. Empty for headless services and those of type ExternalName.
    ``written``: address and hostname of endpoints that no selector finds.
    ``machine_address``: the same for pods on the host network, if it differs.
    ``alias``: ``externalName``. ``written`` has its addresses unless it names a service.
    """

    namespace: str
    name: str
    selector: Mapping[str, str]
    address: str = ""
    publishes_unready: bool = False
    written: tuple[tuple[str, str], ...] = ()
    alias: str = ""
    machine_address: str = ""


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
        self._on_machine: dict[str, str] = {}
        self._rendered: dict[tuple[str, bool], list[tuple[str, list[str], str]]] = {}
        self._services = {f"{one.name}.{one.namespace}": one for one in services}
        self._pods = by_namespace
        for service in sorted(self._services.values(), key=lambda s: (s.namespace, s.name)):
            self._add_service(service)

    def _add_service(self, service: NamedService) -> None:
        if service.machine_address:
            self._on_machine[service.address] = service.machine_address
        for address in self._addresses(service):
            self._lines.setdefault(service.namespace, []).append((address, [service.name]))
            self._everywhere.append((address, _qualified(service.name, service.namespace)))
        for address, hostname in service.written:
            if hostname and not service.alias:
                full = f"{hostname}.{service.name}"
                self._lines.setdefault(service.namespace, []).append((address, [full]))
                self._everywhere.append((address, _qualified(full, service.namespace)))

    def _addresses(self, service: NamedService, *, followed: bool = False) -> list[str]:
        """Return the addresses of a service's name. An ExternalName is followed to one service."""
        if service.address:
            return [service.address]
        if service.alias and not followed:
            name = service.alias.removesuffix(f".{DOMAIN}").removesuffix(".svc")
            if (other := self._services.get(name)) is not None:
                return self._addresses(other, followed=True)
        if not service.selector:
            return list(dict.fromkeys(address for address, _ in service.written))
        return [
            pod.address
            for pod in self._pods.get(service.namespace, ())
            if selects(service.selector, pod.labels)
            and not pod.over
            and (service.publishes_unready or not pod.held_back)
        ]

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
        for address, names, line in self._shared(pod.namespace, on_machine=bool(machine)):
            if address != pod.address:
                lines.append(line)
            elif fresh := [name for name in names if (address, name) not in known]:
                lines.append(f"{line.partition(_TAB)[0]}{_TAB}{' '.join(fresh)}\n")
        for alias in aliases:
            names = alias.get("hostnames") or ()
            if isinstance(names, list) and names:
                lines.append(f"{alias.get('ip')}\t{' '.join(str(name) for name in names)}\n")
        return "".join(lines)

    def _shared(self, namespace: str, *, on_machine: bool) -> list[tuple[str, list[str], str]]:
        """Return address, names and line of all entries of a namespace's pods. Each pod's file has them."""
        key = (namespace, on_machine)
        found = self._rendered.get(key)
        if found is None:
            found = self._rendered[key] = []
            for address, names in (*self._lines.get(namespace, ()), *self._everywhere):
                shown = self._on_machine.get(address, address) if on_machine else address
                found.append((address, names, f"{shown}{_TAB}{' '.join(names)}\n"))
        return found

    def table(self, namespace: str) -> dict[str, str]:
        """Return name → first address, for substitution without a hosts file."""
        table: dict[str, str] = {}
        for address, names in (*self._lines.get(namespace, ()), *self._everywhere):
            for name in names:
                table.setdefault(name, address)
        return table


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


def reads_hosts_first(own: str) -> bool:
    """Return whether an nsswitch.conf already has what :func:`name_switch` writes."""
    lines = [line.split() for line in own.splitlines() if line.startswith("hosts:")]
    return lines == [["hosts:", "files", "dns"]]


def name_switch(own: str) -> str:
    """Return the machine's nsswitch.conf with ``hosts: files dns``, so that the hosts file comes first."""
    lines = [line for line in own.splitlines() if not line.startswith("hosts:")]
    return "\n".join([*lines, "hosts: files dns", ""])
