"""HTTP proxy of a connection, chosen by the rules of client-go.

A kubeconfig's ``proxy-url`` comes first. Otherwise ``HTTPS_PROXY`` applies to TLS
servers and ``HTTP_PROXY`` to plain HTTP servers, except for loopback addresses and
hosts that ``NO_PROXY`` names. The lower-case variables count where the upper-case ones
are not set. Unix sockets never use a proxy.

TLS connections pass through a tunnel (``CONNECT``). Requests to plain HTTP servers are
sent to the proxy itself.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from windlass.api.errors import WindlassError
from windlass.client import errors
from windlass.client.connection import Connection
from windlass.client.errors import Unreachable

if TYPE_CHECKING:
    from ipaddress import IPv4Address, IPv6Address

_MAX_HEAD_BYTES = 1 << 16
"""Maximum size (bytes) of the head of a proxy's answer."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """Address of a proxy; ``origin`` names the setting that it was read from."""

    host: str
    port: int
    origin: str
    authorization: str = field(default="", repr=False)

    @property
    def url(self) -> str:
        """The address without credentials, as messages show it."""
        return f"http://{_host_port(self.host, self.port)}"


def choose(connection: Connection, environ: Mapping[str, str] | None = None) -> Proxy | None:
    """Return the proxy through which the server is reached, if any.

    Raises :class:`WindlassError` when the setting does not hold the address of an HTTP proxy.
    """
    if connection.unix_socket:
        return None
    if connection.proxy_url:
        return _read(connection.proxy_url, f"proxy-url in {connection.source or 'the kubeconfig'}")
    env = os.environ if environ is None else environ
    for name in ("HTTPS_PROXY", "https_proxy") if connection.secure else ("HTTP_PROXY", "http_proxy"):
        if address := env.get(name, ""):
            bypassed = bypasses(*connection.address, env.get("NO_PROXY") or env.get("no_proxy") or "")
            return None if bypassed else _read(address, name)
    return None


def parse(address: str, origin: str) -> Proxy:
    """Read ``http://[USER:PASSWORD@]HOST[:PORT]``; the scheme may be missing.

    Raises ``ValueError``. ``origin``: the setting, as messages name it.
    """
    parts = urlsplit(address if "://" in address else f"http://{address}")
    host, port = parts.hostname, parts.port
    if parts.scheme != "http":
        raise ValueError(f"{parts.scheme}:// proxies are not supported, only http:// proxies are")
    if not host or not host.isprintable() or " " in host:
        raise ValueError("the host is missing")
    authorization = ""
    if parts.username is not None:
        import base64

        credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = f"Basic {base64.b64encode(credentials.encode()).decode()}"
    return Proxy(host, port or 80, origin, authorization)


def without_credentials(address: str) -> str:
    """Return a proxy address as messages may show it."""
    if "@" not in address:
        return address
    scheme, mark, rest = address.rpartition("://")
    return f"{scheme}{mark}***@{rest.rpartition('@')[2]}"


def _read(address: str, origin: str) -> Proxy:
    try:
        return parse(address, origin)
    except ValueError as error:
        raise WindlassError(
            errors.PROXY_ADDRESS,
            f"{origin} does not hold the address of a proxy: {error}",
            evidence=f"{origin} is {without_credentials(address)!r}",
            remedies=(
                f"set {origin} to http://HOST:PORT",
                f"remove {origin} if the server is reached directly",
            ),
        ) from error


