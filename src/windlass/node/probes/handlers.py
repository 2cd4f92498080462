"""Handlers of probes and lifecycle hooks: a command, an HTTP request, a connection, a pause."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import json
import logging
import os
import signal
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from windlass.kits.clock import Clock
from windlass.node.lifecycle.probe_results import Probe, action_of
from windlass.node.probes import grpc_probe, http_probe
from windlass.node.probes.grpc_probe import Http2Missing, RpcError
from windlass.node.probes.http_probe import BodyFailure, HttpFailure
from windlass.node.runtime.helpers import read_to_end, reap, start_helper
from windlass.node.sandbox.pod_network import Network

_log = logging.getLogger("windlass.node")
_TRIES = 3
"""Maximum number of attempts of a probe that could not run."""
_RECONNECT_SECONDS = 1.0
"""Interval between connection attempts of a gRPC probe."""
_REFUSALS = {
    errno.ECONNREFUSED: "connect: connection refused",
    errno.EHOSTUNREACH: "connect: no route to host",
    errno.ENETUNREACH: "connect: network is unreachable",
}


class ProbeResult(Enum):
    PASSED = "passed"
    WARNING = "warning"
    """It passed with a warning."""
    FAILED = "failed"
    ERRORED = "errored"
    """It could not run: the result is unknown."""


@dataclass(frozen=True, slots=True)
class HandlerOutcome:
    result: ProbeResult
    output: str = ""


class ActionError(Exception):
    """The action could not run, or a hook failed."""


class Actions:
    """Probes and hooks of one pod.

    ``attempt``: container → directory of its current attempt. ``address``: the pod's.
    """

    def __init__(
        self,
        network: Network,
        clock: Clock,
        *,
        attempt: Callable[[str], Path],
        address: Callable[[], str],
    ) -> None:
        self._network = network
        self._clock = clock
        self._attempt = attempt
        self._address = address
        self._http2_reported = False

    # -- probes --------------------------------------------------------------------------------

    async def check(self, container: Mapping[str, Any], probe: Probe) -> HandlerOutcome:
        """Run a probe. A probe that could not run is retried at once, as in the kubelet."""
        why = ""
        for _ in range(_TRIES):
            try:
                return await self._check(container, probe)
            except ActionError as error:
                why = str(error)
        return HandlerOutcome(ProbeResult.ERRORED, why)

    async def _check(self, container: Mapping[str, Any], probe: Probe) -> HandlerOutcome:
        if probe.action == "exec":
            return await self._check_exec(container, probe)
        if probe.action == "httpGet":
            return await self._check_http(container, probe)
        if probe.action == "grpc":
            return await self._check_grpc(probe)
        return await self._check_tcp(container, probe)

    async def _check_exec(self, container: Mapping[str, Any], probe: Probe) -> HandlerOutcome:
        result = await self._execute(container["name"], probe.kind.field, probe.timeout_seconds)
        if result.get("timed_out"):
            command = " ".join(probe.detail.get("command") or ())
            text = f'command timed out: "{command}" timed out after {probe.timeout_seconds:.0f}s'
            return HandlerOutcome(ProbeResult.FAILED, text)
        return HandlerOutcome(ProbeResult.FAILED if result["code"] else ProbeResult.PASSED, result["output"])

    async def _check_http(self, container: Mapping[str, Any], probe: Probe) -> HandlerOutcome:
        url = self._url(container, probe.detail)
        headers = http_probe.headers_of(probe.detail.get("httpHeaders") or (), "probe")
        try:
            response = await http_probe.get(
                url, headers, self._connector(probe.timeout_seconds), probe.timeout_seconds
            )
        except HttpFailure as failure:
            return HandlerOutcome(ProbeResult.FAILED, str(failure))
        except BodyFailure as failure:
            raise ActionError(str(failure)) from failure
        if not 200 <= response.code < 400:
            return HandlerOutcome(ProbeResult.FAILED, f"HTTP probe failed with statuscode: {response.code}")
        if response.code >= 300:
            return HandlerOutcome(
                ProbeResult.WARNING, f"Probe terminated redirects, Response body: {response.body}"
            )
        return HandlerOutcome(ProbeResult.PASSED, response.body)

    async def _check_tcp(self, container: Mapping[str, Any], probe: Probe) -> HandlerOutcome:
        port = port_of(probe.detail.get("port", ""), container)
        host = probe.detail.get("host") or self._address()
        try:
            connection = await self._connector(probe.timeout_seconds)(host, port)
        except OSError as error:
            return HandlerOutcome(ProbeResult.FAILED, str(error))
        connection.close()
        return HandlerOutcome(ProbeResult.PASSED)

    async def _check_grpc(self, probe: Probe) -> HandlerOutcome:
        """Run a gRPC probe. Connecting is retried until the timeout, as gRPC clients do."""
        self._require_http2()
        target = f"{self._address()}:{probe.detail['port']}"
        late = f"within {probe.timeout_seconds:.0f}s"
        connected = False
        try:
            async with asyncio.timeout(probe.timeout_seconds):
                connection = await self._connect_until_timeout(
                    int(probe.detail["port"]), probe.timeout_seconds
                )
                connected = True
                status = await grpc_probe.check(connection, target, probe.detail.get("service") or "")
        except TimeoutError:
            if connected:
                return HandlerOutcome(ProbeResult.FAILED, f"timeout: health rpc did not complete {late}")
            why = f'timeout: failed to connect service "{target}" {late}: context deadline exceeded'
            return HandlerOutcome(ProbeResult.FAILED, why)
        except RpcError as error:
            if error.code == "DeadlineExceeded":
                return HandlerOutcome(ProbeResult.FAILED, f"timeout: health rpc did not complete {late}")
            if error.code == "Unimplemented":
                what = "this server does not implement the grpc health protocol (grpc.health.v1.Health)"
                return HandlerOutcome(ProbeResult.FAILED, f"error: {what}: {error.message}")
            return HandlerOutcome(ProbeResult.FAILED, f"error: health rpc probe failed: {error}")
        if status != "SERVING":
            return HandlerOutcome(ProbeResult.FAILED, f'service unhealthy (responded with "{status}")')
        return HandlerOutcome(ProbeResult.PASSED, "service healthy")

    def _require_http2(self) -> None:
        """Raise :class:`ActionError` if gRPC probes cannot run. Log it the first time."""
        try:
            grpc_probe.require_http2()
        except Http2Missing as error:
            if not self._http2_reported:
                self._http2_reported = True
                _log.warning("pod %s: %s", self._address(), error)
            raise ActionError(str(error)) from None

    async def _connect_until_timeout(self, port: int, timeout_seconds: float) -> socket.socket:
        """Return a connection to the pod. Connecting is retried until the caller cancels."""
        connect = self._connector(timeout_seconds)
        while True:
            try:
                return await connect(self._address(), port)
            except OSError:
                await self._clock.sleep(_RECONNECT_SECONDS)

    # -- hooks ---------------------------------------------------------------------------------

    async def hook(self, container: Mapping[str, Any], name: str) -> None:
        """Run ``postStart`` or ``preStop`` without a timeout. Raises :class:`ActionError`."""
        handler = container["lifecycle"][name]
        action = action_of(handler)
        if action == "exec":
            result = await self._execute(container["name"], name, None)
            if result["code"]:
                raise ActionError(f"exit status {result['code']}: {result['output']}")
        elif action == "httpGet":
            await self._request(container, handler["httpGet"])
        elif action == "sleep":
            await self._clock.sleep(float(handler["sleep"].get("seconds") or 0))
        else:
            raise ActionError(f"invalid handler: {action}")

    async def _request(self, container: Mapping[str, Any], detail: Mapping[str, Any]) -> None:
        """Send the request of a hook. Any response is a success.

        If a plain HTTP server answers an https request, the request is repeated with http.
        """
        url = self._url(container, detail)
        headers = http_probe.headers_of(detail.get("httpHeaders") or (), "lifecycle")
        try:
            try:
                await http_probe.get(url, headers, self._connector(None))
            except HttpFailure as failure:
                if http_probe.PLAIN_HTTP_RESPONSE not in str(failure):
                    raise
                safe = [(name, value) for name, value in headers if name.lower() != "authorization"]
                await http_probe.get(url.replace("https:", "http:", 1), safe, self._connector(None))
        except HttpFailure as failure:
            raise ActionError(str(failure)) from failure
        except BodyFailure:
            return  # it has answered

    # -- helpers ---------------------------------------------------------------------------------

    def _url(self, container: Mapping[str, Any], detail: Mapping[str, Any]) -> str:
        host = detail.get("host") or self._address()
        port = port_of(detail.get("port", ""), container)
        return http_probe.url_of(detail.get("scheme") or "HTTP", host, port, detail.get("path") or "/")

    def _connector(self, timeout_seconds: float | None) -> http_probe.Connect:
        seconds = 3600.0 if timeout_seconds is None else timeout_seconds

        async def connect(host: str, port: int) -> socket.socket:
            try:
                return await self._network.connect(await _resolved(host), port, timeout_seconds=seconds)
            except TimeoutError:
                raise TimeoutError(f"dial tcp {host}:{port}: i/o timeout") from None
            except OSError as error:
                words = _REFUSALS.get(error.errno or 0) or error.strerror or str(error)
                raise OSError(f"dial tcp {host}:{port}: {words}") from error

        return connect

    async def _execute(self, container: str, command: str, timeout_seconds: float | None) -> dict[str, Any]:
        """Run a command of the attempt's record inside the container. Raises :class:`ActionError`."""
        request = {"folder": str(self._attempt(container)), "command": command, "timeout": timeout_seconds}
        try:
            pid, reader = start_helper("windlass.node.probes.exec_helper", json.dumps(request))
        except OSError as error:
            raise ActionError(str(error)) from error
        try:
            result = await read_to_end(reader)
        except asyncio.CancelledError:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)  # not reaped yet, so the pid is still its own
            raise
        finally:
            reap(pid)
        try:
            response = json.loads(result)
        except ValueError:
            raise ActionError("the helper process ended without a result") from None
        if "error" in response:
            raise ActionError(response["error"])
        return response


def port_of(port: int | str, container: Mapping[str, Any]) -> int:
    """Return a port by its number, or by its name in the container. Raises :class:`ActionError`."""
    named = {entry.get("name"): entry["containerPort"] for entry in container.get("ports") or ()}
    number = port if isinstance(port, int) else named.get(port)
    if number is None:
        try:
            number = int(port)
        except ValueError:
            raise ActionError(f'strconv.Atoi: parsing "{port}": invalid syntax') from None
    if not 0 < number < 65536:
        raise ActionError(f"invalid port number: {number}")
    return number


async def _resolved(host: str) -> str:
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        addresses = await asyncio.get_running_loop().getaddrinfo(host, None, family=socket.AF_INET)
        return str(addresses[0][4][0])
    return host
