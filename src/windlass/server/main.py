"""Server process: store, API server, TLS port and Unix socket, until cancelled.

``serve`` prepares certificates, token and kubeconfig, opens the store, and serves
requests. It shuts down cleanly when
its task is cancelled. It raises if the store fails, because a server that cannot write
must not continue.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from windlass.api.errors import WindlassError
from windlass.kits.clock import Clock
from windlass.kits.gc_tuning import retain_freed_memory, tune_for_long_lived_objects
from windlass.kits.rng import Random
from windlass.kits.state import StateFolder
from windlass.server.apiserver import ApiServer
from windlass.server.auth import kubeconfig, pki, renewal
from windlass.server.auth.authentication import Authenticator
from windlass.server.auth.pod_tokens import PodTokens
from windlass.server.bootstrap import bootstrap, publish_service
from windlass.server.core import ServerOptions
from windlass.server.http.listeners import LOOPBACK, ApiListeners, bind_tcp, bind_unix, tls_context
from windlass.server.log_source import LogSource
from windlass.server.stream_source import StreamSource
from windlass.store.families import StoreOptions
from windlass.store.store import Store

_log = logging.getLogger("windlass.server")
_UPKEEP_SECONDS = 5.0
_SWITCH_SECONDS = 0.0005
"""Maximum time (seconds) that the writer thread waits for the interpreter.

Python's default of 5 ms would be as long as a commit.
"""
_WAKE_SECONDS = 0.005


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """Configuration of the server process.

    ``tcp``, ``unix``: bound, listening sockets of the caller; missing ones are created.
    """

    state: StateFolder
    port: int = 0
    tcp: socket.socket | None = None
    unix: socket.socket | None = None
    options: ServerOptions = field(default_factory=ServerOptions)
    store: StoreOptions = field(default_factory=lambda: StoreOptions(wake_seconds=_WAKE_SECONDS))


@dataclass(frozen=True, slots=True)
class Running:
    """Running server."""

    api: ApiServer
    store: Store
    url: str
    port: int
    failed: asyncio.Future[WindlassError]
    """Future that is done when the store has failed."""


async def serve(
    config: ServeConfig,
    *,
    clock: Clock,
    rng: Random,
    logs: LogSource | None = None,
    streams: StreamSource | None = None,
    ready: Callable[[Running], Awaitable[None] | None] | None = None,
) -> None:
    """Serve until cancelled. ``ready`` is called once requests are served.

    Raises :class:`WindlassError` if the server cannot start or the store has failed.
    """
    sys.setswitchinterval(_SWITCH_SECONDS)
    retain_freed_memory()
    async with running(config, clock=clock, rng=rng, logs=logs, streams=streams) as server:
        if ready is not None:
            waiting = ready(server)
            if waiting is not None:
                await waiting
        raise await server.failed


@asynccontextmanager
async def running(
    config: ServeConfig,
    *,
    clock: Clock,
    rng: Random,
    logs: LogSource | None = None,
    streams: StreamSource | None = None,
) -> AsyncIterator[Running]:
    """Run a server within a ``with`` block. Raises :class:`WindlassError`."""
    state = config.state
    pki.ensure(state, clock)
    tcp = config.tcp or bind_tcp(config.port)
    unix = config.unix
    store: Store | None = None
    upkeep: list[asyncio.Task[None]] = []
    try:
        unix = unix or bind_unix(state.socket)
        store = Store.open(state.database, clock=clock, options=config.store)
        tune_for_long_lived_objects()
        failed: asyncio.Future[WindlassError] = asyncio.get_running_loop().create_future()

        def fail(error: WindlassError) -> None:
            _log.error("%s: %s (%s)", error.code, error.message, error.evidence)
            if not failed.done():
                failed.set_result(error)

        store.on_failure = fail
        tokens = PodTokens(pki.read_token(state), clock)
        sources = {"logs": logs, "streams": streams, "control": state.control_socket}
        api = ApiServer(store, clock=clock, rng=rng, options=config.options, tokens=tokens, **sources)
        await bootstrap(api)
        listeners = ApiListeners(api, Authenticator(pki.read_token(state), tokens))
        tls = tls_context(state)
        port = await listeners.listen_tls(tcp, tls)
        await publish_service(api, port)
        await listeners.listen_unix(unix)
        url = f"https://{LOOPBACK}:{port}"
        _write_kubeconfig(state, url)
        upkeep.append(asyncio.create_task(_maintain(store, clock)))
        upkeep.append(asyncio.create_task(renewal.keep_fresh(state, clock, tls, url)))
        try:
            yield Running(api, store, url, port, failed)
        finally:
            api.stop()
            await listeners.close()
    finally:
        for work in upkeep:
            work.cancel()
        await asyncio.gather(*upkeep, return_exceptions=True)
        if store is not None:
            await store.close()
        for listener in (tcp, unix):
            if listener is not None:
                listener.close()


def _write_kubeconfig(state: StateFolder, url: str) -> None:
    try:
        kubeconfig.write(state, url)
    except OSError as error:
        raise WindlassError(
            pki.UNUSABLE,
            f"the kubeconfig {state.kubeconfig} cannot be written",
            evidence=error.strerror or str(error),
            remedies=(f"ls -ld {state.path}",),
        ) from error


async def _maintain(store: Store, clock: Clock) -> None:
    while store.failure is None:
        await clock.sleep(_UPKEEP_SECONDS)
        try:
            await store.maintain()
        except WindlassError:
            return  # reported by ``on_failure``
