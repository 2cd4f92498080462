"""Process of the interface: ``windlass batch-api``."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import secrets
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from windlass.api.errors import StatusError, WindlassError
from windlass.api.resources import AIGC_JOBS
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
    given = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname).1s %(message)s")
    os.umask(0o077)
    state = StateFolder.locate(given.state)
    folder = Path(given.folder) if given.folder else state.path / "batch-api"
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / "lock")
    if not lock.acquire():
        print(f"error: another process serves {folder}", file=sys.stderr)
        return 1
    try:
        connection = _connection(given, state)
    except WindlassError as error:
        print(f"error[{error.code}]: {error.message}", file=sys.stderr)
        return 1
    return asyncio.run(_serve(given, folder, connection))


def _connection(given: argparse.Namespace, state: StateFolder) -> Connection:
    if given.kubeconfig or given.context:
        return kubeconfig.load(given.kubeconfig, given.context)
    return Connection(unix_socket=str(state.socket))


async def _serve(given: argparse.Namespace, folder: Path, connection: Connection) -> int:
    clock, chance = SystemClock(), rng.system()
    client = Client(HttpTransport(connection), user_agent="windlass-batch-api", clock=clock, rng=chance)
    spec = {
        name: value for name, value in (("queue", given.queue), ("priorityClass", given.priority)) if value
    }
    settings = Settings(given.namespace, given.backend.rstrip("/"), spec)
    service = BatchService(BatchStore(folder, chance), ServerJobs(client), clock, settings)
    host, _, port = given.listen.rpartition(":")
    listeners = bind(host.strip("[]"), int(port))
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="windlass batch-api", description=__doc__)
    parser.add_argument(
        "--backend",
        required=True,
        metavar="URL",
        help="server with the models, such as http://127.0.0.1:8000/v1",
    )
    parser.add_argument(
        "--listen", default="127.0.0.1:8321", metavar="HOST:PORT", help="address (default: %(default)s)"
    )
    parser.add_argument(
        "--folder",
        default="",
        metavar="FOLDER",
        help="files and batches (default: batch-api in the state directory)",
    )
    parser.add_argument(
        "-n", "--namespace", default="default", help="namespace of the jobs (default: %(default)s)"
    )
    parser.add_argument("--queue", default="", metavar="NAME", help="queue of the jobs")
    parser.add_argument("--priority", default="", metavar="NAME", help="priority of the jobs (default: low)")
    parser.add_argument("--state", default=None, metavar="FOLDER", help="state directory of windlass up")
    parser.add_argument("--kubeconfig", default=None, metavar="FILE", help="kubeconfig of a cluster")
    parser.add_argument("--context", default=None, metavar="NAME", help="context of the kubeconfig")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