def bypasses(host: str, port: int, no_proxy: str) -> bool:
    """Return whether ``host`` is reached without a proxy.

    That holds for loopback addresses and for the entries of ``NO_PROXY``, which are
    separated by commas: ``*``, an IP address, a CIDR, a domain with its subdomains
    (``example.com``), or subdomains only (``.example.com``, ``*.example.com``). Each but
    a CIDR may end with ``:PORT``.
    """
    host = host.lower().strip()
    address = _ip(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    for entry in (part.strip().lower() for part in no_proxy.split(",")):
        if entry == "*" or _matches(entry, host, address, port):
            return True
    return False


def _matches(entry: str, host: str, address: IPv4Address | IPv6Address | None, port: int) -> bool:
    import ipaddress

    if "/" in entry:
        try:
            return address is not None and address in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    name, wanted_port = _split_port(entry)
    if not name or wanted_port not in ("", str(port)):
        return False
    wanted = _ip(name)
    if wanted is not None:
        return wanted == address
    return address is None and _in_domain(host, name.removeprefix("*"))


def _in_domain(host: str, name: str) -> bool:
    """Return whether ``host`` is in a domain; a leading dot excludes the domain itself."""
    return host.endswith(name) if name.startswith(".") else host == name or host.endswith(f".{name}")


def _split_port(entry: str) -> tuple[str, str]:
    """Return host and port of an entry; the port may be missing.

    IPv6 addresses with a port are written in brackets.
    """
    if entry.startswith("["):
        name, _, rest = entry[1:].partition("]")
        return name, rest.removeprefix(":")
    name, colon, port = entry.rpartition(":")
    return (name, port) if colon and ":" not in name else (entry, "")


def _ip(text: str) -> IPv4Address | IPv6Address | None:
    import ipaddress

    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _host_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


# ---------------------------------------------------------------------- plain HTTP servers


def absolute_prefix(connection: Connection) -> str:
    """Return what precedes the path of a request that is sent to the proxy itself."""
    return f"http://{connection.host_header}"


def headers(proxy: Proxy) -> tuple[tuple[str, str], ...]:
    """Header fields that the proxy itself expects on each request sent to it."""
    return (("proxy-authorization", proxy.authorization),) if proxy.authorization else ()


# ---------------------------------------------------------------------- tunnels


def tunnel_request(proxy: Proxy, host: str, port: int) -> bytes:
    """Return the request for a tunnel to ``host``."""
    place = _host_port(host, port)
    lines = [f"CONNECT {place} HTTP/1.1", f"host: {place}"]
    lines += [f"{name}: {value}" for name, value in headers(proxy)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


class TunnelAnswer:
    """Head of the answer to a request for a tunnel, as it arrives."""

    def __init__(self, proxy: Proxy, where: str) -> None:
        self._proxy = proxy
        self._where = where
        self._data = b""

    def feed(self, data: bytes) -> bool:
        """Return whether the tunnel is open.

        An empty ``data`` means that the proxy closed the connection. Raises
        :class:`Unreachable` when the proxy refuses, or does not answer as a proxy does.
        """
        self._data += data
        if b"\r\n\r\n" not in self._data:
            if not data or len(self._data) > _MAX_HEAD_BYTES:
                detail = "it closed the connection" if not data else "its answer does not end"
                raise refused(self._proxy, self._where, detail)
            return False
        line = self._data.split(b"\r\n", 1)[0].decode("latin-1")
        fields = line.split(" ", 2)
        if not fields[0].startswith("HTTP/1.") or len(fields) < 2:
            raise refused(self._proxy, self._where, f"it does not speak HTTP: {line[:60]!r}")
        if not fields[1].startswith("2"):
            raise refused(self._proxy, self._where, " ".join(fields[1:]), status=fields[1])
        return True


# ---------------------------------------------------------------------- errors


def refused(proxy: Proxy, where: str, detail: str, *, status: str = "") -> Unreachable:
    """Return the error of a proxy that answered but does not connect to the server.

    Requests are repeated after a 5xx answer, not after others.
    """
    host = urlsplit(where).hostname or where
    if status == "407":
        remedies = (f"put the credentials into {proxy.origin}: http://USER:PASSWORD@HOST:PORT",)
    else:
        remedies = (f"ask for access to {host} on the proxy",)
    return Unreachable(
        errors.PROXY_UNREACHABLE if status.startswith("5") else errors.PROXY_REFUSED,
        f"the proxy {proxy.url} does not connect to {where}: {detail}",
        evidence=f"the proxy's address was read from {proxy.origin}",
        remedies=(*remedies, *_without_proxy(proxy, host)),
    )


def not_reached(proxy: Proxy, where: str, error: OSError) -> Unreachable:
    """Return the error of a proxy that cannot be reached itself."""
    host = urlsplit(where).hostname or where
    return Unreachable(
        errors.PROXY_UNREACHABLE,
        f"cannot connect to the proxy {proxy.url}, through which {where} is reached: "
        f"{error.strerror or error or type(error).__name__}",
        evidence=f"the proxy's address was read from {proxy.origin}",
        remedies=(f"check the address in {proxy.origin}", *_without_proxy(proxy, host)),
        refused=error.errno == errno.ECONNREFUSED,
    )


def _without_proxy(proxy: Proxy, host: str) -> tuple[str, ...]:
    if proxy.origin.startswith("proxy-url"):
        return (f"remove proxy-url if {host} is reached directly",)
    return (f"export NO_PROXY={host}, if {host} is reached directly",)
