"""Driver and workers of a batch as real processes, and a killer of them."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

TOKEN = "secret"


class BatchRun:
    """One batch in a folder. ``workers``: number of worker processes that are kept running."""

    def __init__(self, folder: Path, spec: Mapping[str, Any], *, workers: int = 2, uid: str = "u1") -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        document = {"metadata": {"namespace": "ns", "name": "job", "uid": uid}, "spec": spec}
        (folder / "batch.json").write_text(json.dumps(document))
        self.port_file = folder / "port"
        self.port_file.unlink(missing_ok=True)
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("WINDLASS_BATCH")},
            "WINDLASS_BATCH": str(folder / "batch.json"),
            "WINDLASS_BATCH_LISTEN": "127.0.0.1:0",
            "WINDLASS_BATCH_PORT_FILE": str(self.port_file),
            "WINDLASS_BATCH_DRIVER_FILE": str(self.port_file),
            "WINDLASS_BATCH_TOKEN": TOKEN,
            "WINDLASS_BATCH_LINGER": "0.5",
        }
        self.driver: subprocess.Popen[bytes] | None = None
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self.names = [f"worker-{number}" for number in range(workers)]

    def start_driver(self, **environment: str) -> subprocess.Popen[bytes]:
        self.driver = self._start("windlass.items.driver", environment)
        return self.driver

    def start_worker(self, name: str, **environment: str) -> subprocess.Popen[bytes]:
        values = {"WINDLASS_BATCH_WORKER": name, **environment}
        process = self.workers[name] = self._start("windlass.items.worker", values)
        return process

    def _start(self, module: str, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", module],
                env={**self.environment, **environment},
                stdout=log,
                stderr=log,
                cwd=self.folder,
            )

    def run(self, seconds: float = 120.0, **environment: str) -> int:
        """Run to the end; return the exit code of the driver."""
        driver = self.start_driver(**environment)
        for name in self.names:
            self.start_worker(name)
        try:
            return driver.wait(seconds)
        finally:
            self.end()

    def run_with_kills(self, seed: int, kills: int, seconds: float = 240.0, every: int = 0) -> int:
        """Run to the end while random processes are killed and started again.

        ``every``: number of rows that are done between two kills at least, so that the kills of a slow
        machine do not all hit processes that start.
        """
        done = 0
        chance = random.Random(seed)
        self.start_driver()
        deadline = time.monotonic() + seconds
        due = time.monotonic() + 0.5
        try:
            while time.monotonic() < deadline:
                assert self.driver is not None
                code = self.driver.poll()
                if code is not None and code != -signal.SIGKILL:
                    return code
                if code is not None:
                    self.start_driver()
                for name in self.names:
                    worker = self.workers.get(name)
                    if worker is None or worker.poll() not in (None, 0):
                        self.start_worker(name)
                if kills and every and time.monotonic() >= due:
                    now_done = self._done()
                    if now_done < done + every:
                        due = time.monotonic() + 0.1
                    else:
                        done = now_done
                if kills and time.monotonic() >= due:
                    victims = [self.driver, *self.workers.values()]
                    victim = chance.choice([one for one in victims if one.poll() is None] or [self.driver])
                    victim.kill()
                    victim.wait()
                    kills -= 1
                    due = time.monotonic() + chance.uniform(0.05, 0.6)
                time.sleep(0.02)
            raise AssertionError(f"the batch did not end within {seconds} s: {self.text()}")
        finally:
            self.end()

    def _done(self) -> int:
        """Return the number of rows that are done; -1 while the driver does not answer."""
        try:
            return int(self.call("/v1/status")["items"]["done"])
        except (OSError, KeyError, ValueError):
            return -1

    def end(self) -> None:
        """End all processes that are left."""
        for process in (*self.workers.values(), self.driver):
            if process is None or process.poll() is not None:
                continue
            try:
                process.wait(3.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def call(self, path: str, body: Any = None) -> Any:
        """Send a request to the driver. Raises ``OSError``."""
        port = self.port_file.read_text().strip()
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=data)
        request.add_header("Authorization", f"Bearer {TOKEN}")
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.loads(response.read())

    def wait_status(self, wanted: Any, seconds: float = 60.0) -> dict[str, Any]:
        """Return the first status for which ``wanted`` is true."""
        deadline = time.monotonic() + seconds
        status: dict[str, Any] = {}
        while time.monotonic() < deadline:
            try:
                status = self.call("/v1/status")
                if wanted(status):
                    return status
            except (OSError, ValueError):
                pass
            time.sleep(0.02)
        raise AssertionError(f"no such status within {seconds} s: {status}\n{self.text()}")

    def text(self) -> str:
        return (self.folder / "log").read_text()[-4000:]


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def digest(path: Path) -> str:
    """Return the hash of the sorted rows of an output file."""
    return hashlib.sha256(b"\n".join(sorted(path.read_bytes().splitlines()))).hexdigest()


def jsonl(rows: Sequence[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)
