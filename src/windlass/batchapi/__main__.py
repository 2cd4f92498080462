"""Process of the interface: ``windlass batch-api``."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import secrets
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

from windlass.api.error_codes import exit_status_of
from windlass.api.errors import StatusError, WindlassError
from windlass.api.fields.aigc import priority_class
from windlass.api.resources import AIGC_JOBS, NAMESPACES, PRIORITY_CLASSES, QUEUES, Resource
from windlass.batchapi.http import BatchApi
from windlass.batchapi.service import BatchService, Settings
from windlass.batchapi.store import BatchStore
from windlass.client import kubeconfig
from windlass.client.client import Client
from windlass.client.connection import Connection
from windlass.client.http import HttpTransport
from windlass.kits import rng
from windlass.kits.clock import SystemClock
from windlass.kits.files import FileLock, write_atomic
from windlass.kits.state import StateFolder
from windlass.kits.tasks import until_first
from windlass.observe.http_server import HttpServer, ServerLimits, bind
from windlass.observe.listening import cannot_listen

EXAMPLE = "windlass batch-api --backend http://127.0.0.1:8000/v1"
DESCRIPTION = (
    "Serve OpenAI's files and batches (/v1/files, /v1/batches); each batch runs as a job "
    "that sends the requests to the server with the models."
)


class ServerJobs:
    """AIGCJobs of an API server."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def create(self, body: Mapping[str, Any]) -> None:
        await self._client.create(AIGC_JOBS, dict(body), body["metadata"]["namespace"])

    async def get(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        try:
            return await self._client.get(AIGC_JOBS, name, namespace)
        except StatusError as error:
            if error.code == 404:
                return None
            raise

    async def delete(self, namespace: str, name: str) -> None:
        try:
            await self._client.delete(AIGC_JOBS, name, namespace)
        except StatusError as error:
            if error.code != 404:
                raise


def main(arguments: list[str]) -> int:
    """Serve until SIGTERM or Ctrl-C."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname).1s %(message)s")
    os.umask(0o077)
    try:
        return start(parser().parse_args(arguments))
    except WindlassError as error:
        _print_error(error)
        return exit_status_of(error.code)


def start(given: argparse.Namespace) -> int:
    """Check the options and serve. Raises :class:`WindlassError` for options that cannot be served."""
    backend = urlsplit(given.backend)
    if backend.scheme not in ("http", "https") or not backend.hostname:
        raise WindlassError(
            "WL-USE-400",
            f"--backend {given.backend} is not a URL of a server",
            evidence="it begins with http:// or https://, and a host follows",
            remedies=(EXAMPLE,),
        )
    state = StateFolder.locate(given.state)
    folder = Path(given.folder) if given.folder else state.path / "batch-api"
    _check_folder(folder, given.backend)
    listeners = listen(given.listen)
    lock = FileLock(folder / "lock")
    if not lock.acquire():
        raise WindlassError(
            "WL-SERVER-409",
            f"another process serves {folder}",
            evidence=f"it holds {folder / 'lock'}",
            remedies=(f"windlass batch-api --backend {given.backend} --folder OTHER_FOLDER",),
        )
    connection = _connection(given, state)
    return asyncio.run(_serve(given, folder, connection, listeners))


def _check_folder(folder: Path, backend: str) -> None:
    """Create the folder of files and batches. Raises :class:`WindlassError` if nothing can be written in it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK | os.X_OK):
            return
        reason = "no file can be written there"
    except OSError as error:
        reason = error.strerror or str(error)
    raise WindlassError(
        "WL-USE-400",
        f"{folder} cannot hold the files and batches: {reason}",
        evidence="a folder is needed in which files can be written; it is created if it does not exist",
        remedies=(f"windlass batch-api --backend {backend} --folder ~/batches",),
    )


def listen(address: str) -> list[socket.socket]:
    """Return listening sockets for ``HOST:PORT``, on loopback without a host. Raises :class:`WindlassError`."""
    host, _, port = address.rpartition(":")
    if not (port.isascii() and port.isdecimal() and int(port) < 65536):
        raise WindlassError(
            "WL-USE-400",
            f"--listen {address} is not an address",
            evidence="the format is HOST:PORT; port 0 takes any free one",
            remedies=("--listen 127.0.0.1:8321",),
        )
    try:
        return bind(host.strip("[]") or "127.0.0.1", int(port))
    except OSError as error:
        remedy = "--listen 127.0.0.1:0   (any free port)"
        raise cannot_listen(host.strip("[]") or "127.0.0.1", int(port), error, remedy) from error


