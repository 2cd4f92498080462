"""Address and credentials of one API server: the resolved form of a kubeconfig context."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from windlass.api.errors import WindlassError
from windlass.client import errors

if TYPE_CHECKING:
    import ssl

KEEP_ALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
"""Socket options by which the kernel detects a lost peer within a minute.

They also apply to streams that are silent for a long time.
"""
_LOOPBACK = ("localhost", "127.", "::1")


@dataclass(frozen=True, slots=True)
class ExecPlugin:
    """Command that prints an ``ExecCredential`` (client.authentication.k8s.io)."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    api_version: str = "client.authentication.k8s.io/v1"
    install_hint: str = ""
    provide_cluster_info: bool = False
    folder: str = ""
    """Directory of the kubeconfig, in which relative commands with a slash are looked up."""


@dataclass(frozen=True, slots=True)
class Connection:
    """Address of one server, and one identity.

    ``server`` is ``https://host:port`` (a path prefix is preserved) or ``http://…``.
    With ``unix_socket`` it is only the host name in requests. Certificates and keys are
    PEM bytes.
    """

    server: str = "http://localhost"
    unix_socket: str = ""
    ca_data: bytes = b""
    token: str = field(default="", repr=False)
    token_file: str = ""
    client_cert: bytes = b""
    client_key: bytes = field(default=b"", repr=False)
    client_files: tuple[str, str] | None = None
    """Files of the certificate and the key, if any. They may be renewed there."""
    username: str = ""
    password: str = field(default="", repr=False)
    exec_plugin: ExecPlugin | None = None
    namespace: str = "default"
    insecure: bool = False
    tls_server_name: str = ""
    impersonate: tuple[tuple[str, str], ...] = ()
    """Impersonation headers (``as`` of the user in a kubeconfig)."""
    proxy_url: str = field(default="", repr=False)
    """``proxy-url`` of the cluster. Without it, environment variables determine the proxy."""
    context: str = ""
    source: str = ""
    """File that it was read from; empty if there is none."""

    @property
    def secure(self) -> bool:
        """True if the connection uses TLS."""
        return not self.unix_socket and self.server.startswith("https://")

    @property
    def address(self) -> tuple[str, int]:
        """Host and port to connect to. Raises :class:`WindlassError` for an invalid address."""
        try:
            parts = urlsplit(self.server)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise self._bad_server(str(error)) from error
        if parts.scheme not in ("http", "https") or not host:
            raise self._bad_server("it must read https://HOST:PORT")
        return host, port or (443 if parts.scheme == "https" else 80)

    @property
    def host_header(self) -> str:
        if self.unix_socket:
            return "localhost"
        return urlsplit(self.server).netloc.rpartition("@")[2]

    @property
    def path_prefix(self) -> str:
        """``/k8s/clusters/c-1`` for a server behind a proxy; usually empty."""
        return "" if self.unix_socket else urlsplit(self.server).path.rstrip("/")

    @property
    def where(self) -> str:
        """Name of the server in messages."""
        return self.unix_socket or self.server

    @property
    def may_send_secrets(self) -> bool:
        """True if bearer tokens may be sent: over TLS, a Unix socket or loopback.

        kubectl sends them over TLS only.
        """
        if self.unix_socket or self.secure:
            return True
        host = self.address[0]
        return host.startswith(_LOOPBACK)

    def _bad_server(self, why: str) -> WindlassError:
        return WindlassError(
            errors.KUBECONFIG,
            f"the server address {self.server!r} cannot be used: {why}",
            evidence=f"read from {self.source}" if self.source else "",
            remedies=("kubectl config view --minify",),
        )


def over_socket(path: str | Path) -> Connection:
    """Return the connection to this machine's control plane over its Unix socket.

    Every user with permission to open the socket is an administrator.
    """
    return Connection(unix_socket=str(path))


def ssl_context(connection: Connection, client_cert: bytes = b"", client_key: bytes = b"") -> ssl.SSLContext:
    """Return the TLS settings of a connection.

    The given client certificate takes precedence over the connection's own. Raises
    :class:`WindlassError` that names the part which cannot be used.
    """
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if connection.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif connection.ca_data:
        try:
            context.load_verify_locations(cadata=connection.ca_data.decode("ascii"))
        except (ssl.SSLError, ValueError) as error:
            raise _bad_pem(connection, "certificate-authority(-data)", error) from error
    else:
        context.load_default_certs()
    cert, key = client_cert or connection.client_cert, client_key or connection.client_key
    if cert:
        try:
            _load_pair(context, cert, key)
        except (ssl.SSLError, OSError) as error:
            raise _bad_pem(connection, "client-certificate(-data) or client-key(-data)", error) from error
    return context


def belong_together(cert: bytes, key: bytes) -> bool:
    """Return whether the key belongs to the client certificate."""
    import ssl

    try:
        _load_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), cert, key)
    except (ssl.SSLError, OSError):
        return False
    return True


def _load_pair(context: ssl.SSLContext, cert: bytes, key: bytes) -> None:
    """Load a certificate and its key, through a file in memory if possible.

    OpenSSL reads pairs only from files.
    """
    pem = cert.rstrip(b"\n") + b"\n" + key
    try:
        descriptor = os.memfd_create("client-certificate")
    except (AttributeError, OSError):
        import tempfile

        descriptor, name = tempfile.mkstemp(prefix="windlass-")
        os.unlink(name)
    try:
        os.write(descriptor, pem)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def _bad_pem(connection: Connection, what: str, error: Exception) -> WindlassError:
    where = f" in {connection.source}" if connection.source else ""
    context = f" (context {connection.context!r})" if connection.context else ""
    return WindlassError(
        errors.KUBECONFIG,
        f"{what}{where}{context} is not usable PEM",
        evidence=str(error),
        remedies=("recreate the kubeconfig (for the control plane of this machine: windlass up)",),
    )
