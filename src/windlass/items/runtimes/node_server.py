"""Runtime ``openai`` with one inference server for all workers of a node (``sharing.mode: Server``).

The first worker of a node takes a lock and starts the server; the others send their requests
to it. Workers with GPUs share a server only if they have the same GPUs. When that worker ends,
or its server does, another one takes the lock and starts a new server: requests that were under
way are repeated.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import zlib
from collections.abc import Mapping
from pathlib import Path

from windlass.items.runtimes.base import MODEL_PATH, RuntimeContext, SetupError
from windlass.items.runtimes.http_json import JsonClient
from windlass.items.runtimes.openai_server import OpenAIRuntime
from windlass.items.spec import ServerSpec
from windlass.kits.files import FileLock, unlink_if_exists, write_atomic

SERVERS = "WINDLASS_MODEL_SERVERS"
"""Environment variable: folder of the node in which workers find one another's servers."""
POD_IP = "WINDLASS_POD_IP"
"""Environment variable: address at which a server listens."""
SERVED, ATTACHED = "served", "attached"
POLL_SECONDS = 0.3
"""Interval between two looks at a server that is not ready (seconds)."""
END_SECONDS = 10.0
"""Time that a server has to end (seconds)."""
MAX_STARTS = 3
"""Maximum number of times that one worker starts a server that ends by itself."""
_DEVICES = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")


class NodeServer:
    """Server of a node: started by this worker, or by another one."""

    def __init__(self, context: RuntimeContext, spec: ServerSpec) -> None:
        self._context, self._spec = context, spec
        environment = context.environment
        self._host = environment.get(POD_IP) or "127.0.0.1"
        self._values = {
            "path": environment.get(MODEL_PATH, ""),
            "name": context.batch.model,
            "host": self._host,
        }
        folder = Path(environment.get(SERVERS) or "/dev/shm/windlass-models")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SetupError(f"the folder {folder} for servers of models cannot be used: {error}") from error
        key = server_key(environment, context.batch.model, spec)
        self._lock = FileLock(folder / f"{key}.server")
        self._address = folder / f"{key}.address"
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0
        self._own = ""

    @property
    def how(self) -> str:
        return SERVED if self._process is not None else ATTACHED

    def url(self) -> str:
        """Return the URL of a server that answers; start it if no worker of the node has one.

        Raises :class:`SetupError` if none answers in time.
        """
        deadline = self._context.monotonic() + self._spec.start_seconds
        while self._context.monotonic() < deadline:
            if self._process is not None:
                if self._process.poll() is None:
                    return self._own
                self._start(deadline)
            elif self._lock.acquire():
                self._start(deadline)
            else:
                found = self._found()
                if found and _accepts(found):
                    return found
                self._context.pause(POLL_SECONDS)
        raise SetupError(f"no server of the model answered within {self._spec.start_seconds:g} s")

    def close(self) -> None:
        """End the server if this worker has started it."""
        process, self._process = self._process, None
        if process is None:
            return
        unlink_if_exists(self._address)
        process.terminate()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._lock.release()

    def _found(self) -> str:
        try:
            return str(json.loads(self._address.read_text())["url"])
        except (OSError, ValueError, KeyError):
            return ""

    def _start(self, deadline: float) -> None:
        """Start the server and wait until it is ready. This worker holds the lock."""
        unlink_if_exists(self._address)
        self._starts += 1
        if self._starts > MAX_STARTS:
            code = self._process.returncode if self._process is not None else None
            raise SetupError(f"the server of the model ended {MAX_STARTS} times, the last time with {code}")
        port = _free_port(self._host)
        argv = [filled(word, {**self._values, "port": str(port)}) for word in self._spec.command]
        try:
            self._process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=sys.stderr, env=dict(self._context.environment)
            )
        except OSError as error:
            self._lock.release()
            raise SetupError(f"the server of the model cannot be started: {argv[0]}: {error}") from error
        self._own = f"http://{self._host}:{port}/v1"
        while self._process.poll() is None:
            if self._ready(port):
                write_atomic(self._address, json.dumps({"url": self._own}), 0o644)
                return
            if self._context.monotonic() > deadline:
                raise SetupError(
                    f"the server of the model did not answer {self._spec.ready_path} within "
                    f"{self._spec.start_seconds:g} s"
                )
            self._context.pause(POLL_SECONDS)

    def _ready(self, port: int) -> bool:
        client = JsonClient(f"http://{self._host}:{port}", {}, 5.0)
        try:
            return client.request("GET", self._spec.ready_path)[0] == 200
        except OSError:
            return False
        finally:
            client.close()


class NodeServerRuntime(OpenAIRuntime):
    """Runtime ``openai`` with the server of the node."""

    def __init__(self, context: RuntimeContext) -> None:
        super().__init__(context)
        assert context.batch.server is not None
        self._server = NodeServer(context, context.batch.server)
        self._moving = threading.Lock()
        self.how = ""

    def setup(self) -> None:
        try:
            self._url = self._server.url()
        except BaseException:
            self._server.close()
            raise
        self.how = self._server.how

    def teardown(self) -> None:
        super().teardown()
        self._server.close()

    def _client(self) -> JsonClient:
        if getattr(self._local, "url", self._url) != self._url:
            self._local.client.close()
            self._local.client = None
        self._local.url = self._url
        return super()._client()

    def _lost_server(self) -> None:
        """Find the server that is there now. Without one, the row fails as that of a lost machine."""
        with self._moving, contextlib.suppress(SetupError):
            self._url = self._server.url()


def server_key(environment: Mapping[str, str], model: str, spec: ServerSpec) -> str:
    """Return the name of the server: that of its model, its command and its GPUs."""
    devices = next((environment[name] for name in _DEVICES if environment.get(name)), "")
    parts = [environment.get(MODEL_PATH, ""), model, *spec.command, devices]
    return f"{zlib.crc32(json.dumps(parts).encode()):08x}-{os.getuid()}"


def filled(word: str, values: Mapping[str, str]) -> str:
    """Return a word of the command with its placeholders replaced."""
    for name, value in values.items():
        word = word.replace(f"{{{name}}}", value)
    return word


def _free_port(host: str) -> int:
    with socket.socket() as found:
        found.bind((host, 0))
        return int(found.getsockname()[1])


def _accepts(url: str) -> bool:
    host, _, port = url.removeprefix("http://").partition("/")[0].rpartition(":")
    try:
        socket.create_connection((host, int(port)), 2.0).close()
    except OSError:
        return False
    return True