def _print_error(error: WindlassError) -> None:
    lines = [f"error[{error.code}]: {error.message}"]
    lines += [f"why: {error.evidence}"] * bool(error.evidence)
    lines += [f"try: {remedy}" for remedy in error.remedies]
    print("\n".join(lines), file=sys.stderr)


def _connection(given: argparse.Namespace, state: StateFolder) -> Connection:
    if given.kubeconfig or given.context:
        return kubeconfig.load(given.kubeconfig, given.context)
    return Connection(unix_socket=str(state.socket))


async def _serve(
    given: argparse.Namespace, folder: Path, connection: Connection, listeners: list[socket.socket]
) -> int:
    clock, chance = SystemClock(), rng.system()
    client = Client(HttpTransport(connection), user_agent="windlass-batch-api", clock=clock, rng=chance)
    spec = {
        name: value for name, value in (("queue", given.queue), ("priorityClass", given.priority)) if value
    }
    await check_target(client, given)
    settings = Settings(given.namespace, given.backend.rstrip("/"), spec)
    service = BatchService(BatchStore(folder, chance), ServerJobs(client), clock, settings)
    server = HttpServer(ServerLimits(drain=5))
    await server.listen(BatchApi(service, _key(folder)), listeners)
    _tell(folder, listeners[0].getsockname())
    stopped = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, stopped.set)
    try:
        await until_first(service.run(), stopped.wait())
    finally:
        await server.close()
    return 0


async def check_target(client: Client, given: argparse.Namespace) -> None:
    """Check that what the options name exists. Raises :class:`WindlassError`.

    A right to read that is missing is no error: the jobs need only the right to create them.
    """
    await _require(
        client, NAMESPACES, given.namespace, "namespace", f"kubectl create namespace {given.namespace}"
    )
    if given.queue:
        await _require(client, QUEUES, given.queue, "queue", f"windlass queue create {given.queue}")
    if given.priority:
        await _require(client, PRIORITY_CLASSES, priority_class(given.priority), "priority", "--priority low")


async def _require(client: Client, resource: Resource, name: str, what: str, remedy: str) -> None:
    try:
        if await client.find(resource, name) is not None:
            return
        present = sorted(found["metadata"]["name"] for found in (await client.list(resource)).items)
    except StatusError as error:
        if error.code == 403:
            return
        raise
    raise WindlassError(
        "WL-OBJECT-404" if resource is PRIORITY_CLASSES else f"WL-{what.upper()}-404",
        f'{what} "{name}" does not exist',
        evidence=f"existing: {', '.join(present)}" if present else "there are none",
        remedies=(remedy,),
    )


def _key(folder: Path) -> str:
    """Return the API key: of the environment, or of the folder, where it is created once."""
    if key := os.environ.get("WINDLASS_BATCH_API_KEY", ""):
        return key
    path = folder / "api-key"
    if not path.exists():
        write_atomic(path, secrets.token_urlsafe(32) + "\n")
    return path.read_text().strip()


def _tell(folder: Path, address: tuple[Any, ...]) -> None:
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    print(f"export OPENAI_BASE_URL=http://{host}:{address[1]}/v1")
    print(f"export OPENAI_API_KEY=$(cat {folder / 'api-key'})", flush=True)


class _Parser(argparse.ArgumentParser):
    """Parser that reports wrong options as all commands do."""

    def error(self, message: str) -> NoReturn:
        missing = message.startswith("the following arguments are required: ")
        raise WindlassError(
            "WL-USE-400",
            "--backend is missing" if missing else message,
            evidence="it is the URL of the server that has the models" if missing else "",
            remedies=(EXAMPLE, f"{self.prog} --help"),
        )


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    found = _Parser(prog="windlass batch-api", description=DESCRIPTION, allow_abbrev=False)
    found.add_argument(
        "--backend",
        required=True,
        metavar="URL",
        help="server with the models, such as http://127.0.0.1:8000/v1",
    )
    found.add_argument(
        "--listen", default="127.0.0.1:8321", metavar="HOST:PORT", help="address (default: %(default)s)"
    )
    found.add_argument(
        "--folder",
        default="",
        metavar="DIR",
        help="files and batches (default: batch-api in the state directory)",
    )
    found.add_argument(
        "-n", "--namespace", default="default", help="namespace of the jobs (default: %(default)s)"
    )
    found.add_argument("--queue", default="", metavar="NAME", help="queue of the jobs")
    found.add_argument("--priority", default="", metavar="NAME", help="priority of the jobs (default: low)")
    found.add_argument("--state", default=None, metavar="DIR", help="state directory of windlass up")
    found.add_argument("--kubeconfig", default=None, metavar="FILE", help="kubeconfig of a cluster")
    found.add_argument("--context", default=None, metavar="NAME", help="context of the kubeconfig")
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
