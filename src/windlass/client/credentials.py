"""Bearer tokens and client certificates that may change, in files or by a credential plugin.

The calls block, so that the command line needs no event loop. The asyncio transport
calls :meth:`refresh` in a thread. Credentials in the kubeconfig itself need no refresh.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windlass.client import errors
from windlass.client.connection import Connection, ExecPlugin, belong_together
from windlass.client.errors import Unreachable

if TYPE_CHECKING:
    from windlass.kits.clock import Clock

TOKEN_FILE_SECONDS = 60.0
"""Interval (seconds) between reads of token and certificate files (as in client-go)."""
_EARLY_SECONDS = 10.0
"""Time (seconds) before expiry at which a plugin's token is renewed."""


class Credentials:
    """Current credentials of a connection.

    ``header()`` is the ``Authorization`` value, or ``None`` if :meth:`refresh` must be
    called first.
    """

    def __init__(self, connection: Connection, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        self._header = self._static()
        self._expires = float("inf")
        self.client_cert = b""
        self.client_key = b""
        """Certificate and key that override the connection's own; empty if there are none."""
        self._stale = connection.may_send_secrets and bool(connection.token_file or connection.exec_plugin)
        self._renews_token = self._stale
        self._files = connection.client_files if connection.secure else None
        self._read_again()

    def _static(self) -> str:
        connection = self._connection
        if not connection.may_send_secrets:
            return ""
        if connection.token:
            return f"Bearer {connection.token}"
        if connection.username:
            import base64

            pair = f"{connection.username}:{connection.password}".encode()
            return f"Basic {base64.b64encode(pair).decode()}"
        return ""

    def header(self) -> str | None:
        if not self.renewable:
            return self._header
        if self._stale or self._clock.now() >= self._expires:
            return None
        return self._header

    @property
    def renewable(self) -> bool:
        return self._renews_token or self._files is not None

    def reject(self) -> bool:
        """Record a response 401. Return whether :meth:`refresh` may give better credentials."""
        self._stale = self.renewable
        return self.renewable

    def refresh(self) -> bool:
        """Read the files or run the plugin.

        Returns whether the client certificate changed, so that connections must be reopened.
        Raises :class:`Unreachable`."""
        before = (self.client_cert, self.client_key)
        self._expires = float("inf")
        if self._renews_token and self._connection.token_file:
            self._read_file(self._connection.token_file)
        elif self._renews_token and self._connection.exec_plugin is not None:
            self._run(self._connection.exec_plugin)
        if self._files is not None:
            self._read_pair(*self._files)
        self._read_again()
        self._stale = False
        return (self.client_cert, self.client_key) != before

    def _read_again(self) -> None:
        if self._files is not None:
            self._expires = min(self._expires, self._clock.now() + TOKEN_FILE_SECONDS)

    def _read_pair(self, *paths: str) -> None:
        """Read certificate and key. A pair that does not match is ignored: a file is being written."""
        try:
            cert, key = (Path(path).read_bytes() for path in paths)
        except OSError:
            return
        known = (
            self.client_cert or self._connection.client_cert,
            self.client_key or self._connection.client_key,
        )
        if (cert, key) != known and belong_together(cert, key):
            self.client_cert, self.client_key = cert, key

    def _read_file(self, path: str) -> None:
        try:
            with open(path, encoding="ascii") as stream:
                token = stream.read().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise Unreachable(
                errors.CREDENTIALS,
                f"the token file {path} cannot be read",
                evidence=str(error),
                remedies=(f"check tokenFile of the user in {self._connection.source or 'the kubeconfig'}",),
            ) from error
        self._header = f"Bearer {token}"
        self._expires = self._clock.now() + TOKEN_FILE_SECONDS

    def _run(self, plugin: ExecPlugin) -> None:
        import msgspec

        from windlass.kits.run_command import capture

        info: dict[str, Any] = {
            "apiVersion": plugin.api_version,
            "kind": "ExecCredential",
            "spec": {"interactive": False},
        }
        if plugin.provide_cluster_info:
            info["spec"]["cluster"] = self._cluster_info()
        env = {**plugin.env, "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()}
        try:
            done = capture([_resolve(plugin), *plugin.args], extra_env=env)
        except (OSError, TimeoutError) as error:
            hint = (plugin.install_hint.strip(),) if plugin.install_hint else ()
            raise self._plugin_failed(plugin, str(error), hint) from error
        if done.returncode != 0:
            output = done.stderr.decode("utf-8", "replace").strip()[-500:]
            raise self._plugin_failed(plugin, f"exit status {done.returncode}: {output}")
        self._take(plugin, done.stdout)

    def _take(self, plugin: ExecPlugin, output: bytes) -> None:
        import msgspec

        from windlass.kits.timestamps import parse_rfc3339

        try:
            credential = msgspec.json.decode(output)
            status = credential.get("status") or {}
            if credential.get("apiVersion") != plugin.api_version:
                raise ValueError(
                    f"its output has apiVersion {credential.get('apiVersion')!r}, requested was {plugin.api_version!r}"
                )
            expires = status.get("expirationTimestamp")
            self._expires = parse_rfc3339(expires) - _EARLY_SECONDS if expires else float("inf")
        except (ValueError, AttributeError, TypeError) as error:
            raise self._plugin_failed(plugin, f"its output cannot be parsed: {error}") from error
        token = status.get("token") or ""
        self.client_cert = (status.get("clientCertificateData") or "").encode()
        self.client_key = (status.get("clientKeyData") or "").encode()
        if not token and not self.client_cert:
            raise self._plugin_failed(plugin, "its output has neither a token nor a certificate")
        self._header = f"Bearer {token}" if token else ""

    def _cluster_info(self) -> dict[str, Any]:
        import base64

        connection = self._connection
        info: dict[str, Any] = {"server": connection.server}
        if connection.ca_data:
            info["certificate-authority-data"] = base64.b64encode(connection.ca_data).decode()
        if connection.insecure:
            info["insecure-skip-tls-verify"] = True
        if connection.tls_server_name:
            info["tls-server-name"] = connection.tls_server_name
        if connection.proxy_url:
            info["proxy-url"] = connection.proxy_url
        return info

    def _plugin_failed(self, plugin: ExecPlugin, why: str, hints: tuple[str, ...] = ()) -> Unreachable:
        command = " ".join((plugin.command, *plugin.args))
        return Unreachable(
            errors.CREDENTIALS,
            f"the credential plugin {plugin.command!r} returned no credential",
            evidence=why,
            remedies=(*hints, f"run it manually: {command}"),
        )


def _resolve(plugin: ExecPlugin) -> str:
    if "/" in plugin.command and not os.path.isabs(plugin.command) and plugin.folder:
        return os.path.join(plugin.folder, plugin.command)
    return plugin.command
